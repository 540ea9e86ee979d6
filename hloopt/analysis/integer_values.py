"""Bounds of integer and pred arithmetic, which wraps: a result that may wrap has the bounds of its type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import mul, rshift
from typing import Final, TypeAlias

from hloopt.analysis.value_range import ValueRange, anything
from hloopt.dataclass import dataclass
from hloopt.ops.traits import ELEMENTWISE, op_table
from hloopt.types import DType

__all__ = ["INTEGER_RULES", "integer_range"]

Rule: TypeAlias = Callable[..., "_Span | None"]
"""Of the element type and the range of each operand."""


@dataclass(frozen=True, slots=True)
class _Span:
    """Integers from ``low`` to ``high``."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class _Bits:
    """The element type: its width and limits; ``top`` is the value with all bits set, read unsigned."""

    bits: int
    low: int
    high: int
    is_signed: bool
    is_pred: bool

    @property
    def top(self) -> int:
        return (1 << self.bits) - 1


def integer_range(opcode: str, dtype: DType, operands: tuple[ValueRange, ...]) -> ValueRange:
    """Bounds of an elementwise op whose operands and result have one integer type (or pred)."""
    low, high = dtype.limits
    bits = _Bits(
        1 if dtype.is_pred else dtype.bits, low, high, dtype.kind == "signed", dtype.is_pred
    )
    spans = tuple(_Span(int(entry.low), int(entry.high)) for entry in operands)
    found = INTEGER_RULES[opcode](bits, *spans)
    if found is None or found.low < low or found.high > high:
        return anything(dtype)
    return ValueRange(found.low, found.high, whole=True)


def _corners(function: Callable[[int, int], int], a: _Span, b: _Span) -> _Span:
    """Of a function that is monotone in each argument while the other stays."""
    values = [function(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return _Span(min(values), max(values))


def _add(bits: _Bits, a: _Span, b: _Span) -> _Span | None:
    if bits.is_pred:  # or, which does not wrap
        return _maximum(bits, a, b)
    return _Span(a.low + b.low, a.high + b.high)


def _subtract(_: _Bits, a: _Span, b: _Span) -> _Span | None:
    return _Span(a.low - b.high, a.high - b.low)


def _multiply(_: _Bits, a: _Span, b: _Span) -> _Span | None:
    return _corners(mul, a, b)


def _truncated(x: int, y: int) -> int:
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


def _divide(_: _Bits, a: _Span, b: _Span) -> _Span | None:
    return _corners(_truncated, a, b) if b.low > 0 else None


def _remainder(_: _Bits, a: _Span, b: _Span) -> _Span | None:
    """Of the dividend's sign and no larger; below the divisor where that is positive."""
    if a.low >= 0 and a.high < b.low:
        return a
    low, high = min(a.low, 0), max(a.high, 0)
    if b.low > 0:
        low, high = max(low, 1 - b.high), min(high, b.high - 1)
    return _Span(low, high)


def _and(bits: _Bits, a: _Span, b: _Span) -> _Span | None:
    if bits.high == 1:
        return _Span(a.low & b.low, a.high & b.high)
    limits = [span.high for span in (a, b) if span.low >= 0]
    return _Span(0, min(limits)) if limits else None


def _or(_: _Bits, a: _Span, b: _Span) -> _Span | None:
    if a.low < 0 or b.low < 0:
        return None
    return _Span(max(a.low, b.low), (1 << max(a.high, b.high).bit_length()) - 1)


def _xor(_: _Bits, a: _Span, b: _Span) -> _Span | None:
    if a.low < 0 or b.low < 0:
        return None
    if a.low == a.high and b.low == b.high:
        return _Span(a.low ^ b.low, a.low ^ b.low)
    return _Span(0, (1 << max(a.high, b.high).bit_length()) - 1)


def _not(bits: _Bits, a: _Span) -> _Span | None:
    if bits.is_signed:
        return _Span(~a.high, ~a.low)
    return _Span(bits.top - a.high, bits.top - a.low)


def _amounts(bits: _Bits, amount: _Span) -> _Span:
    """Shift amounts as unsigned numbers, cut off at the width: no negative one is below it."""
    if amount.low < 0:
        return _Span(bits.bits if amount.high < 0 else 0, bits.bits)
    return _Span(min(amount.low, bits.bits), min(amount.high, bits.bits))


def _shift_left(bits: _Bits, a: _Span, by: _Span) -> _Span | None:
    amount = _amounts(bits, by)
    if a.low < 0 or a.high << amount.high > bits.high:
        return None
    return _Span(0 if amount.high == bits.bits else a.low << amount.low, a.high << amount.high)


def _shift_right_logical(bits: _Bits, a: _Span, by: _Span) -> _Span | None:
    amount = _amounts(bits, by)
    if a.low < 0:
        if amount.low == 0:
            return None
        a = _Span(0, bits.top)
    return _Span(a.low >> amount.high, a.high >> amount.low)


def _shift_right_arithmetic(bits: _Bits, a: _Span, by: _Span) -> _Span | None:
    if a.high >= 1 << (bits.bits - 1):
        return None
    return _corners(rshift, a, _amounts(bits, by))


def _count(bits: _Bits, _: _Span) -> _Span | None:
    return _Span(0, bits.bits)


def _abs(_: _Bits, a: _Span) -> _Span | None:
    largest = max(abs(a.low), abs(a.high))
    return _Span(0 if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high)), largest)


def _negate(_: _Bits, a: _Span) -> _Span | None:
    return _Span(-a.high, -a.low)


def _sign(_: _Bits, a: _Span) -> _Span | None:
    return _Span((a.low > 0) - (a.low < 0), (a.high > 0) - (a.high < 0))


def _maximum(_: _Bits, a: _Span, b: _Span) -> _Span:
    return _Span(max(a.low, b.low), max(a.high, b.high))


def _minimum(_: _Bits, a: _Span, b: _Span) -> _Span:
    return _Span(min(a.low, b.low), min(a.high, b.high))


def _clamp(bits: _Bits, least: _Span, a: _Span, greatest: _Span) -> _Span:
    return _minimum(bits, _maximum(bits, least, a), greatest)


INTEGER_RULES: Final[Mapping[str, Rule]] = op_table(
    {
        "abs": _abs,
        "add": _add,
        "and": _and,
        "clamp": _clamp,
        "count-leading-zeros": _count,
        "divide": _divide,
        "maximum": _maximum,
        "minimum": _minimum,
        "multiply": _multiply,
        "negate": _negate,
        "not": _not,
        "or": _or,
        "popcnt": _count,
        "remainder": _remainder,
        "shift-left": _shift_left,
        "shift-right-arithmetic": _shift_right_arithmetic,
        "shift-right-logical": _shift_right_logical,
        "sign": _sign,
        "subtract": _subtract,
        "xor": _xor,
    },
    ELEMENTWISE,
    "any integer",
)
