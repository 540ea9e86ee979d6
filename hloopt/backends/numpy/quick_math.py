"""Fast-math approximations of f32 functions: NumPy's own f32 loops, where the op table rounds once.

The table's implementation (``hloopt.ops.STEADY``) is the interpreter's: correctly rounded, and 2 to 13 times
slower.  Here f32 results err by at most ``MOST_ULP`` units in the last place, subnormal ones included;
bf16 and f16 are computed in f32 and rounded, f64 is the table's.  Measured against f64 over every 61st f32
number with NumPy's AVX-512 loops and every 1009th with its AVX2 and baseline loops: tan 3.8 ulp, log 3.6,
atan2 3.3 (of pairs), asin and logistic 3.1, erf 3.2, everything else less.  Infinities, NaNs and the signs of
zeros are those of the table, but that C's ``powf`` may make a NaN of a signaling NaN to the power of 0.

Where an element lies does not matter.  NumPy has special loops for some strides (a reversed view of
``expm1``), so operands are made contiguous; contiguous operands of any length and place give the same bits,
which ``tests/backends/numpy/test_quick_math.py`` holds each of them to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from hloopt.backends.numpy.plan import Function
from hloopt.ops._erf import erf as steady_erf
from hloopt.ops.elementwise import STEADY
from hloopt.ops.traits import TRANSCENDENTAL, op_table
from hloopt.types import Array

__all__ = ["MOST_ULP", "QUICK"]

MOST_ULP: Final = 4.0
"""The maximum error of an f32 result, in units in the last place."""


_SINGLE = np.dtype(np.float32)

# Elements of one pass of a function of several steps, whose temporaries stay in the cache.  Measured with erf
# on Zen 5, in ns an element: 9.3 of 4096, 3.8 of 8192, 2.8 of 16384, 2.3 of 32768, 2.2 of 65536 and of 131072.
_PASS = 1 << 16

# erf(x) = tanh(x * (1.125 + D(x^2) / Q(x^2))): D and Q are least squares fitted (reweighted towards the least
# maximum) to artanh(erf(x)) / x on [0, 4], 6e-9 off; 1.125 is exact, so that small x are rounded twice only.
_D = (0.003379160742, 0.1033891243, 0.01862677593, 0.002244791342, 1.481033473e-05)
_Q = (1.0, 0.1823744251, 0.02790629742, 0.0006466328104)
_ONE_FROM = 4.25  # erf of it is 1 in f32, and so is the fitted function


def _own_loop(ufunc: np.ufunc, steady: Function) -> Function:
    """``ufunc`` in f32 for f32 operands, ``steady`` for others."""
    return _of_one(ufunc, steady) if ufunc.nin == 1 else _of_two(ufunc, steady)


def _of_one(ufunc: np.ufunc, steady: Function) -> Function:
    straight: Function = np.ascontiguousarray

    def apply(operand: Any, out: Array | None = None) -> Array:
        x = np.asarray(operand)
        if x.dtype is not _SINGLE and x.dtype != _SINGLE:
            return np.asarray(steady(x, out))
        if x.ndim:
            found: Array = ufunc(straight(x)) if out is None else ufunc(straight(x), out)
            return found
        return np.asarray(ufunc(x, out=out))

    return apply


def _of_two(ufunc: np.ufunc, steady: Function) -> Function:
    def apply(left: Any, right: Any, out: Array | None = None) -> Array:
        x, y = np.asarray(left), np.asarray(right)
        if x.dtype != _SINGLE:
            return np.asarray(steady(x, y, out))
        dims = x.shape if x.shape == y.shape else np.broadcast_shapes(x.shape, y.shape)
        result = np.empty(dims, _SINGLE) if out is None else out
        if result.size == 1:
            # A single element's stride is 0, in which NumPy sees a constant exponent.
            pairs = np.empty((2, 2), _SINGLE)
            pairs[0], pairs[1] = x, y
            result[...] = ufunc(pairs[0], pairs[1])[0]
        else:
            ufunc(_whole(x, dims), _whole(y, dims), out=result)
        return result

    return apply


def _whole(array: Array, dims: tuple[int, ...]) -> Array:
    if array.shape == dims and array.flags.c_contiguous:
        return array
    whole = np.empty(dims, array.dtype)
    whole[...] = array
    return whole


def _by_passes(
    function: Callable[[Array, Array, Sequence[Array]], None], temporaries: int, steady: Function
) -> Function:
    """``function(x, result, temporaries)`` of flat f32 arrays, a few thousand elements at a time."""

    def apply(operand: Any, out: Array | None = None) -> Array:
        x = np.asarray(operand)
        if x.dtype != _SINGLE:
            found = np.asarray(steady(x))
            if out is None:
                return found
            out[...] = found
            return out
        whole = out is not None and out.flags.c_contiguous
        result = out if out is not None and whole else np.empty(x.shape, _SINGLE)
        flat, target = x.reshape(-1), result.reshape(-1)
        passes = max(-(-flat.size // _PASS), 1)
        length = -(-flat.size // passes)
        spare = [np.empty(length, _SINGLE) for _ in range(temporaries)]
        for start in range(0, flat.size, max(length, 1)):
            part = flat[start : start + length]
            used = spare if part.size == length else [one[: part.size] for one in spare]
            function(part, target[start : start + length], used)
        if out is None or whole:
            return result
        out[...] = result
        return out

    return apply


def _erf(x: Array, result: Array, temporaries: Sequence[Array]) -> None:
    inside, square, above, below = temporaries
    np.minimum(x, np.float32(_ONE_FROM), out=inside)
    np.maximum(inside, np.float32(-_ONE_FROM), out=inside)
    np.multiply(inside, inside, out=square)
    _polynomial(_D, square, above)
    _polynomial(_Q, square, below)
    np.divide(above, below, out=above)
    np.multiply(inside, above, out=above)
    np.multiply(inside, np.float32(1.125), out=inside)
    np.add(inside, above, out=inside)
    np.tanh(inside, out=result)


def _polynomial(coefficients: Sequence[float], x: Array, result: Array) -> None:
    """By Horner's rule; the first coefficient is the constant one."""
    np.multiply(x, np.float32(coefficients[-1]), out=result)
    for coefficient in coefficients[-2:0:-1]:
        np.add(result, np.float32(coefficient), out=result)
        np.multiply(result, x, out=result)
    np.add(result, np.float32(coefficients[0]), out=result)


def _logistic(x: Array, result: Array, temporaries: Sequence[Array]) -> None:
    """``e / (1 + e)`` with e = exp(x), which is exact below and 1 far above: no choice between two forms."""
    (power,) = temporaries
    np.minimum(x, np.float32(30.0), out=power)
    np.exp(power, out=power)
    np.add(power, np.float32(1.0), out=result)
    np.divide(power, result, out=result)


def _rsqrt(x: Array, result: Array, temporaries: Sequence[Array]) -> None:
    np.sqrt(x, out=result)
    np.divide(np.float32(1.0), result, out=result)


def _steady_logistic(x: Array) -> Array:
    power = STEADY["exponential"](-np.abs(x))
    return np.asarray(np.where(x < 0, power, 1.0) / (1.0 + power))


def _steady_rsqrt(x: Array) -> Array:
    return np.asarray(1.0 / np.sqrt(x))


_LOOPS: Mapping[str, np.ufunc] = op_table(
    {
        "acos": np.arccos,
        "acosh": np.arccosh,
        "asin": np.arcsin,
        "asinh": np.arcsinh,
        "atan2": np.arctan2,
        "atanh": np.arctanh,
        "cbrt": np.cbrt,
        "cosh": np.cosh,
        "cosine": np.cos,
        "exponential": np.exp,
        "exponential-minus-one": np.expm1,
        "log": np.log,
        "log-plus-one": np.log1p,
        "power": np.power,
        "sine": np.sin,
        "sinh": np.sinh,
        "tan": np.tan,
        "tanh": np.tanh,
    },
    TRANSCENDENTAL,
    "by passes (``QUICK``), or the function of its row is quick",
)

QUICK: Mapping[str, Function] = {
    **{opcode: _own_loop(ufunc, STEADY[opcode]) for opcode, ufunc in _LOOPS.items()},
    "erf": _by_passes(_erf, 4, steady_erf),
    "logistic": _by_passes(_logistic, 1, _steady_logistic),
    "rsqrt": _by_passes(_rsqrt, 0, _steady_rsqrt),
}
"""By opcode, functions of f32 or f64 arrays, which broadcast; they take ``out=`` as ufuncs do."""
