"""What integers and predicates that follow from places come to in a tile of scores: an interval of each.

One reading serves two kinds of numbers: arrays, with an element for each tile that there is, and expressions of
a kernel that has one tile at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Generic, TypeAlias, TypeVar

import numpy as np

from hloopt.analysis.attention.axes import Along, AxisNumber, known_along
from hloopt.analysis.attention.form import Attention
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops.traits import REARRANGING, op_table
from hloopt.types import DType

__all__ = ["Arithmetic", "PlaceReader", "ScoreTiles", "along_operand", "viewed"]

N = TypeVar("N")
Interval: TypeAlias = tuple[N, N]

_VIEWS: Final = (REARRANGING - {"reverse", "slice"}) | {"copy"}
_MOST_DEEP: Final = 64
"""Ops above each other that are looked at."""
_EXACT: Final = 2**24
"""Whole numbers up to here are f32, and so are their sums and differences."""
_WIDEST: Final = 2**31
"""Intervals end where integers of kernels do."""


class Arithmetic(ABC, Generic[N]):
    """What is asked of numbers and truth values, beside sums, differences and products."""

    @abstractmethod
    def number(self, value: int) -> N:
        """A constant, also a truth value."""

    @abstractmethod
    def at_most(self, left: N, right: N) -> N:
        """Whether ``left <= right``."""

    @abstractmethod
    def both(self, left: N, right: N) -> N:
        """Whether both hold."""

    @abstractmethod
    def negated(self, test: N) -> N:
        """Whether it does not hold."""

    @abstractmethod
    def choice(self, test: N, chosen: N, other: N) -> N:
        """One of two numbers."""

    @abstractmethod
    def divided(self, value: N, divisor: int) -> Interval[N]:
        """Quotient and remainder of a number that is not negative."""

    def named(self, value: N) -> N:
        """The same, to be used several times."""
        return value

    @abstractmethod
    def fits(self, interval: Interval[N], kind: DType) -> bool:
        """Whether a type is known to have all numbers of an interval."""


class _Tables(Arithmetic[Any]):
    """Arrays of one element a tile, in numbers that do not overflow."""

    def number(self, value: int) -> Any:
        return np.int64(value)

    def at_most(self, left: Any, right: Any) -> Any:
        return np.less_equal(left, right)

    def both(self, left: Any, right: Any) -> Any:
        return np.logical_and(left, right)

    def negated(self, test: Any) -> Any:
        return np.logical_not(test)

    def choice(self, test: Any, chosen: Any, other: Any) -> Any:
        return np.where(test, chosen, other)

    def divided(self, value: Any, divisor: int) -> tuple[Any, Any]:
        return value // divisor, value % divisor

    def fits(self, interval: Interval[Any], kind: DType) -> bool:
        least = 0 if kind.kind == "unsigned" else -(2 ** (kind.bits - 1))
        most = least + 2**kind.bits
        if kind.is_float:
            least, most = -_EXACT, _EXACT + 1
        least, most = max(least, -_WIDEST), min(most, _WIDEST)
        return bool(np.min(interval[0]) >= least and np.max(interval[1]) < most)


def _is_whole(kind: DType) -> bool:
    """Whether elements may be whole numbers with exact sums; f32 are where they come from integers."""
    return kind.is_integer or kind.name == "f32"


def viewed(one: Instruction) -> bool:
    """Whether an op only moves or repeats the elements of its operand."""
    return one.opcode in _VIEWS and bool(one.operands)


def along_operand(form: Attention, one: Instruction, along: Along, number: int) -> Along | None:
    """What an operand lies along where ``one`` lies along ``along``; None where it is taken apart."""
    operand = one.operands[number]
    found = form.along.get(operand)
    if found is not None:
        return found
    dims = operand.array.dims
    if one.opcode == "broadcast":
        where = one.attributes.get("dimensions", ())
        sizes = one.array.dims
        pairs = zip(where, dims, strict=True)
        return tuple(along[at] if sizes[at] == size else None for at, size in pairs)
    if one.opcode == "transpose":
        places = dict(zip(one.attributes["dimensions"], along, strict=True))
        return tuple(places[at] for at in range(len(dims)))
    if not dims:
        return ()
    if dims == one.array.dims:
        return along
    return _regrouped(form, along, dims) if one.opcode in ("reshape", "bitcast") else None


def _regrouped(form: Attention, along: Along, dims: Sequence[int]) -> Along | None:
    """The same axes in the same order, for other dimensions."""
    if None in along:
        return None
    axes = list(known_along(along))
    found: list[tuple[AxisNumber, ...]] = []
    for size in dims:
        own: list[AxisNumber] = []
        while form.count(own) < size and axes:
            own.append(axes.pop(0))
        if form.count(own) != size:
            return None
        found.append(tuple(own))
    return tuple(found)


@dataclass(frozen=True)
class PlaceReader(Generic[N]):
    """Reads intervals where rows and columns are between given ones.

    unreadable  what has numbers that its type may not hold; a first reading finds them, a second knows them
    """

    form: Attention
    rows: Interval[N]
    columns: Interval[N]
    arithmetic: Arithmetic[N]
    unreadable: set[Instruction]
    known: dict[tuple[Instruction, Along], Interval[N] | None] = field(default_factory=dict)

    def read(self, one: Instruction, along: Along, deep: int = 0) -> Interval[N] | None:
        """The least and the greatest element in the tile; of a pred whether all hold, and whether any may."""
        key = (one, along)
        if key not in self.known:
            found = self._fitting(one, along, deep)
            if found is not None:
                found = self.arithmetic.named(found[0]), self.arithmetic.named(found[1])
            self.known[key] = found
        return self.known[key]

    def _fitting(self, one: Instruction, along: Along, deep: int) -> Interval[N] | None:
        kind = one.array.dtype
        if one in self.unreadable or deep > _MOST_DEEP:
            return None
        if not (kind.is_pred or _is_whole(kind)):
            return None
        found = self._read(one, along, deep)
        if found is None:
            return (self._number(0), self._number(1)) if kind.is_pred else None
        if not kind.is_pred and not self.arithmetic.fits(found, kind):
            self.unreadable.add(one)
            return None
        return found

    def _number(self, value: int) -> N:
        return self.arithmetic.number(value)

    def _read(self, one: Instruction, along: Along, deep: int) -> Interval[N] | None:
        if one.literal is not None:
            splat = one.literal.splat
            if splat is None or not float(splat).is_integer() or abs(int(splat)) > _WIDEST:
                return None
            return self._number(int(splat)), self._number(int(splat))
        if one.opcode == "iota":
            part = along[one.attributes["iota_dimension"]]
            return None if part is None else self._places(part)
        if one in self.form.along or not (one.op.is_elementwise or viewed(one)):
            return None
        parts = []
        for number, operand in enumerate(one.operands):
            own = along_operand(self.form, one, along, number)
            part = None if own is None else self.read(operand, own, deep + 1)
            if part is None:
                return None
            parts.append(part)
        if viewed(one) or (one.opcode == "convert" and _is_whole(one.operands[0].array.dtype)):
            return parts[0]
        kind = one.operands[0].array.dtype
        if one.opcode == "compare":
            return self._compared(one.attributes["direction"], *parts)
        if one.opcode in ("and", "or", "not") and kind.is_pred:
            return self._joined(one.opcode, parts)
        return self._computed(one.opcode, parts) if _is_whole(kind) else None

    def _computed(self, opcode: str, parts: Sequence[Interval[N]]) -> Interval[N] | None:
        (low, high), *others = parts
        if opcode == "negate":
            zero: Any = self._number(0)
            return zero - high, zero - low
        rule = _INTERVALS.get(opcode)
        return rule(self, (low, high), others[0]) if rule else None

    def _greater(self, left: N, right: N) -> N:
        return self.arithmetic.choice(self.arithmetic.at_most(left, right), right, left)

    def _smaller(self, left: N, right: N) -> N:
        return self.arithmetic.choice(self.arithmetic.at_most(left, right), left, right)

    def _extremes(self, values: Sequence[N]) -> Interval[N]:
        least = most = values[0]
        for value in values[1:]:
            least, most = self._smaller(least, value), self._greater(most, value)
        return least, most

    def _compared(
        self, direction: str, left: Interval[N], right: Interval[N]
    ) -> Interval[N] | None:
        """Whether a comparison holds everywhere, and whether it may hold anywhere."""
        own = self.arithmetic
        if direction in ("GE", "GT"):
            left, right = right, left
        if direction in ("LE", "GE"):
            return own.at_most(left[1], right[0]), own.at_most(left[0], right[1])
        if direction in ("LT", "GT"):
            never, always = own.at_most(right[1], left[0]), own.at_most(right[0], left[1])
            return own.negated(always), own.negated(never)
        met = own.both(own.at_most(left[0], right[1]), own.at_most(right[0], left[1]))
        same = own.both(own.at_most(left[1], right[0]), own.at_most(right[1], left[0]))
        return (same, met) if direction == "EQ" else (own.negated(met), own.negated(same))

    def _joined(self, opcode: str, parts: Sequence[Interval[N]]) -> Interval[N]:
        own = self.arithmetic
        if opcode == "not":
            ((every, some),) = parts
            return own.negated(some), own.negated(every)
        (every, some), (other_every, other_some) = parts
        if opcode == "and":
            return own.both(every, other_every), own.both(some, other_some)
        return self._either(every, other_every), self._either(some, other_some)

    def _either(self, left: N, right: N) -> N:
        own = self.arithmetic
        return own.negated(own.both(own.negated(left), own.negated(right)))

    def _places(self, axes: Sequence[AxisNumber]) -> Interval[N]:
        """The first and the last place along axes that a dimension lies along."""
        form, own = self.form, self.arithmetic
        for group, (first, last) in ((form.rows, self.rows), (form.columns, self.columns)):
            at = next((at for at in range(len(group)) if group[at : at + len(axes)] == axes), None)
            if at is None or not axes:
                continue
            inner = form.count(group[at + len(axes) :])
            first, last = own.divided(first, inner)[0], own.divided(last, inner)[0]
            if at == 0:
                return first, last
            size = form.count(axes)
            (turn, low), (other, high) = own.divided(first, size), own.divided(last, size)
            same = own.both(own.at_most(turn, other), own.at_most(other, turn))
            greatest = own.number(size - 1)
            return own.choice(same, low, own.number(0)), own.choice(same, high, greatest)
        return own.number(0), own.number(form.count(axes) - 1)


def _product(by: PlaceReader[Any], left: Interval[Any], right: Interval[Any]) -> Interval[Any]:
    return by._extremes([x * y for x in left for y in right])


def _larger(by: PlaceReader[Any], left: Interval[Any], right: Interval[Any]) -> Interval[Any]:
    return by._greater(left[0], right[0]), by._greater(left[1], right[1])


def _lesser(by: PlaceReader[Any], left: Interval[Any], right: Interval[Any]) -> Interval[Any]:
    return by._smaller(left[0], right[0]), by._smaller(left[1], right[1])


_INTERVALS: Final[Mapping[str, Any]] = op_table(
    {
        "add": lambda _, left, right: (left[0] + right[0], left[1] + right[1]),
        "subtract": lambda _, left, right: (left[0] - right[1], left[1] - right[0]),
        "multiply": _product,
        "maximum": _larger,
        "minimum": _lesser,
    },
    otherwise="nothing is known of its values",
)
"""The interval of the results, by the reader and the intervals of both operands."""


@dataclass(frozen=True)
class ScoreTiles:
    """Tiles of so many rows and columns."""

    form: Attention
    height: int
    width: int

    def reader(self, unreadable: set[Instruction]) -> PlaceReader[Any]:
        """Reads all of them at once: arrays with the blocks of rows along the first dimension."""
        sizes = self.form.count(self.form.rows), self.form.count(self.form.columns)
        spans: list[Mapping[int, Any]] = []
        for count, step, dims in zip(
            sizes, (self.height, self.width), ((-1, 1), (1, -1)), strict=True
        ):
            first = np.arange(0, count, step, dtype=np.int64)
            last = np.minimum(first + step, count) - 1
            spans.append({0: first.reshape(dims), 1: last.reshape(dims)})
        rows, columns = ((span[0], span[1]) for span in spans)
        return PlaceReader(self.form, rows, columns, _Tables(), unreadable)

    def table(self, one: Instruction, along: Along, unreadable: set[Instruction]) -> Any:
        """Of each tile whether a pred holds everywhere in it, and whether it may hold anywhere."""
        shape = tuple(
            -(-self.form.count(axes) // step)
            for axes, step in ((self.form.rows, self.height), (self.form.columns, self.width))
        )
        found = self.reader(unreadable).read(one, along)
        assert found is not None, "of a pred something is known"
        return tuple(np.broadcast_to(np.asarray(part, dtype=bool), shape) for part in found)
