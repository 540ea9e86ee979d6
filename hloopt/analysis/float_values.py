"""Bounds of floating-point arithmetic, and whether NaN or -0.0 can come out of it.

Rounding is monotone: if x <= y, then x rounded is no more than y rounded.  So the bounds of a sum are the
sums of the bounds, computed and rounded as the op itself does.  Of the functions without such a
property (exponential, tanh ...) only what no implementation breaks is claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, isnan
from typing import Final, TypeAlias

import numpy as np

from hloopt.analysis.value_range import UNKNOWN, ValueRange
from hloopt.ops.traits import ELEMENTWISE, WITHIN_ONE, op_table
from hloopt.types import DType, rounded

__all__ = ["FLOAT_RULES", "after_rounding", "rounded_to", "square"]

Rule: TypeAlias = Callable[..., ValueRange]
"""Of the element type and the range of each operand."""


def rounded_to(value: float, dtype: DType) -> float:
    """An integer or float as ``convert`` has it: by way of the compute type."""
    with np.errstate(all="ignore"):
        return float(rounded(np.asarray(value).astype(dtype.compute), dtype.numpy))


def _computed(function: Callable[..., object], dtype: DType, *numbers: float) -> float:
    """One number by the op itself: in the compute type, then rounded; NaN stands for no bound."""
    with np.errstate(all="ignore"):
        operands = [dtype.compute.type(number) for number in numbers]
        return float(rounded(np.asarray(function(*operands)), dtype.numpy))


def after_rounding(source: ValueRange, dtype: DType) -> ValueRange:
    """The range after one rounding to ``dtype``: bounds rounded, and what is tiny and negative is -0.0."""
    return ValueRange(
        rounded_to(source.low, dtype),
        rounded_to(source.high, dtype),
        source.nan,
        source.negative_zero or (source.low < 0 and not source.whole),
        source.whole,
    )


def _or_low(value: float) -> float:
    return -inf if isnan(value) else value


def _or_high(value: float) -> float:
    return inf if isnan(value) else value


def _add(dtype: DType, a: ValueRange, b: ValueRange) -> ValueRange:
    """-0.0 only of two; NaN of two infinities.  No sum is rounded to zero."""
    opposite = (a.high == inf and b.low == -inf) or (a.low == -inf and b.high == inf)
    return ValueRange(
        _or_low(_computed(np.add, dtype, a.low, b.low)),
        _or_high(_computed(np.add, dtype, a.high, b.high)),
        a.nan or b.nan or opposite,
        a.negative_zero and b.negative_zero,
        a.whole and b.whole,
    )


def _subtract(dtype: DType, a: ValueRange, b: ValueRange) -> ValueRange:
    return _add(dtype, a, _negate(dtype, b))


def _mixed_signs(a: ValueRange, b: ValueRange) -> bool:
    """Whether a product or quotient may be of two signs: then it may be, or be rounded to, -0.0."""
    return (a.has_sign and b.has_no_sign) or (a.has_no_sign and b.has_sign)


def _multiply(dtype: DType, a: ValueRange, b: ValueRange) -> ValueRange:
    zero_by_infinity = (a.has_zero and b.may_be_infinite) or (a.may_be_infinite and b.has_zero)
    # Zero by infinity is NaN there, and beside it are zeros: 0 bounds them.
    values = [0.0 if isnan(value) else value for value in _corners(np.multiply, dtype, a, b)]
    nan = a.nan or b.nan or zero_by_infinity
    return ValueRange(min(values), max(values), nan, _mixed_signs(a, b), a.whole and b.whole)


def _corners(
    function: Callable[..., object], dtype: DType, a: ValueRange, b: ValueRange
) -> list[float]:
    """Of a function that is monotone in each operand while the other stays."""
    return [_computed(function, dtype, x, y) for x in (a.low, a.high) for y in (b.low, b.high)]


def square(dtype: DType, operand: ValueRange) -> ValueRange:
    """``x * x``: never negative, and NaN only for NaN."""
    furthest = max(abs(operand.low), abs(operand.high))
    least = 0.0 if operand.has_zero else min(abs(operand.low), abs(operand.high))
    return ValueRange(
        _computed(np.multiply, dtype, least, least),
        _computed(np.multiply, dtype, furthest, furthest),
        operand.nan,
        whole=operand.whole,
    )


def _divide(dtype: DType, a: ValueRange, b: ValueRange) -> ValueRange:
    nan = a.nan or b.nan or (a.has_zero and b.has_zero) or (a.may_be_infinite and b.may_be_infinite)
    mixed = _mixed_signs(a, b)
    if b.low > 0:
        corners = _corners(np.divide, dtype, a, b)
        low, high = min(map(_or_low, corners)), max(map(_or_high, corners))
        if a.low >= 0:
            low = max(low, 0.0)
        return ValueRange(low, high, nan, mixed)
    if not (a.has_sign or b.has_sign):
        return ValueRange(0.0, inf, nan)
    return ValueRange(-inf, inf, nan, mixed)


def _remainder(_: DType, a: ValueRange, b: ValueRange) -> ValueRange:
    """Of the dividend's sign and no larger; exact."""
    return ValueRange(
        min(a.low, 0.0),
        max(a.high, 0.0),
        a.nan or b.nan or a.may_be_infinite or b.has_zero,
        a.has_sign,
        a.whole and b.whole,
    )


def _negate(_: DType, a: ValueRange) -> ValueRange:
    return ValueRange(-a.high, -a.low, a.nan, a.has_zero, a.whole)


def _abs(_: DType, a: ValueRange) -> ValueRange:
    low = 0.0 if a.has_zero else min(abs(a.low), abs(a.high))
    return ValueRange(low, max(abs(a.low), abs(a.high)), a.nan, whole=a.whole)


def _sign(_: DType, a: ValueRange) -> ValueRange:
    low = -1.0 if a.low < 0 else float(a.low > 0)
    high = 1.0 if a.high > 0 else -float(a.high < 0)
    return ValueRange(low, high, a.nan, a.negative_zero, whole=True)


def _maximum(_: DType, a: ValueRange, b: ValueRange) -> ValueRange:
    zero = (a.negative_zero and b.has_sign) or (b.negative_zero and a.has_sign)
    return ValueRange(
        max(a.low, b.low), max(a.high, b.high), a.nan or b.nan, zero, a.whole and b.whole
    )


def _minimum(_: DType, a: ValueRange, b: ValueRange) -> ValueRange:
    return ValueRange(
        min(a.low, b.low),
        min(a.high, b.high),
        a.nan or b.nan,
        a.negative_zero or b.negative_zero,
        a.whole and b.whole,
    )


def _clamp(dtype: DType, least: ValueRange, a: ValueRange, greatest: ValueRange) -> ValueRange:
    return _minimum(dtype, _maximum(dtype, least, a), greatest)


def _rounding(down: Callable[..., object], up: Callable[..., object]) -> Rule:
    """By functions that give no more, and no less, than the op."""

    def rule(dtype: DType, a: ValueRange) -> ValueRange:
        low, high = _computed(down, dtype, a.low), _computed(up, dtype, a.high)
        return ValueRange(low, high, a.nan, a.has_sign, whole=True)

    return rule


def _within(low: float, high: float) -> Rule:
    """Whatever the operand is; only a NaN gives NaN."""
    return lambda _, a: ValueRange(low, high, a.nan)


def _tanh(_: DType, a: ValueRange) -> ValueRange:
    low = 0.0 if a.low >= 0 else -1.0
    return ValueRange(low, 1.0, a.nan, a.has_sign)


def _growth(_: DType, a: ValueRange) -> ValueRange:
    """``exp(x) - 1``: of the sign of x."""
    return ValueRange(0.0 if a.low >= 0 else -1.0, inf, a.nan, a.has_sign)


def _log_plus_one(_: DType, a: ValueRange) -> ValueRange:
    """Of the sign of x, and no larger."""
    low, high = (0.0 if a.low >= 0 else -inf), max(a.high, 0.0)
    return ValueRange(low, high, a.nan or a.low < -1, a.has_sign)


def _cube_root(_: DType, a: ValueRange) -> ValueRange:
    """Of the sign of x; no larger in size than the larger of x and 1."""
    low = 0.0 if a.low >= 0 else min(a.low, -1.0)
    high = max(a.high, 1.0)
    return ValueRange(low, high, a.nan, a.has_sign)


def _angle(_: DType, a: ValueRange, b: ValueRange) -> ValueRange:
    """Within half a turn either way, which is less than 4."""
    return ValueRange(-4.0, 4.0, a.nan or b.nan, negative_zero=True)


def _wave(_: DType, a: ValueRange) -> ValueRange:
    return ValueRange(-1.0, 1.0, a.nan or a.may_be_infinite, negative_zero=True)


def _sqrt(_: DType, a: ValueRange) -> ValueRange:
    return ValueRange(0.0, max(a.high, 1.0), a.nan or a.low < 0, a.negative_zero)


def _rsqrt(dtype: DType, a: ValueRange) -> ValueRange:
    """Twice the root of a positive lower bound's reciprocal is above any rounding."""
    if a.negative_zero:
        return ValueRange(-inf, inf, a.nan or a.low < 0)
    high = rounded_to(2.0 / float(np.sqrt(a.low)), dtype) if a.low > 0 else inf
    return ValueRange(0.0, high, a.nan or a.low < 0)


def _log(_: DType, a: ValueRange) -> ValueRange:
    return ValueRange(-inf, inf, a.nan or a.low < 0, negative_zero=True)


def _power(_: DType, a: ValueRange, b: ValueRange) -> ValueRange:
    """A base without a sign gives a power without one; only a NaN gives NaN."""
    if not a.has_sign:
        return ValueRange(0.0, inf, a.nan or b.nan)
    return UNKNOWN


FLOAT_RULES: Final[Mapping[str, Rule]] = op_table(
    {
        **dict.fromkeys(WITHIN_ONE, _wave),
        "abs": _abs,
        "add": _add,
        "atan2": _angle,
        "cbrt": _cube_root,
        "ceil": _rounding(np.ceil, np.ceil),
        "clamp": _clamp,
        "cosh": _within(1.0, inf),
        "divide": _divide,
        "erf": _tanh,
        "exponential": _within(0.0, inf),
        "exponential-minus-one": _growth,
        "floor": _rounding(np.floor, np.floor),
        "log": _log,
        "log-plus-one": _log_plus_one,
        "logistic": _within(0.0, 1.0),
        "maximum": _maximum,
        "minimum": _minimum,
        "multiply": _multiply,
        "negate": _negate,
        "power": _power,
        "remainder": _remainder,
        "round-nearest-afz": _rounding(np.floor, np.ceil),
        "round-nearest-even": _rounding(np.rint, np.rint),
        "rsqrt": _rsqrt,
        "sign": _sign,
        "sqrt": _sqrt,
        "subtract": _subtract,
        "tanh": _tanh,
    },
    ELEMENTWISE,
    "any float",
)
