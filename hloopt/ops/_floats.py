"""Floating-point and complex functions whose rules NumPy does not follow by itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloopt.ops.opdef import ScalarArgs

__all__ = [
    "atan2",
    "cbrt",
    "divide",
    "expm1",
    "log1p",
    "logistic",
    "make_complex",
    "maximum",
    "minimum",
    "power",
    "round_away",
    "rsqrt",
    "sign",
]

Array = np.ndarray[Any, Any]


def maximum(args: ScalarArgs, x: Array, y: Array) -> Array:
    """The first NaN, else the larger; +0 is larger than -0 (IEEE 754-2019 ``maximum``)."""
    larger = np.where((x > y) | ((x == y) & ~np.signbit(x)), x, y)
    return np.where(np.isnan(x), x, larger)


def minimum(args: ScalarArgs, x: Array, y: Array) -> Array:
    """The first NaN, else the smaller; -0 is smaller than +0 (IEEE 754-2019 ``minimum``)."""
    smaller = np.where((x < y) | ((x == y) & np.signbit(x)), x, y)
    return np.where(np.isnan(x), x, smaller)


def divide(args: ScalarArgs, x: Array, y: Array) -> Array:
    """The quotient; complex infinities and zeros as in C (Annex G), where NumPy gives NaN."""
    quotient = np.asarray(np.divide(x, y))
    if quotient.dtype.kind != "c":
        return quotient
    broken = np.isnan(quotient.real) & np.isnan(quotient.imag)
    if not broken.any():
        return quotient
    a, b, c, d = (np.asarray(part) for part in (x.real, x.imag, y.real, y.imag))
    infinite_x, infinite_y = np.isinf(a) | np.isinf(b), np.isinf(c) | np.isinf(d)
    finite_x, finite_y = np.isfinite(a) & np.isfinite(b), np.isfinite(c) & np.isfinite(d)
    large = np.copysign(a.dtype.type(np.inf), c)
    rules = (
        ((c == 0) & (d == 0), large * a, large * b),
        (infinite_x & finite_y, *_scaled(np.inf, _boxed(a), _boxed(b), c, d)),
        (infinite_y & finite_x, *_scaled(0.0, a, b, _boxed(c), _boxed(d))),
    )
    real, imag = quotient.real, quotient.imag
    for applies, other_real, other_imag in reversed(rules):
        real = np.where(broken & applies, other_real, real)
        imag = np.where(broken & applies, other_imag, imag)
    return _parts(real, imag, quotient.dtype)


def _boxed(part: Array) -> Array:
    """1 for infinite parts and 0 for all others, with their signs."""
    infinite = np.isinf(part).astype(part.dtype)
    return np.asarray(np.copysign(infinite, part))


def _scaled(scale: float, a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
    """The parts of (a + bi) / (c + di) but for a positive factor, times ``scale``."""
    factor = a.dtype.type(scale)
    return np.asarray(factor * (a * c + b * d)), np.asarray(factor * (b * c - a * d))


def sign(args: ScalarArgs, x: Array) -> Array:
    """-1, 1, a zero or NaN of its own sign; for complex numbers the direction."""
    if x.dtype.kind == "c":
        size = np.abs(x)
        return np.where(
            size == 0, x.dtype.type(0), x / np.where(size == 0, size.dtype.type(1), size)
        )
    return np.where(np.isnan(x), x, np.copysign((x != 0).astype(x.dtype), x))


def round_away(args: ScalarArgs, x: Array) -> Array:
    """To the nearest integer, halves away from zero.  ``x - trunc(x)`` is exact."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(x.dtype.type(1), x), whole)


def logistic(args: ScalarArgs, x: Array) -> Array:
    """1 / (1 + exp(-x)); 0 where exp overflows."""
    one = x.dtype.type(1)
    return divide(args, np.full_like(x, one), np.asarray(one + np.exp(-x)))


def rsqrt(args: ScalarArgs, x: Array) -> Array:
    """1 / sqrt(x)."""
    return divide(args, np.ones_like(x), np.sqrt(x))


def cbrt(args: ScalarArgs, x: Array) -> Array:
    """The cube root, of the argument's sign; the principal one of complex numbers."""
    if x.dtype.kind == "c":
        return np.asarray(np.power(x, x.dtype.type(1.0 / 3.0)))
    return np.cbrt(x)


def _wider(x: Array) -> Array:
    return x.astype(np.complex128 if x.dtype == np.complex64 else np.clongdouble)


def expm1(args: ScalarArgs, x: Array) -> Array:
    """exp(x) - 1; exact near 0 for complex numbers too."""
    if x.dtype.kind != "c":
        return np.expm1(x)
    z = _wider(x)
    half = np.sin(z.imag / 2)
    real = np.expm1(z.real) * np.cos(z.imag) - 2 * half * half
    imag = np.where(z.imag == 0, z.imag, np.exp(z.real) * np.sin(z.imag))
    return _parts(real, imag, x.dtype)


def log1p(args: ScalarArgs, x: Array) -> Array:
    """log(1 + x); exact near 0 for complex numbers too."""
    if x.dtype.kind != "c":
        return np.log1p(x)
    z = _wider(x)
    near = np.log1p(z.real * (2 + z.real) + z.imag * z.imag) / 2
    far = np.log(np.hypot(1 + z.real, z.imag))
    real = np.where(np.abs(z) < 0.5, near, far)
    return _parts(real, np.arctan2(z.imag, 1 + z.real), x.dtype)


def _parts(real: Array, imag: Array, kind: np.dtype[Any]) -> Array:
    """A complex array from its parts; ``real + 1j * imag`` would mix infinities into NaN."""
    result = np.empty(np.broadcast_shapes(real.shape, imag.shape), kind)
    result.real = real
    result.imag = imag
    return result


def make_complex(args: ScalarArgs, real: Array, imag: Array) -> Array:
    """A complex number from its parts."""
    return _parts(real, imag, args.result.numpy)


def atan2(args: ScalarArgs, y: Array, x: Array) -> Array:
    """The angle of (x, y); for complex numbers -i log((x + iy) / sqrt(x^2 + y^2))."""
    if x.dtype.kind != "c":
        return np.arctan2(y, x)
    i = x.dtype.type(1j)
    return np.asarray(-i * np.log((x + i * y) / np.sqrt(x * x + y * y)))


def power(args: ScalarArgs, x: Array, y: Array) -> Array:
    """C's pow: 1 for base 1 or exponent 0, even of NaN.  An infinite complex base gives 0 or inf."""
    value = np.power(x, y)
    if x.dtype.kind != "c":
        return value
    infinite = np.isposinf(x.real) & (x.imag == 0) & (y.imag == 0)
    limit = np.where(y.real > 0, x.dtype.type(np.inf), x.dtype.type(0))
    value = np.where(infinite & (y.real != 0), limit, value)
    return np.where(y == 0, x.dtype.type(1), value)
