"""Functions of real numbers whose rules NumPy does not follow by itself."""

from __future__ import annotations

import numpy as np

from hloopt.ops._steady import STEADY
from hloopt.ops.opdef import ScalarArgs
from hloopt.types import Array

__all__ = [
    "logistic",
    "maximum",
    "minimum",
    "round_away",
    "rsqrt",
    "sign",
]


_exp = STEADY["exponential"]


def maximum(args: ScalarArgs, x: Array, y: Array) -> Array:
    """The first NaN, else the larger; +0 is larger than -0 (IEEE 754-2019 ``maximum``)."""
    return _ordered_zeros(np.maximum, np.bitwise_and, x, y)


def minimum(args: ScalarArgs, x: Array, y: Array) -> Array:
    """The first NaN, else the smaller; -0 is smaller than +0 (IEEE 754-2019 ``minimum``)."""
    return _ordered_zeros(np.minimum, np.bitwise_or, x, y)


def _ordered_zeros(extremum: np.ufunc, combine: np.ufunc, x: Array, y: Array) -> Array:
    """NumPy's extremum, which may take either of two zeros.

    Equal numbers have equal bits but for the sign of zeros, so that ``combine`` of the bits is the one wanted.
    """
    result = np.asarray(extremum(x, y))
    tied = np.asarray(np.equal(x, y))
    if tied.any():
        bits = np.dtype(f"u{result.itemsize}")
        chosen = combine(np.asarray(x).view(bits), np.asarray(y).view(bits))
        np.copyto(result.view(bits), chosen, where=tied)
    return result


def sign(args: ScalarArgs, x: Array) -> Array:
    """-1, 1, or a zero or NaN with the sign of ``x``."""
    return np.where(np.isnan(x), x, np.copysign((x != 0).astype(x.dtype), x))


def round_away(args: ScalarArgs, x: Array) -> Array:
    """To the nearest integer, halves away from zero.  ``x - trunc(x)`` is exact."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(x.dtype.type(1), x), whole)


def logistic(args: ScalarArgs, x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow: below 0, exp(x) / (1 + exp(x))."""
    wide = x.astype(np.float64)
    power = _exp(-np.abs(wide))
    return (np.where(wide < 0, power, 1.0) / (1.0 + power)).astype(x.dtype, copy=False)


def rsqrt(args: ScalarArgs, x: Array) -> Array:
    """1 / sqrt(x)."""
    return (1.0 / np.sqrt(x.astype(np.float64))).astype(x.dtype, copy=False)
