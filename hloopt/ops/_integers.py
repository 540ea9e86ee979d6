"""Integer arithmetic as HLO defines it: wrapping, truncating, and total (no operand is undefined).

Functions take arrays in storage types.  ``integer`` widens elements narrower than a byte to 8 bits and
back, which wraps; the width that an op sees is always the element's own.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from hloopt.ops.opdef import ScalarArgs
from hloopt.types import Array

__all__ = [
    "count_leading_zeros",
    "divide",
    "integer",
    "invert",
    "multiply_high",
    "population_count",
    "power",
    "remainder",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
]

Function = Callable[..., Array]

_WIDER = {
    np.dtype(narrow): np.dtype(wide)
    for narrow, wide in (
        (ml_dtypes.int1, np.int8),
        (ml_dtypes.int2, np.int8),
        (ml_dtypes.int4, np.int8),
        (ml_dtypes.uint1, np.uint8),
        (ml_dtypes.uint2, np.uint8),
        (ml_dtypes.uint4, np.uint8),
    )
}


def integer(function: Function) -> Function:
    """Run ``function(args, *arrays)`` on byte-wide elements where the storage type is narrower."""

    def widened(args: ScalarArgs, *arrays: Array) -> Array:
        narrow = arrays[0].dtype
        wide = _WIDER.get(narrow)
        if wide is None:
            return function(args, *arrays)
        result = function(args, *(array.astype(_WIDER[array.dtype]) for array in arrays))
        return result.astype(narrow) if result.dtype == wide else result

    return widened


def _is_signed(array: Array) -> bool:
    return bool(array.dtype.kind == "i")


def _unsigned(array: Array) -> Array:
    """The same bits as an unsigned number."""
    return array.astype(np.dtype(f"u{array.dtype.itemsize}"))


def _own_bits(args: ScalarArgs, array: Array) -> Array:
    """The element's own bits as an unsigned number: a widened s4 loses its sign extension."""
    bits = _unsigned(array)
    if args.operand.bits < 8:
        bits = bits & bits.dtype.type((1 << args.operand.bits) - 1)
    return bits


def divide(args: ScalarArgs, x: Array, y: Array) -> Array:
    """Truncating; ``x / 0`` has all bits set (-1), the least number over -1 is itself."""
    zero = y == 0
    one = y.dtype.type(1)
    if not _is_signed(x):
        return np.where(
            zero, np.invert(np.zeros_like(y)), np.floor_divide(x, np.where(zero, one, y))
        )
    minus = y == -1
    safe = np.where(zero | minus, one, y)
    quotient = np.floor_divide(x - np.fmod(x, safe), safe)
    return np.where(zero, y.dtype.type(-1), np.where(minus, np.negative(x), quotient))


def remainder(args: ScalarArgs, x: Array, y: Array) -> Array:
    """The sign of the dividend; ``x % 0`` is ``x``."""
    zero = y == 0
    one = y.dtype.type(1)
    # Over -1 the rest is 0 as over 1, without the overflow of the least number.
    safe = np.where(zero, one, y)
    if _is_signed(y):
        safe = np.where(safe == -1, one, safe)
    return np.where(zero, x, np.fmod(x, safe))


def power(args: ScalarArgs, x: Array, y: Array) -> Array:
    """By squaring, wrapping; a negative exponent gives 0, except for the bases 1 and -1."""
    x, y = np.broadcast_arrays(x, y)
    signed = _is_signed(x)
    exponent = _unsigned(y)
    negative = y < 0 if signed else np.zeros(y.shape, np.bool_)
    left = np.where(negative, exponent.dtype.type(0), exponent)
    base = _unsigned(x)
    result = np.ones_like(base)
    while left.any():
        result = np.where(left & 1, result * base, result)
        base = base * base
        left = left >> exponent.dtype.type(1)
    result = result.astype(x.dtype)
    if not signed:
        return result
    inverse = np.where(x == 1, 1, np.where(x == -1, np.where(y & 1, -1, 1), 0)).astype(x.dtype)
    return np.where(negative, inverse, result)


def multiply_high(args: ScalarArgs, x: Array, y: Array) -> Array:
    """The upper half of the product in double width."""
    bits = args.operand.bits
    if bits <= 32:
        wide = np.dtype(np.int64 if _is_signed(x) else np.uint64)
        product = x.astype(wide) * y.astype(wide)
        return np.right_shift(product, wide.type(bits)).astype(x.dtype)
    return _multiply_high_64(x, y)


def _multiply_high_64(x: Array, y: Array) -> Array:
    """By halves of 32 bits; signed operands correct the unsigned product."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a, b = _unsigned(x), _unsigned(y)
    a_low, a_high, b_low, b_high = a & low, a >> half, b & low, b >> half
    middle = a_high * b_low + (a_low * b_low >> half)
    carry = (middle & low) + a_low * b_high
    high: Array = a_high * b_high + (middle >> half) + (carry >> half)
    if not _is_signed(x):
        return high
    zero = np.uint64(0)
    high = high - np.where(x < 0, b, zero) - np.where(y < 0, a, zero)
    return high.astype(x.dtype)


def _amount(args: ScalarArgs, y: Array) -> tuple[Array, Array]:
    """The shift amount, and where it is at least the width (negative amounts are huge)."""
    amount = _own_bits(args, y)
    beyond = amount >= args.operand.bits
    return np.where(beyond, amount.dtype.type(0), amount), beyond


def shift_left(args: ScalarArgs, x: Array, y: Array) -> Array:
    """Zeros come in; an amount not below the width gives 0."""
    amount, beyond = _amount(args, y)
    shifted = np.left_shift(_unsigned(x), amount)
    return np.where(beyond, shifted.dtype.type(0), shifted).astype(x.dtype)


def shift_right_logical(args: ScalarArgs, x: Array, y: Array) -> Array:
    """Zeros come in; an amount not below the width gives 0."""
    amount, beyond = _amount(args, y)
    shifted = np.right_shift(_own_bits(args, x), amount)
    return np.where(beyond, shifted.dtype.type(0), shifted).astype(x.dtype)


def shift_right_arithmetic(args: ScalarArgs, x: Array, y: Array) -> Array:
    """Copies of the sign come in; for an unsigned type the uppermost bit is the sign."""
    amount, beyond = _amount(args, y)
    bits = args.operand.bits
    # Lifted to the top of the byte, the element's own sign bit is NumPy's.
    lift = x.dtype.itemsize * 8 - bits
    lifted = (_own_bits(args, x) << np.uint8(lift)).astype(np.dtype(f"i{x.dtype.itemsize}"))
    count = np.where(beyond, amount.dtype.type(bits - 1), amount).astype(lifted.dtype)
    spread = np.right_shift(lifted, count)
    result: Array = np.right_shift(spread, lifted.dtype.type(lift))
    return result.astype(x.dtype)


def population_count(args: ScalarArgs, x: Array) -> Array:
    """The number of bits set."""
    return np.bitwise_count(_own_bits(args, x)).astype(x.dtype)


def count_leading_zeros(args: ScalarArgs, x: Array) -> Array:
    """The number of zeros above the uppermost bit set; the width for 0."""
    rest = _own_bits(args, x).astype(np.uint64)
    length = np.zeros(x.shape, np.uint64)
    for step in (32, 16, 8, 4, 2, 1):
        upper = rest >> np.uint64(step)
        high = upper != 0
        length += np.where(high, np.uint64(step), np.uint64(0))
        rest = np.where(high, upper, rest)
    length += rest
    return (np.uint64(args.operand.bits) - length).astype(x.dtype)


def invert(args: ScalarArgs, x: Array) -> Array:
    """All bits inverted; logical for pred."""
    return np.invert(x)
