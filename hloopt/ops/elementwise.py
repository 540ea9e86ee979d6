"""Elementwise ops: each result element depends on the operands' elements at the same index.

A row's function takes arrays in their compute types; whoever calls it widens before and rounds after.
Subnormal numbers are kept everywhere; XLA's CPU code flushes those of f32 and f64 to zero.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from hloopt.ops import _complex, _conversions, _floats, _integers
from hloopt.ops._conversions import keeps_bits
from hloopt.ops._elementwise_shapes import (
    infer_clamp,
    infer_compare,
    infer_complex,
    infer_convert,
    infer_copy,
    infer_reduce_precision,
    infer_select,
    infer_stochastic_convert,
    same_shape,
)
from hloopt.ops._erf import erf
from hloopt.ops._steady import STEADY
from hloopt.ops.attributes import RESULT_ACCURACY
from hloopt.ops.opdef import Attribute, Infer, Kind, OpDef, ScalarArgs

__all__ = ["ROWS", "STEADY", "keeps_bits"]

Array = np.ndarray[Any, Any]

Function = Callable[..., Any]


def _quiet(function: Function) -> Function:
    """HLO's arithmetic has no traps: overflow, NaN and division by zero are results, not warnings.

    ``__wrapped__`` is for an executor that has silenced NumPy for a whole run.
    """

    @wraps(function)
    def quiet(args: ScalarArgs, *arrays: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(args, *arrays))

    return quiet


def _plain(function: Function) -> Function:
    """A NumPy function that needs no arguments beside its arrays."""

    def plain(args: ScalarArgs, *arrays: Array) -> Array:
        return np.asarray(function(*arrays))

    return plain


def _split(integers: Function, floats: Function) -> Function:
    """One function for integers and pred, another for floats and complex numbers."""
    wrapped = _integers.integer(integers)

    def split(args: ScalarArgs, *arrays: Array) -> Array:
        function = floats if arrays[0].dtype.kind in "fc" else wrapped
        return np.asarray(function(args, *arrays))

    return split


def _both(function: Function) -> Function:
    plain = _plain(function)
    return _split(plain, plain)


def _complex_too(reals: Function, complexes: Function) -> Function:
    """One function for floats, another, of arrays alone, for complex numbers."""

    def either(args: ScalarArgs, *arrays: Array) -> Array:
        if arrays[0].dtype.kind == "c":
            return np.asarray(complexes(*arrays))
        return np.asarray(reals(args, *arrays))

    return either


def _steady(opcode: str) -> Function:
    return _plain(STEADY[opcode])


def _integer(function: Function) -> Function:
    return _integers.integer(function)


def _real(args: ScalarArgs, x: Array) -> Array:
    return x.real


def _imag(args: ScalarArgs, x: Array) -> Array:
    return x.imag if x.dtype.kind == "c" else np.zeros_like(x)


def _copy(args: ScalarArgs, x: Array) -> Array:
    return x if args.operand is args.result else _conversions.convert(args, x)


def _clamp(args: ScalarArgs, least: Array, x: Array, greatest: Array) -> Array:
    if x.dtype.kind == "f":
        return _floats.minimum(args, _floats.maximum(args, least, x), greatest)
    return np.minimum(np.maximum(least, x), greatest)


_BITS = ("pred", "signed", "unsigned")
_INTEGERS = ("signed", "unsigned")
_REALS = ("signed", "unsigned", "float")
_NUMBERS = ("signed", "unsigned", "float", "complex")
_SIGNED = ("signed", "float", "complex")
_ORDERED = ("pred", "signed", "unsigned", "float")
_ALL = ("pred", "signed", "unsigned", "float", "complex")
_FLOAT = ("float",)
_INEXACT = ("float", "complex")


def _row(
    opcode: str,
    arity: int,
    infer: Infer,
    numpy: Function,
    *attributes: Attribute,
    flops: int = 1,
    transcendentals: int = 0,
    commutative: bool = False,
    associative: bool = False,
    identity: object = None,
    inferable: bool = True,
    doc: str = "",
) -> OpDef:
    return OpDef(
        opcode,
        (arity, arity),
        "elementwise",
        infer,
        attributes,
        _quiet(numpy),
        flops,
        transcendentals,
        commutative,
        associative,
        identity,
        inferable=inferable,
        doc=doc,
    )


def _unary(opcode: str, kinds: tuple[str, ...], numpy: Function, doc: str) -> OpDef:
    return _row(opcode, 1, same_shape(*kinds), numpy, doc=doc)


def _transcendental(
    opcode: str, numpy: Function, doc: str, *, arity: int = 1, kinds: tuple[str, ...] = _INEXACT
) -> OpDef:
    accuracy = (RESULT_ACCURACY,) if arity == 1 else ()
    return _row(
        opcode,
        arity,
        same_shape(*kinds),
        numpy,
        *accuracy,
        flops=0,
        transcendentals=1,
        doc=doc,
    )


def _binary(
    opcode: str,
    kinds: tuple[str, ...],
    numpy: Function,
    doc: str,
    *,
    algebra: bool = False,
    identity: object = None,
) -> OpDef:
    """``algebra``: commutative and associative."""
    return _row(
        opcode,
        2,
        same_shape(*kinds),
        numpy,
        commutative=algebra,
        associative=algebra,
        identity=identity,
        doc=doc,
    )


_ARITHMETIC = (
    _binary("add", _ALL, _both(np.add), "x + y; or of preds", algebra=True, identity=0),
    _binary("and", _BITS, _both(np.bitwise_and), "bits of both", algebra=True, identity=-1),
    _binary(
        "divide",
        _NUMBERS,
        _split(_integers.divide, _complex_too(_plain(np.divide), _complex.divide)),
        "x / y",
    ),
    _binary(
        "maximum",
        _ORDERED,
        _split(_plain(np.maximum), _floats.maximum),
        "the larger; NaN if either is",
        algebra=True,
        identity="lowest",
    ),
    _binary(
        "minimum",
        _ORDERED,
        _split(_plain(np.minimum), _floats.minimum),
        "the smaller; NaN if either is",
        algebra=True,
        identity="highest",
    ),
    _row(
        "mulhi",
        2,
        same_shape(*_INTEGERS),
        _integer(_integers.multiply_high),
        commutative=True,
        doc="the upper half of x * y",
    ),
    _binary(
        "multiply",
        _ALL,
        _split(_plain(np.multiply), _complex_too(_plain(np.multiply), _complex.multiply)),
        "x * y; and of preds",
        algebra=True,
        identity=1,
    ),
    _binary("or", _BITS, _both(np.bitwise_or), "bits of either", algebra=True, identity=0),
    _binary(
        "remainder", _REALS, _split(_integers.remainder, _plain(np.fmod)), "with the sign of x"
    ),
    _binary("shift-left", _INTEGERS, _integer(_integers.shift_left), "x * 2^y"),
    _binary(
        "shift-right-arithmetic",
        _INTEGERS,
        _integer(_integers.shift_right_arithmetic),
        "x / 2^y, copies of the sign come in",
    ),
    _binary(
        "shift-right-logical",
        _INTEGERS,
        _integer(_integers.shift_right_logical),
        "x / 2^y, zeros come in",
    ),
    _binary("subtract", _NUMBERS, _both(np.subtract), "x - y"),
    _binary("xor", _BITS, _both(np.bitwise_xor), "bits of one", algebra=True, identity=0),
    _unary(
        "abs",
        _SIGNED,
        _split(_plain(np.abs), _complex_too(_plain(np.abs), _complex.absolute)),
        "the size",
    ),
    _unary("ceil", _FLOAT, _plain(np.ceil), "the next integer above"),
    _unary(
        "count-leading-zeros",
        _INTEGERS,
        _integer(_integers.count_leading_zeros),
        "zeros above the uppermost bit set",
    ),
    _unary("floor", _FLOAT, _plain(np.floor), "the next integer below"),
    _unary("negate", _NUMBERS, _both(np.negative), "-x"),
    _unary("not", _BITS, _integer(_integers.invert), "all bits turned over"),
    _unary("popcnt", _INTEGERS, _integer(_integers.population_count), "the number of bits set"),
    _unary("round-nearest-afz", _FLOAT, _floats.round_away, "to an integer, halves away from zero"),
    _unary("round-nearest-even", _FLOAT, _plain(np.rint), "to an integer, halves to even"),
    _unary(
        "sign",
        _SIGNED,
        _split(_plain(np.sign), _complex_too(_floats.sign, _complex.sign)),
        "-1, 0 or 1; x / |x|",
    ),
)

_FUNCTIONS = (
    _transcendental("acos", _steady("acos"), "inverse cosine"),
    _transcendental("acosh", _steady("acosh"), "inverse hyperbolic cosine"),
    _transcendental("asin", _steady("asin"), "inverse sine"),
    _transcendental("asinh", _steady("asinh"), "inverse hyperbolic sine"),
    _transcendental(
        "atan2", _complex_too(_steady("atan2"), _complex.atan2), "the angle of (y, x)", arity=2
    ),
    _transcendental("atanh", _steady("atanh"), "inverse hyperbolic tangent"),
    _transcendental("cbrt", _steady("cbrt"), "cube root", kinds=_FLOAT),
    _transcendental("cosine", _steady("cosine"), "cosine"),
    _transcendental("cosh", _steady("cosh"), "hyperbolic cosine"),
    _transcendental("erf", _plain(erf), "error function", kinds=_FLOAT),
    _transcendental("exponential", _steady("exponential"), "e^x"),
    _transcendental(
        "exponential-minus-one",
        _complex_too(_steady("exponential-minus-one"), _complex.expm1),
        "e^x - 1",
    ),
    _transcendental("log", _steady("log"), "natural logarithm"),
    _transcendental(
        "log-plus-one", _complex_too(_steady("log-plus-one"), _complex.log1p), "log(1 + x)"
    ),
    _transcendental(
        "logistic", _complex_too(_floats.logistic, _complex.logistic), "1 / (1 + e^-x)"
    ),
    _transcendental(
        "power",
        _split(_integers.power, _complex_too(_steady("power"), _complex.power)),
        "x^y; 1 where x is 1 or y is 0",
        arity=2,
        kinds=_NUMBERS,
    ),
    _transcendental("rsqrt", _complex_too(_floats.rsqrt, _complex.rsqrt), "1 / sqrt(x)"),
    _transcendental("sine", _steady("sine"), "sine"),
    _transcendental("sinh", _steady("sinh"), "hyperbolic sine"),
    _transcendental("sqrt", _complex_too(_plain(np.sqrt), _complex.sqrt), "square root"),
    _transcendental("tan", _steady("tan"), "tangent"),
    _transcendental("tanh", _steady("tanh"), "hyperbolic tangent"),
)

_DIRECTIONS = ("EQ", "NE", "GE", "GT", "LE", "LT")
_ORDERS = ("FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED")

_SELECTION = (
    _row("clamp", 3, infer_clamp, _integer(_clamp), doc="x moved into [least, greatest]"),
    _row(
        "compare",
        2,
        infer_compare,
        _integer(_conversions.compare),
        Attribute("direction", Kind.WORD, required=True, words=_DIRECTIONS),
        Attribute("type", Kind.WORD, words=_ORDERS),
        doc="x == y, x < y ... by direction",
    ),
    _row("complex", 2, infer_complex, _complex.make_complex, doc="a number from its parts"),
    _row(
        "convert",
        1,
        infer_convert,
        _conversions.convert,
        inferable=False,
        doc="the value in another element type",
    ),
    _row("copy", 1, infer_copy, _copy, flops=0, doc="the operand, maybe in another layout"),
    _row("imag", 1, same_shape(*_INEXACT, result="real"), _imag, doc="the imaginary part"),
    _row(
        "is-finite",
        1,
        same_shape(*_FLOAT, result="pred"),
        _plain(np.isfinite),
        doc="neither infinite nor NaN",
    ),
    _row("real", 1, same_shape(*_INEXACT, result="real"), _real, doc="the real part"),
    _row(
        "reduce-precision",
        1,
        infer_reduce_precision,
        _conversions.reduce_precision,
        Attribute("exponent_bits", Kind.INT, required=True),
        Attribute("mantissa_bits", Kind.INT, required=True),
        doc="round to a float type of fewer bits and back",
    ),
    _row("select", 3, infer_select, _plain(np.where), doc="the second where the first holds"),
    _row(
        "stochastic-convert",
        2,
        infer_stochastic_convert,
        _conversions.stochastic_convert,
        inferable=False,
        doc="to an integer, rounded up with the fraction's probability",
    ),
)

ROWS = (*_ARITHMETIC, *_FUNCTIONS, *_SELECTION)
