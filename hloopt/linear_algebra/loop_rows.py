"""Rows of arrays by the iteration of a loop: those that it reads, and those that it is made to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Final

from hloopt.analysis.induction import Affine, Inductions
from hloopt.analysis.loop_reader import StateSlot, WhileLoop
from hloopt.analysis.trip_count import trip_count
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, build, edit
from hloopt.ops.traits import PERMUTING
from hloopt.passes.loops.carried import CarriedState, states
from hloopt.passes.loops.counters import constant_like, counters
from hloopt.types import ArrayShape, Dims, DotDims, SliceRange

__all__ = [
    "IterationRow",
    "IterationRows",
    "RowKeeper",
    "all_rows",
    "beside",
    "outside",
    "row_counter",
    "with_rows",
]


@dataclass(frozen=True, slots=True)
class IterationRow:
    """Row ``first + t * step`` along dimension ``dim`` of a state element that the loop passes through.

    There are ``size`` rows.
    """

    element: int
    dim: int
    size: int
    first: int
    step: int


class IterationRows:
    """Values of a body that are a row of an array, another one in each iteration."""

    def __init__(self, loop: Instruction, iterations: int) -> None:
        self._loop, self._iterations = WhileLoop(loop), iterations
        self._state = states(loop)[1]
        self._inductions = Inductions(self._loop)

    def of(self, value: Instruction) -> IterationRow | None:
        """What row a value is; None for other values, and for rows that are not all within the array."""
        if value.opcode != "reshape" or value.operands[0].opcode != "dynamic-slice":
            return None
        piece = value.operands[0]
        source, *indices = piece.operands
        if not self.is_passed_on(source):
            return None
        return self._row(source, source.tuple_index, piece, value, indices)

    def written(self, number: int, update: Instruction) -> IterationRow | None:
        """What row a dynamic-update-slice of a state element writes; None where it may be another part."""
        whole, value, *indices = update.operands
        if value.opcode != "reshape":
            return None
        return self._row(whole, number, value, value.operands[0], indices)

    def _row(
        self,
        source: Instruction,
        number: int,
        piece: Instruction,
        value: Instruction,
        indices: Sequence[Instruction],
    ) -> IterationRow | None:
        whole, sizes = source.array.dims, piece.array.dims
        cut = [dim for dim, size in enumerate(sizes) if size != whole[dim]]
        if len(cut) != 1 or sizes[cut[0]] != 1 or source.array.is_dynamic:
            return None
        (dim,) = cut
        if value.array.dims != (*whole[:dim], *whole[dim + 1 :]):
            return None
        at = self._inductions.affine(indices[dim])
        if at is None or abs(at.step) != 1 or not _is_within(at, self._iterations, whole[dim]):
            return None
        return IterationRow(number, dim, whole[dim], at.at(0), at.step)

    def stays(self, value: Instruction) -> bool:
        """Whether a value is made of a constant, or of what the loop passes through, without arithmetic."""
        while value.opcode in _SPREADING:
            (value,) = value.operands
        return value.opcode == "constant" or self.is_passed_on(value)

    def is_passed_on(self, value: Instruction) -> bool:
        """Whether a value is an element of the state that the loop passes through."""
        return (
            value.opcode == "get-tuple-element"
            and value.operands[0] is self._state
            and self._loop.is_passed_on(StateSlot(value.tuple_index))
        )


_SPREADING: Final = PERMUTING - {"bitcast"} | {"broadcast", "convert"}


def outside(position: Instruction, state: Instruction, value: Instruction) -> Instruction:
    """A value that no iteration changes, outside of the loop.

    ``state`` is the loop's state before it, or the loop itself for what follows it.
    """
    made = []
    while value.opcode in _SPREADING:
        made.append(value)
        (value,) = value.operands
    if value.opcode == "constant":
        found = build.clone(value, position, ())
    elif state.opcode == "tuple":
        found = state.operands[value.tuple_index]
    else:
        found = build.element(position, state, value.tuple_index)
    for one in reversed(made):
        found = build.clone(one, position, (found,))
    return found


@dataclass
class RowKeeper:
    """Makes a loop carry values of all its iterations, or their sums; each value once in either way.

    ``element`` of the state is the ``counter``, which steps by one.
    """

    carried: CarriedState
    iterations: int
    element: int
    counter: Affine
    _known: dict[tuple[Instruction, int], int] = field(default_factory=dict)

    @classmethod
    def of(cls, carried: CarriedState) -> RowKeeper:
        """For a loop whose iterations are known, with a counter."""
        iterations = trip_count(carried.loop)
        assert iterations is not None, "the iterations are known"
        counter = row_counter(carried.loop, iterations)
        assert counter is not None, "there is a counter"
        return cls(carried, iterations, *counter)

    def keep(self, value: Instruction, step: int) -> int:
        """The state element with a value of all iterations, the first one first, or last where step is -1."""
        found = self._known.get((value, step))
        if found is not None:
            return found
        shape = value.array
        whole = ArrayShape(shape.dtype, (self.iterations, *shape.dims))
        at, before = self._begin(whole)
        self._known[value, step] = at
        root, state = self.carried.root, self.carried.states[1]
        piece = ArrayShape(shape.dtype, (1, *shape.dims))
        row = build.make(root, "reshape", (value,), shape=piece, metadata=value.metadata)
        index = self._index(root, state, step)
        indices = (index, *[constant_like(root, index, 0)] * shape.rank)
        after = build.make(root, "dynamic-update-slice", (before, row, *indices), shape=whole)
        self._end(at, after)
        return at

    def add_up(self, value: Instruction) -> int:
        """The state element with the sum of a value over all iterations."""
        found = self._known.get((value, 0))
        if found is not None:
            return found
        at, before = self._begin(value.array)
        self._known[value, 0] = at
        root = self.carried.root
        after = build.make(root, "add", (before, value), shape=value.array, metadata=value.metadata)
        self._end(at, after)
        return at

    def _begin(self, shape: ArrayShape) -> tuple[int, Instruction]:
        """A new element, of zeros before the loop, and what it is in an iteration."""
        (at,) = self.carried.add([build.splat(self.carried.init, shape, 0)])
        return at, self.carried.root.operands[at]

    def _end(self, at: int, after: Instruction) -> None:
        operands = list(self.carried.root.operands)
        operands[at] = after
        edit.set_operands(self.carried.root, tuple(operands))

    def _index(self, root: Instruction, state: Instruction, step: int) -> Instruction:
        """The iteration, or how many are left: of the counter, plus or minus, by a number."""
        counter = build.element(root, state, self.element)
        first = self.counter.first
        if step < 0:
            first += (self.iterations - 1) * self.counter.step
        number = constant_like(root, counter, first)
        rises = self.counter.step * step > 0
        sides = (counter, number) if rises else (number, counter)
        return build.make(root, "subtract", sides, shape=counter.shape)


def all_rows(
    end: Instruction, whole: Instruction, row: IterationRow | None, step: int, iterations: int
) -> tuple[Instruction, int]:
    """The rows of all iterations in one order, and which dimension counts them."""
    if row is None:
        return whole, 0
    dims = whole.array.dims
    low = min(row.first, row.first + (iterations - 1) * row.step)
    if row.size != iterations:
        ranges = [SliceRange(0, size) for size in dims]
        ranges[row.dim] = SliceRange(low, low + iterations)
        whole = build.make(end, "slice", (whole,), {"slice": tuple(ranges)})
    if row.step != step:
        whole = build.make(end, "reverse", (whole,), {"dimensions": (row.dim,)})
    return whole, row.dim


def beside(dims: Dims, row: int) -> Dims:
    """Where dimensions of a value are in the array of which it is a row along dimension ``row``."""
    return tuple(dim + (dim >= row) for dim in dims)


def with_rows(dims: DotDims, side: int, row: int) -> DotDims:
    """Those of a dot whose operand ``side`` has all rows, along its dimension ``row``."""
    if side == 0:
        return replace(
            dims,
            lhs_contracting=beside(dims.lhs_contracting, row),
            lhs_batch=beside(dims.lhs_batch, row),
        )
    return replace(
        dims,
        rhs_contracting=beside(dims.rhs_contracting, row),
        rhs_batch=beside(dims.rhs_batch, row),
    )


def row_counter(loop: Instruction, iterations: int) -> tuple[int, Affine] | None:
    """An integer of the state that counts by one, whose type holds the number of the last iteration."""
    found = counters(loop)
    for number, known in found.items():
        shape = loop.elements[number]
        assert isinstance(shape, ArrayShape), "counters are arrays"
        largest = (1 << (shape.dtype.bits - (shape.dtype.kind == "signed"))) - 1
        if not shape.dims and abs(known.step) == 1 and iterations - 1 <= largest:
            return number, known
    return None


def _is_within(at: Affine, iterations: int, size: int) -> bool:
    """Whether an index moves by its step without wrapping around, and stays within the dimension."""
    first, last = at.at(0), at.at(iterations - 1)
    return (
        last - first == (iterations - 1) * at.step
        and min(first, last) >= 0
        and max(first, last) < size
    )
