"""The shortest decimals that read back as the same values of a floating-point type, many at a time.

A decimal is read as f64 and rounded to the type.  So it is enough to find an f64 that rounds to the value and
has few digits: Python writes the shortest decimal of an f64.  Rounding to 1, 2, 3 ... digits is exact in f64
as long as the power of ten is (10**22 at most); values far from 1 are left to slower means.
"""

from __future__ import annotations

import math
from itertools import repeat
from typing import Any

import numpy as np

from hloopt.text.literals import largest, mantissa_bits
from hloopt.types import Array, DType

__all__ = ["decimals"]


_EXACT = 22  # 10**22 is the largest power of ten that f64 has
_TENS = 10.0 ** np.arange(_EXACT + 1)
_CHUNK = 1 << 18  # elements worked on at a time
_FEW = 32  # so many are quicker one by one
_TWO = math.log10(2)


def decimals(dtype: DType, values: Array) -> list[str]:
    """The texts of a flat array of a real type; a NaN is ``nan``, whatever its sign and payload."""
    if dtype.bits == 64:
        return list(map(repr, values.tolist()))
    texts: list[str] = []
    for start in range(0, len(values), _CHUNK):
        chunk = values[start : start + _CHUNK]
        if len(chunk) <= _FEW:
            with np.errstate(invalid="ignore"):  # signalling NaNs
                texts += map(_one, repeat(dtype), chunk, chunk.astype(np.float64).tolist())
            continue
        doubles, left = _shortest(dtype, chunk)
        found = list(map(repr, doubles.tolist()))
        for index in left.tolist():
            found[index] = _one(dtype, chunk[index], float(doubles[index]))
        texts += found
    return texts


def _shortest(dtype: DType, values: Array) -> tuple[Array, Array]:
    """The f64 to write for each value, and the indices of those for which there is none yet."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        doubles = values.astype(np.float64)
    sizes = np.abs(doubles)
    pending = np.flatnonzero((sizes > 0) & np.isfinite(sizes))
    exponents = np.floor(np.log10(sizes[pending])).astype(np.int64)
    most = math.ceil(1 + (mantissa_bits(dtype) + 1) * _TWO)
    near = (exponents > most - _EXACT) & (exponents < _EXACT)
    left = [pending[~near]]
    pending, exponents = pending[near], exponents[near]
    wide, wanted = doubles[pending], values[pending]
    for digits in range(_surely_kept(dtype), most + 2):
        rounded = _rounded(wide, digits - 1 - exponents)
        with np.errstate(over="ignore"):
            same = (rounded.astype(dtype.numpy) == wanted) & (np.abs(rounded) <= largest(dtype))
        doubles[pending[same]] = rounded[same]
        pending, exponents, wide, wanted = (
            array[~same] for array in (pending, exponents, wide, wanted)
        )
        if not len(pending):
            break
    left.append(pending)
    return doubles, np.concatenate(left)


def _surely_kept(dtype: DType) -> int:
    """So many digits no rounding to f32 loses: a decimal that has no more is found when rounding to them.

    Other types have too few values to care, and their smallest ones, which have fewer bits, do count.
    """
    return 6 if dtype.bits == 32 else 1


def _rounded(wide: Array, places: Array) -> Array:
    """Rounded to as many decimal places; negative ones are before the point."""
    up = _TENS[np.maximum(places, 0)]
    down = _TENS[np.maximum(-places, 0)]
    rounded: Array = np.rint(wide * up / down) / up * down
    return rounded


def _one(dtype: DType, value: Any, wide: float) -> str:
    if dtype.name == "f32":
        return repr(float(str(value)))  # NumPy has the digits, but its way to write them changes
    if not math.isfinite(wide):
        return repr(wide)
    limit = largest(dtype)
    for digits in range(1, 18):
        near = float(f"{wide:.{digits}g}")
        # Above the largest value the reader reports it, where NumPy may give the largest value.
        if abs(near) <= limit and np.array(near).astype(dtype.numpy) == value:
            return repr(near)
    return repr(wide)
