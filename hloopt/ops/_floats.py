"""Functions of real numbers whose rules NumPy does not follow by itself, or not everywhere.

NumPy has several loops for one function, chosen by strides, length and processor, that differ in the
last bits: a reversed view, a constant exponent or an array of one element may give other digits than
the same element inside a long array.  A steady function always takes the same loop: its operands
are contiguous, and f32 and c64 are computed in f64 and c128 and rounded once, which also makes them
correctly rounded but for ties closer than 1e-8 ulp (NumPy's own f32 loops err by up to 4 ulp).
f64 results are within 1.1 ulp.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hloopt.ops.opdef import ScalarArgs
from hloopt.types import Array

__all__ = ["STEADY", "logistic", "maximum", "minimum", "round_away", "rsqrt", "sign", "steady"]

_WIDER = {
    np.dtype(np.float32): np.dtype(np.float64),
    np.dtype(np.complex64): np.dtype(np.complex128),
}


def steady(ufunc: np.ufunc) -> Callable[..., Array]:
    """``ufunc`` of arrays of one float or complex type, which broadcast; takes ``out=`` as it does."""
    return _steady_pair(ufunc) if ufunc.nin == 2 else _steady_one(ufunc)


def _steady_one(ufunc: np.ufunc) -> Callable[..., Array]:
    def apply(operand: Array, out: Array | None = None) -> Array:
        array = np.asarray(operand)
        kind = array.dtype
        wide = _WIDER.get(kind)
        if wide is None:
            return np.asarray(ufunc(_whole(array, array.shape), out=out))
        result = np.empty(array.shape, kind) if out is None else out
        # What NumPy casts on the way passes through small contiguous buffers.
        ufunc(array, out=result, dtype=wide, casting="same_kind")
        return result

    return apply


def _steady_pair(ufunc: np.ufunc) -> Callable[..., Array]:
    def apply(left: Array, right: Array, out: Array | None = None) -> Array:
        x, y = np.asarray(left), np.asarray(right)
        dims = x.shape if x.shape == y.shape else np.broadcast_shapes(x.shape, y.shape)
        x, y = _whole(x, dims), _whole(y, dims)
        kind = x.dtype
        wide = _WIDER.get(kind, kind)
        result = np.empty(dims, kind) if out is None else out
        if result.size == 1:
            # A single element's stride is 0, in which NumPy sees a constant exponent.
            twice = ufunc(np.repeat(x.reshape(-1), 2), np.repeat(y.reshape(-1), 2), dtype=wide)
            result[...] = twice[:1].reshape(dims)
        else:
            ufunc(x, y, out=result, dtype=wide, casting="same_kind")
        return result

    return apply


def _whole(array: Array, dims: tuple[int, ...]) -> Array:
    if array.shape == dims and array.flags.c_contiguous:
        return array
    whole = np.empty(dims, array.dtype)
    whole[...] = array
    return whole


_quick_cbrt = _steady_one(np.cbrt)


def _cbrt(operand: Array, out: Array | None = None) -> Array:
    """The cube root; of f64 with one step of Newton's method, as C's errs by 3 ulp on some systems."""
    x = np.asarray(operand)
    if x.dtype != np.float64:
        return _quick_cbrt(x, out)
    mantissa, exponent = np.frexp(x)
    third, rest = np.divmod(exponent, 3)
    scaled = np.ldexp(mantissa, rest)
    root = _quick_cbrt(scaled)
    square, square_below = _product(root, root)
    cube, cube_below = _product(square, root)
    excess = (cube - scaled) + (cube_below + square_below * root)
    found = np.ldexp(root - excess / (3.0 * square), third)
    found = np.where(np.isfinite(x) & (x != 0), found, x)
    if out is None:
        return found
    out[...] = found
    return out


def _product(a: Array, b: Array) -> tuple[Array, Array]:
    """The product and what is rounded off it, exactly: Dekker's, of factors far from the ends of the range."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    below = a_high * b_high - product + a_high * b_low + a_low * b_high + a_low * b_low
    return product, below


def _halves(a: Array) -> tuple[Array, Array]:
    """Two numbers of 26 bits with the sum ``a`` (Veltkamp)."""
    large = a * 134217729.0
    high = large - (large - a)
    return high, a - high


STEADY = {
    "acos": steady(np.arccos),
    "acosh": steady(np.arccosh),
    "asin": steady(np.arcsin),
    "asinh": steady(np.arcsinh),
    "atan2": steady(np.arctan2),
    "atanh": steady(np.arctanh),
    "cbrt": _cbrt,
    "cosh": steady(np.cosh),
    "cosine": steady(np.cos),
    "exponential": steady(np.exp),
    "exponential-minus-one": steady(np.expm1),
    "log": steady(np.log),
    "log-plus-one": steady(np.log1p),
    "power": steady(np.power),
    "sine": steady(np.sin),
    "sinh": steady(np.sinh),
    "tan": steady(np.tan),
    "tanh": steady(np.tanh),
}
"""By opcode, the functions of real numbers of which NumPy has more than one loop."""


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
