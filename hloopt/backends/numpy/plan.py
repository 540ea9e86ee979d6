"""A computation as a straight line of steps over numbered slots.

A slot holds one array; tuples exist only while the line is made, so that ``tuple`` and
``get-tuple-element`` cost nothing when it runs.  What a step is written as in Python is data
(``Code``); ``source`` writes a line out as a function, ``sharing`` decides what it may overwrite.

Memory.  A slot is *fresh* when its step makes a new array that nothing else refers to.  Slots that may
share memory form a class; a class is free at a step when all its members are fresh (or inputs the caller
gave away, ``Line.owned``) and none is read later.  What is free may be overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeAlias

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.types import Dims, Shape, TupleShape

__all__ = [
    "SCALARS",
    "Cases",
    "Code",
    "Dims",
    "Function",
    "Line",
    "LineLoop",
    "Slots",
    "Step",
    "in_place",
    "leaf_slots",
    "pack",
    "unpack",
]

Function: TypeAlias = "Callable[..., Any]"

Slots: TypeAlias = "int | tuple[Slots, ...]"
"""The slots of a value, in the structure of its shape."""

SCALARS: Final = frozenset(
    np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64"),
        *("uint8", "uint16", "uint32", "uint64", "float32", "float64"),
    )
)

_COMPARED: Final = 64  # bytes up to which arrays that code refers to are compared by their elements


@dataclass(frozen=True, slots=True)
class Code:
    """What a step is in Python.

    text     statements, one a line, in which ``{r}`` is the variable of the result, ``{0}``, ``{1}`` ... are
             the operands, ``{b}`` is its buffer, ``bound`` names others, and all that is left are private
             variables; beside those it has nothing but numbers and Python's keywords
    scalars  positions of operands that it wants as NumPy's scalars, not as arrays
    scalar   the result is such a scalar
    bound    objects it refers to
    buffer   the type of an array without dimensions that it may write into each time; None for no buffer
    """

    text: str
    scalars: frozenset[int] = frozenset()
    scalar: bool = False
    bound: Mapping[str, Any] = field(default_factory=dict)
    buffer: np.dtype[Any] | None = None

    @property
    def key(self) -> Hashable:
        """Equal for codes that do the same."""
        bound = tuple((name, _identity(value)) for name, value in sorted(self.bound.items()))
        return self.text, self.scalars, self.scalar, bound, self.buffer


@dataclass(slots=True)
class Step:
    """``outs = function(*ins)``; one ``out`` gets the result itself, several unpack a tuple.

    view       the outs may share memory with the ins
    ufunc      ``function`` takes ``out=``, an array to write into
    fills      the same of a function that reads its operands while it writes: the array is none of them
    writes     positions of ``ins`` that the step writes into, each giving the ``out`` of the same
               position; ``choose(own)`` gives the function or code for the set of those positions that are
               free, which has to copy the others first; a function's arrays share memory with no other
               operand
    keep       the step runs even when the outs are unused
    code       what is written instead of a call of ``function``
    uncopied   code that gives a view of the first operand, which ``code`` copies: enough where nothing
               writes into it
    inner      the lines of a loop or a conditional, written in place of a call of ``function``
    into       the slot whose array ``function`` gets as ``out=``, or -1
    places     the same of one that makes several: by positions of ``outs``, it gets None for the others
    own        those of ``writes`` that are free
    made       the instruction whose result the step makes, where it is one array, and the slots of its
    operands   operands, not yet stretched
    reshapes   the out is the operand with dimensions of size 1 added or taken away
    moves      the out has elements of the ins, by their positions alone: ``function`` says which
    owners     the instructions that it is a part of, those that launch counts: whose time it takes
    """

    function: Function | None
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    several: bool = False
    view: bool = False
    ufunc: bool = False
    fills: bool = False
    writes: tuple[int, ...] = ()
    choose: Callable[[frozenset[int]], Function | Code] | None = None
    keep: bool = False
    code: Code | None = None
    uncopied: Code | None = None
    inner: LineLoop | Cases | None = None
    into: int = -1
    places: dict[int, int] = field(default_factory=dict)
    own: frozenset[int] = frozenset()
    made: Instruction | None = None
    operands: tuple[int, ...] = ()
    reshapes: bool = False
    moves: bool = False
    owners: tuple[Instruction, ...] = ()

    @property
    def key(self) -> Hashable | None:
        """Equal for steps that have the same results; None where that is not known."""
        if self.keep or self.writes or self.several:
            return None
        if self.code is not None:
            return self.code.key, self.ins
        return (self.function, self.ins) if isinstance(self.function, np.ufunc) else None

    def fresh(self) -> tuple[int, ...]:
        """The outs that are newly allocated arrays."""
        return tuple(self.outs[at] for at in self.writes) if self.view else self.outs

    def taken(self) -> tuple[int, ...]:
        """The slot whose array the step writes into, if there is one."""
        return () if self.into < 0 else (self.into,)

    def linked(self) -> tuple[int, ...]:
        """The slots that may share memory because of this step."""
        if not self.view:
            return ()
        outs = [slot for at, slot in enumerate(self.outs) if at not in self.writes]
        ins = [slot for at, slot in enumerate(self.ins) if at not in self.writes]
        return (*outs, *ins) if outs else ()


@dataclass
class Line:
    """The steps of one computation while it is compiled.

    ``kinds`` and ``dims`` describe each slot's array; ``owned`` are inputs whose arrays may be written
    over; ``kernels`` is added to the launches of a run.
    """

    inputs: list[int] = field(default_factory=list)
    owned: frozenset[int] = frozenset()
    steps: list[Step] = field(default_factory=list)
    constants: dict[int, Any] = field(default_factory=dict)
    kinds: list[np.dtype[Any]] = field(default_factory=list)
    dims: list[Dims] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    kernels: int = 0
    _made: dict[Hashable, int] = field(default_factory=dict)

    def slot(self, kind: np.dtype[Any], dims: Dims) -> int:
        """A new slot for arrays of a type and dimensions."""
        self.kinds.append(kind)
        self.dims.append(dims)
        return len(self.dims) - 1

    def is_scalar(self, slot: int) -> bool:
        """Whether loops carry a slot as a NumPy scalar: integers, pred, f32 and f64 without dimensions.

        Their arithmetic costs a tenth of that of an array without dimensions, and gives the same bits.
        """
        kind = self.kinds[slot]
        return not self.dims[slot] and kind in SCALARS

    def step(self, function: Function | None, ins: tuple[int, ...], out: int, **flags: Any) -> int:
        """Append a step with one result."""
        self.steps.append(Step(function, ins, (out,), **flags))
        return out

    def once(self, function: Function | None, ins: tuple[int, ...], out: int, **flags: Any) -> int:
        """Append a step with one result, unless there is one that does the same; the slot it is in."""
        key = Step(function, ins, (out,), **flags).key
        found = out if key is None else self._made.setdefault(key, out)
        return self.step(function, ins, out, **flags) if found == out else found

    def drop_unused(self) -> None:
        """Remove the steps that no result depends on."""
        needed = set(self.results)
        kept = []
        for step in reversed(self.steps):
            if step.keep or needed.intersection(step.outs):
                needed.update(step.ins)
                kept.append(step)
        self.steps = kept[::-1]


@dataclass(frozen=True, slots=True)
class LineLoop:
    """A ``while`` over flat state.

    kept        for each element of the state what a buffer keeps of it; None where that is all
    stuck       called with the number of an iteration that changed nothing: raises unless a later one may
                end the loop
    trip_count  how often the body runs, where that is known: the condition is not evaluated then
    """

    condition: Line
    body: Line
    kept: tuple[Function | None, ...]
    stuck: Callable[[int], None]
    trip_count: int | None = None


@dataclass(frozen=True, slots=True)
class Cases:
    """A ``conditional``: the first operand selects one of the lines, out of range the last.

    starts  where in the operands each line's inputs begin
    enter   for each line what a buffer keeps of each of its inputs; None where that is all
    leave   the same of the results
    """

    lines: tuple[Line, ...]
    starts: tuple[int, ...]
    enter: tuple[tuple[Function | None, ...], ...]
    leave: tuple[Function | None, ...]


def in_place(*_arrays: Any) -> Any:
    """The function of a step whose lines are written in its place."""
    raise AssertionError("lines that are written in place are not called")


def _identity(value: Any) -> Hashable:
    if isinstance(value, (int, tuple, np.dtype)):
        return repr(value)
    if isinstance(value, (np.ndarray, np.generic)) and value.nbytes <= _COMPARED:
        # By bits: a NaN of either sign is shown alike.
        return value.dtype, value.shape, value.tobytes()
    return id(value)


def leaf_slots(slots: Slots) -> list[int]:
    """The slots of a value, depth first."""
    if isinstance(slots, int):
        return [slots]
    return [leaf for element in slots for leaf in leaf_slots(element)]


def pack(shapes: Sequence[Shape]) -> Callable[..., tuple[Any, ...]]:
    """A function from flat arrays to a tuple of values of ``shapes``."""

    def build(shape: Shape, arrays: Any) -> Any:
        if isinstance(shape, TupleShape):
            return tuple(build(element, arrays) for element in shape.elements)
        return next(arrays)

    def packed(*arrays: Any) -> tuple[Any, ...]:
        rest = iter(arrays)
        return tuple(build(shape, rest) for shape in shapes)

    return packed


def unpack(value: Any) -> tuple[Any, ...]:
    """The arrays of a value, depth first."""
    if isinstance(value, tuple):
        return tuple(leaf for element in value for leaf in unpack(element))
    return (value,)
