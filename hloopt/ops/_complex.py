"""Complex functions.

Infinities, NaN and signed zeros follow C's Annex G (``std::complex``, with which XLA's evaluator
folds constants).  XLA's CPU code agrees wherever it gives no NaN, but for the sign of
``sqrt(-1 - 0i)``, which it takes to be that of ``-1 + 0i``; where C says infinite or zero for an
infinite operand, it mostly gives NaN.  Products are the plain formula, as in compiled code: beside
an infinity they may be NaN.

c64 is computed in c128 and rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hloopt.ops._floats import STEADY, steady
from hloopt.ops.opdef import ScalarArgs
from hloopt.types import Array

__all__ = [
    "absolute",
    "atan2",
    "divide",
    "expm1",
    "log1p",
    "logistic",
    "make_complex",
    "multiply",
    "power",
    "rsqrt",
    "sign",
    "sqrt",
]


_WIDE = np.dtype(np.complex128)
_exp = STEADY["exponential"]
_log = STEADY["log"]
sqrt = steady(np.sqrt)


def _wide(x: Array) -> Array:
    return x.astype(_WIDE, copy=False)


def _parts(real: Array, imag: Array, kind: np.dtype[Any]) -> Array:
    """A complex array from its parts; ``real + 1j * imag`` would mix infinities into NaN."""
    result = np.empty(np.broadcast_shapes(real.shape, imag.shape), kind)
    result.real = real
    result.imag = imag
    return result


def make_complex(args: ScalarArgs, real: Array, imag: Array) -> Array:
    """A complex number from its parts."""
    return _parts(real, imag, args.result.numpy)


def absolute(x: Array) -> Array:
    """sqrt(a^2 + b^2) without overflow on the way; infinite where a part is, even beside NaN."""
    z = _wide(x)
    return np.asarray(np.hypot(z.real, z.imag)).astype(x.real.dtype, copy=False)


def sign(x: Array) -> Array:
    """Both parts over |x|, scaled so that it does not overflow (in XLA's CPU code it does); 0 for 0."""
    z = _wide(x)
    shift = -_exponent(z.real, z.imag)
    a, b = np.ldexp(z.real, shift), np.ldexp(z.imag, shift)
    size = np.hypot(a, b)
    safe = np.where(size == 0, 1.0, size)
    return _parts(np.where(size == 0, 0.0, a / safe), np.where(size == 0, 0.0, b / safe), x.dtype)


def multiply(x: Array, y: Array) -> Array:
    """(ac - bd) + (ad + bc)i, each product and sum rounded."""
    z, w = _wide(x), _wide(y)
    a, b, c, d = z.real, z.imag, w.real, w.imag
    return _parts(np.asarray(a * c - b * d), np.asarray(a * d + b * c), x.dtype)


def divide(x: Array, y: Array) -> Array:
    """The quotient by ``x * conj(y) / |y|^2``, operands scaled; by Annex G.5.1 where that is NaN."""
    z, w = _wide(x), _wide(y)
    a, b, c, d = (np.asarray(part) for part in (z.real, z.imag, w.real, w.imag))
    real, imag = _quotient(a, b, c, d)
    broken = np.isnan(real) & np.isnan(imag)
    if broken.any():
        infinite_x, infinite_y = np.isinf(a) | np.isinf(b), np.isinf(c) | np.isinf(d)
        finite_x, finite_y = np.isfinite(a) & np.isfinite(b), np.isfinite(c) & np.isfinite(d)
        large = np.copysign(np.inf, c)
        rules = (
            ((c == 0) & (d == 0), large * a, large * b),
            (infinite_x & finite_y, *_product(np.inf, _boxed(a), _boxed(b), c, d)),
            (infinite_y & finite_x, *_product(0.0, a, b, _boxed(c), _boxed(d))),
        )
        for applies, other_real, other_imag in reversed(rules):
            real = np.where(broken & applies, other_real, real)
            imag = np.where(broken & applies, other_imag, imag)
    return _parts(real, imag, x.dtype)


def _quotient(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
    """The parts of (a + bi) / (c + di) where all is finite and the divisor is not 0."""
    above, below = _exponent(a, b), _exponent(c, d)
    a, b, c, d = np.ldexp(a, -above), np.ldexp(b, -above), np.ldexp(c, -below), np.ldexp(d, -below)
    size = c * c + d * d
    shift = above - below
    real, imag = np.ldexp((a * c + b * d) / size, shift), np.ldexp((b * c - a * d) / size, shift)
    return np.asarray(real), np.asarray(imag)


def _exponent(a: Array, b: Array) -> Array:
    """The binary exponent of the larger part; 0 where one is not finite."""
    size = np.maximum(np.abs(a), np.abs(b))
    return np.asarray(np.frexp(np.where(np.isfinite(size), size, 0.0))[1])


def _boxed(part: Array) -> Array:
    """1 for infinite parts and 0 for all others, with their signs."""
    return np.asarray(np.copysign(np.isinf(part).astype(part.dtype), part))


def _product(scale: float, a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
    """The parts of (a + bi) * conj(c + di), times ``scale``."""
    return np.asarray(scale * (a * c + b * d)), np.asarray(scale * (b * c - a * d))


def rsqrt(x: Array) -> Array:
    """1 / sqrt(x)."""
    root = sqrt(_wide(x))
    return divide(np.ones_like(root), root).astype(x.dtype, copy=False)


def logistic(x: Array) -> Array:
    """1 / (1 + exp(-x)); near its poles, at odd multiples of pi i, exp(x/2) / (2 cosh(x/2))."""
    z = _wide(x)
    left = z.real < 0
    power = _exp(np.where(left, z, -z))
    one = np.ones_like(z)
    far = divide(np.where(left, power, one), one + power)
    near = np.abs(z.real) < 1
    half = np.where(near, z, 0) / 2
    close = divide(_exp(half), 2 * STEADY["cosh"](half))
    return np.where(near, close, far).astype(x.dtype, copy=False)


def expm1(x: Array) -> Array:
    """The exponential minus 1; its real part is (exp(a) - 1) cos(b) - 2 sin(b/2)^2."""
    z = _wide(x)
    a, b = z.real, z.imag
    half = np.sin(b / 2)
    root = _exp(a / 2)
    small = STEADY["exponential-minus-one"](a) * np.cos(b) - 2 * half * half
    # Where exp(a) overflows, its product with a small cosine or sine need not.
    real = np.where(np.abs(a) < 700, small, root * np.cos(b) * root)
    imag = np.where(b == 0, b, root * np.sin(b) * root)
    return _parts(np.where(a < -700, small, real), imag, x.dtype)


def log1p(x: Array) -> Array:
    """log(1 + x), exact near 0: |1 + x|^2 = 1 + a(2 + a) + b^2."""
    z = _wide(x)
    a, b = z.real, z.imag
    near = STEADY["log-plus-one"](a * (2 + a) + b * b) / 2
    far = _log(np.hypot(1 + a, b))
    real = np.where(np.abs(z) < 0.5, near, far)
    return _parts(real, STEADY["atan2"](b, 1 + a), x.dtype)


def atan2(y: Array, x: Array) -> Array:
    """-i log((x + iy) / sqrt(x^2 + y^2)), of operands scaled so that no square overflows."""
    z, w = _wide(x), _wide(y)
    shift = -np.maximum(_exponent(z.real, z.imag), _exponent(w.real, w.imag))
    z, w = (_parts(np.ldexp(v.real, shift), np.ldexp(v.imag, shift), _WIDE) for v in (z, w))
    point = _parts(z.real - w.imag, z.imag + w.real, _WIDE)
    found = _log(divide(point, sqrt(multiply(z, z) + multiply(w, w))))
    return _parts(found.imag, -found.real, x.dtype)


def power(x: Array, y: Array) -> Array:
    """exp(y log x); 1 for base 1 or exponent 0, 0 for base 0 and a positive exponent.

    A positive infinite base with a real exponent gives inf or 0 by its sign; any other infinite or
    NaN operand gives NaN in both parts, as XLA's CPU code does.  NumPy multiplies for small whole
    exponents, whose overflow on the way is taken back.
    """
    z, w = np.broadcast_arrays(_wide(x), _wide(y))
    value = STEADY["power"](z, w)
    value = np.where(np.isfinite(value) | (z == 0), value, _exp(multiply(w, _log(z))))
    value = np.where(np.isfinite(z) & np.isfinite(w), value, complex(np.nan, np.nan))
    value = np.where((z == 0) & (w.real > 0) & np.isfinite(w.imag), 0.0, value)
    infinite = np.isposinf(z.real) & (z.imag == 0) & (w.imag == 0)
    value = np.where(infinite & (w.real > 0), np.inf, np.where(infinite & (w.real < 0), 0.0, value))
    return np.where((w == 0) | (z == 1), 1.0, value).astype(x.dtype, copy=False)
