"""Where a loop's state is while a thread runs it: variables, induction variables, values outside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import product
from math import prod
from typing import Final

from hloopt.analysis.index import Index, Indices, Symbol, linearize, symbols_of
from hloopt.analysis.induction import Affine
from hloopt.analysis.parallel_loop import Axes, FusedLoop, local_dims
from hloopt.analysis.parallel_loop.edges import shape_of
from hloopt.codegen import position_of
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import At, Emission, EmissionFrame, ValuePlace
from hloopt.codegen.loops.ahead import Again, Ahead
from hloopt.codegen.scalars import convert, literal
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Array, Cast, Element, Expr, Select, Var, as_expr, eq
from hloopt.kernel_ir.scope import Scope
from hloopt.kernel_ir.types import INT, ULONG, Type
from hloopt.types import ArrayShape, DType, dtype

__all__ = [
    "CHOSEN",
    "Counted",
    "KeptPlace",
    "KnownPlace",
    "LoopResults",
    "Outside",
    "Turning",
    "firsts",
    "full_index",
    "kept_in",
    "local_indices",
    "place_state",
]

CHOSEN: Final = 8
"""Of so many variables at most one is chosen by comparing its number, so that all can be in registers."""


def local_indices(shape: ArrayShape, axes: Axes) -> Iterator[Indices]:
    """Every index of what a work item has, first dimension slowest."""
    return product(*(map(Index, range(size)) for size in local_dims(shape, axes)))


def full_index(axes: Axes, work_item: Indices, local: Sequence[Index]) -> Indices:
    """The index in the whole array of an element that a work item has."""
    rest = iter(local)
    return tuple(work_item[axis] if axis is not None else next(rest) for axis in axes)


def place_state(
    e: Elements, frame: EmissionFrame, loop: Instruction, number: int, place: ValuePlace
) -> None:
    """Register where an element of the state is for reads in a loop's body or condition."""
    for called in (loop.body, loop.condition):
        e.places[frame, called.parameters[0], number] = place


def firsts(work_item: Indices, axes: Axes) -> list[Expr]:
    """The tests that a work item is the first along the axes that are not among ``axes``."""
    return [
        eq(at, 0) for axis, at in enumerate(work_item) if axis not in axes and not at.is_constant
    ]


@dataclass(frozen=True)
class KeptPlace(ValuePlace):
    """What a work item has of a value, in a variable or in an array of them.

    memory the variable, a value that stands for it, or the array
    shape  of the whole value
    axes   of its dimensions
    """

    memory: Expr | Array
    shape: ArrayShape
    axes: Axes

    @property
    def dims(self) -> tuple[int, ...]:
        """The local dimensions."""
        return local_dims(self.shape, self.axes)

    @property
    def count(self) -> int:
        """How many variables there are."""
        return prod(self.dims)

    @property
    def name(self) -> str:
        """What copies are called after."""
        return self.memory.name if isinstance(self.memory, Array | Var) else "kept"

    def at(self, local: Sequence[Index]) -> Expr:
        """The variable of a local index."""
        if not isinstance(self.memory, Array):
            return self.memory
        return self.memory[linearize(local, self.dims)]

    @property
    def target(self) -> Var | Array:
        """What is declared."""
        assert isinstance(self.memory, Var | Array), "a value stands for what is never declared"
        return self.memory

    def place(self, local: Sequence[Index]) -> Var | Element:
        """The same, to be set."""
        found = self.at(local)
        assert isinstance(found, Var | Element), "a value stands for what is never set"
        return found

    def element(self, e: Elements, index: Indices) -> Emission:
        """A variable; a copy of it where the number is known only at run time."""
        yield from ()
        local = tuple(at for at, axis in zip(index, self.axes, strict=True) if axis is None)
        position = linearize(local, self.dims)
        if not isinstance(self.memory, Array) or position.is_constant:
            return self.at(local)
        kind = e.uses.type(self.shape.dtype)
        if self.count > CHOSEN:
            return e.scope.declare(kind, self.at(local), self.name)
        at = e.symbol(position, "at", position.low, position.high)
        # A place that a surrounding test rules out may exceed all of them.
        *first, last = range(max(at.low, 0), min(at.high, self.count - 1) + 1) or (0,)
        choice: Expr = self.memory[last]
        for number in reversed(first):
            choice = Select.of(eq(at, number), self.memory[number], choice)
        return e.scope.declare(kind, choice, self.name)


def kept_in(name: str, kind: Type, shape: ArrayShape, axes: Axes) -> KeptPlace:
    """What a work item has of a value, kept under a name."""
    count = prod(local_dims(shape, axes))
    memory = Var(name, kind) if count == 1 else Array(name, kind, (count,), "local")
    return KeptPlace(memory, shape, axes)


@dataclass(frozen=True)
class KnownPlace(ValuePlace):
    """A place whose value is a known number."""

    value: Expr

    def element(self, e: Elements, index: Indices) -> Emission:
        """The number."""
        yield from ()
        return self.value


@dataclass(frozen=True)
class Counted(ValuePlace):
    """A scalar integer that is an induction variable.

    counter  of the iteration, an index expression
    """

    counter: Index
    kind: DType

    def element(self, e: Elements, index: Indices) -> Emission:
        """The counter, or arithmetic on it; its range is known wherever it is an index."""
        yield from ()
        if self.counter.is_constant:
            return literal(self.counter.constant, self.kind)
        source = dtype("s32" if e.loads.index_type == INT else "s64")
        at = as_expr(e.symbol(self.counter, "at", self.counter.low, self.counter.high))
        if source is not self.kind:
            value = convert(at, source, self.kind, e.uses)
            at = e.declare(self.kind, value, "at")
        e.ranges[at] = self.counter
        return at


@dataclass(frozen=True)
class Turning(ValuePlace):
    """A scalar integer that is an induction variable and wraps around as its type does."""

    iteration: Index
    number: Affine

    def element(self, e: Elements, index: Indices) -> Emission:
        """``first + iteration * step`` in 64 bits, of which the type keeps the lowest."""
        yield from ()
        first, step = (literal(one, dtype("s64")) for one in (self.number.first, self.number.step))
        iteration = as_expr(self.iteration)
        value = Cast(ULONG, first) + Cast(ULONG, iteration) * Cast(ULONG, step)
        name = e.scope.declare(ULONG, value, "counted")
        for source, kind in (
            (dtype("u64"), self.number.inner),
            (self.number.inner, self.number.dtype),
        ):
            name = e.declare(kind, convert(name, source, kind, e.uses), "counted")
        return name


@dataclass(frozen=True)
class Outside(ValuePlace):
    """A value that the loop only reads: element ``leaf`` of an instruction around it.

    frame    where that instruction stands
    section  lines right before the loop: what is read at loop-invariant indices that always lie within the
             array is read there, as long as the ``budget`` of such elements lasts
    fixed    the variables that do not change, with all values they may have: one that a test around a place
             narrows is another there, and what is read at it may lie outside of the array elsewhere
    ahead    for what lies in memory: reads what changes with the iteration alone before it is needed
    again    the same: reads what exceeds the budget again each time
    """

    instruction: Instruction
    leaf: int
    frame: EmissionFrame
    section: Scope
    fixed: frozenset[Symbol]
    budget: list[int]
    ahead: Ahead | None = None
    again: Again | None = None

    def element(self, e: Elements, index: Indices) -> Emission:
        """What the instruction outside has there."""
        at = At(self.instruction, index, self.leaf, self.frame)
        if not self._has(index):
            return (yield at)
        changing = set(symbols_of(index)) - self.fixed
        if not changing and self.budget[0]:
            self.budget[0] -= 1
            with e.within(self.section):
                return (yield at)
        if not changing and self.again is not None:
            return (yield At(self.instruction, self.again.at(e, index), self.leaf, self.frame))
        ahead = self.ahead
        if ahead is not None and changing == {ahead.iteration} and not ahead.is_full(at):
            kind = e.uses.type(shape_of((self.instruction, self.leaf)).dtype)
            return (yield from ahead.element(e, at, kind, self._name))
        return (yield at)

    def _has(self, index: Indices) -> bool:
        """Whether the array has an element there whatever the variables are, tests around the place or not."""
        dims = shape_of((self.instruction, self.leaf)).dims
        return all(at.low >= 0 and at.high < size for at, size in zip(index, dims, strict=True))

    @property
    def _name(self) -> str:
        init = self.instruction
        return init.operands[self.leaf].name if init.opcode == "tuple" else init.name


@dataclass
class LoopResults:
    """The results of one work item of a fused loop.

    work_item  its index, one for each axis
    inside     the tests that there is such a work item
    """

    f: FunctionWriter
    fused: FusedLoop
    work_item: Indices
    inside: Sequence[Expr] = ()

    def of_one_unit(self, axes: Axes) -> AbstractContextManager[Scope]:
        """The block of the one work item that writes what lies along some of the axes only."""
        return self.f.elements.when(*firsts(self.work_item, axes), *self.inside)

    def store(
        self, number: int, index: Sequence[Index], value: Expr, first: Sequence[Index] = ()
    ) -> None:
        """Write an element of the state to each result it is; ``index`` counts from ``first``."""
        where = [a + b for a, b in zip(index, first, strict=True)] if first else index
        for leaf in self.fused.leaves(number):
            pointee = self.f.result(leaf)
            self.f.store(pointee, position_of(where, pointee.shape), value)
