"""Numbers moved by amounts that follow from their own bits: what ``rounding`` moves results by.

A way to round has a number.  That of a negative number moves everything several times as far (``farther``), as
far as the judge allows an element that moves in proportion: what rounding alone decides then shows in few ways.
"""

from __future__ import annotations

from typing import Final

import ml_dtypes
import numpy as np

from hloopt.types import Array, DType, of_numpy
from hloopt.types import rounded as to_type

__all__ = ["FLUSHED", "farther", "nudged", "smeared", "unit_roundoff"]

_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_OTHER: Final = np.uint64(0xBF58476D1CE4E5B9)
_ONE: Final = np.uint64(1)

_AT_ONCE: Final = 1 << 14
"""Elements that are moved together: what is made of them stays in a cache."""


def farther(kind: DType, seed: int) -> int:
    """How many times as far as other ways to round the way of a number moves floats of a type."""
    if seed >= 0:
        return 1
    return 4 if kind.is_float and kind.bits <= 16 else 8


def _drawn(array: Array, seed: int) -> Array:
    """64 random bits for each element, by its own bits."""
    size = array.dtype.itemsize
    mixed: Array = np.asarray(array, order="C").view(f"u{size}").astype(np.uint64)
    mixed += np.uint64(abs(seed))
    mixed *= _ODD
    mixed ^= mixed >> np.uint64(29)
    mixed *= _OTHER
    mixed ^= mixed >> np.uint64(32)
    return mixed


def _between(array: Array, seed: int) -> Array:
    """Numbers from -1 to 1 in f64."""
    signed: Array = _drawn(array, seed).view(np.int64).astype(np.float64)
    return signed * 2.0**-63


def unit_roundoff(kind: DType) -> float:
    """Half the distance from 1 to the next number of a float type, or of a complex type's parts."""
    return float(ml_dtypes.finfo(kind.numpy).eps) / 2  # type: ignore[no-untyped-call]


def smeared(array: Array, amount: Array | float, seed: int) -> Array:
    """Each element moved by at most ``amount``, which may be an array; what is not finite stays."""
    if np.iscomplexobj(array):
        return np.asarray(
            smeared(array.real, amount, seed)
            + 1j * smeared(array.imag, amount, seed - 1 if seed < 0 else seed + 1),
            array.dtype,
        )
    wide = array.astype(np.float64)
    amount = amount * farther(of_numpy(array.dtype), seed)
    result = to_type(wide + _between(array, seed) * amount, array.dtype)
    kept = ~np.isfinite(wide) | ~np.isfinite(result.astype(np.float64))
    return np.asarray(np.where(kept, array, result))


def nudged(array: Array, seed: int) -> Array:
    """Each element a unit in the last place up or down, or two: never to another sign, zero or infinity."""
    kind = of_numpy(array.dtype)
    if kind.is_complex:
        return smeared(array, 2 * unit_roundoff(kind) * np.abs(array).astype(np.float64), seed)
    if kind.name == "f8e8m0fnu":  # powers of two: a unit is a factor
        return array
    result = np.empty(array.shape, array.dtype)
    flat, moved = np.asarray(array, order="C").reshape(-1), result.reshape(-1)
    for start in range(0, flat.size, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        moved[part] = _nudged(flat[part], kind, seed)
    return result


def _nudged(array: Array, kind: DType, seed: int) -> Array:
    code = f"u{array.dtype.itemsize}"
    bits = array.view(code).astype(np.uint64)
    sign = np.uint64(1 << (kind.bits - 1))
    magnitude = bits & (sign - _ONE)
    drawn = _drawn(array, seed)
    units = ((drawn & _ONE) << _ONE) - _ONE  # -1 is the number below 2**64
    if kind.bits >= 32:
        units *= np.uint64(2) - (drawn >> _ONE & _ONE)
    times = farther(kind, seed)
    if times > 1:
        units *= _ONE + (drawn >> np.uint64(2) & np.uint64(times - 1))
    most = np.array([ml_dtypes.finfo(array.dtype).max], array.dtype)  # type: ignore[no-untyped-call]
    last = int(most.view(code)[0])
    units *= (magnitude > 2 * times) & (magnitude < np.uint64(last - 2 * times + 1))
    bits &= sign
    bits |= magnitude + units
    result = np.asarray(bits.astype(code).view(array.dtype))
    return _flushed(array, result, seed) if kind.name in FLUSHED else result


FLUSHED: Final = frozenset({"bf16", "f32", "f64"})
"""Types of which devices may have no numbers below the least normal one."""


def _flushed(array: Array, result: Array, seed: int) -> Array:
    """Below the least normal number a device may give zero, or that number: anything between."""
    least = np.asarray(ml_dtypes.finfo(array.dtype).tiny, array.dtype)  # type: ignore[no-untyped-call]
    small = (np.abs(array) < least) & (array != 0)
    if not small.any():
        return result
    drawn = np.abs(_between(array, seed)) * np.float64(least)
    return np.asarray(np.where(small, np.copysign(drawn.astype(array.dtype), array), result))
