"""Elementwise ops: each result element depends on the operands' elements at the same index.

A row's function takes arrays in their compute types; the caller widens before and rounds after.
Subnormal numbers are kept everywhere; XLA's CPU code flushes those of f32 and f64 to zero.
"""

from __future__ import annotations

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
from hloopt.ops._floats import STEADY
from hloopt.ops._lifting import (
    Function,
    both,
    clamp,
    complex_too,
    copy,
    imag,
    integer,
    plain,
    quiet,
    real,
    split,
    steady,
)
from hloopt.ops.attributes import RESULT_ACCURACY
from hloopt.ops.opdef import Attribute, Infer, Kind, OpDef, family

__all__ = ["ROWS", "STEADY", "keeps_bits"]


_BITS = ("pred", "signed", "unsigned")
_INTEGERS = ("signed", "unsigned")
_REALS = ("signed", "unsigned", "float")
_NUMBERS = ("signed", "unsigned", "float", "complex")
_SIGNED = ("signed", "float", "complex")
_ORDERED = ("pred", "signed", "unsigned", "float")
_ALL = ("pred", "signed", "unsigned", "float", "complex")
_FLOAT = ("float",)
_INEXACT = ("float", "complex")


_elementwise = family("elementwise", flops=1, cheap="always")


def _row(
    opcode: str, arity: int, infer: Infer, numpy: Function, *attributes: Attribute, **columns: Any
) -> OpDef:
    """``columns``: the other fields of the row."""
    return _elementwise(opcode, arity, infer, *attributes, numpy=quiet(numpy), **columns)


def _unary(opcode: str, kinds: tuple[str, ...], numpy: Function, doc: str, **columns: Any) -> OpDef:
    return _row(opcode, 1, same_shape(*kinds), numpy, doc=doc, **columns)


def _transcendental(
    opcode: str,
    numpy: Function,
    doc: str,
    *,
    arity: int = 1,
    kinds: tuple[str, ...] = _INEXACT,
    **columns: Any,
) -> OpDef:
    accuracy = (RESULT_ACCURACY,) if arity == 1 else ()
    columns = {"flops": 0, "transcendentals": 1, "cheap": "", **columns}
    return _row(opcode, arity, same_shape(*kinds), numpy, *accuracy, doc=doc, **columns)


def _binary(
    opcode: str,
    kinds: tuple[str, ...],
    numpy: Function,
    doc: str,
    *,
    algebra: bool = False,
    **columns: Any,
) -> OpDef:
    """``algebra``: commutative and associative."""
    return _row(
        opcode,
        2,
        same_shape(*kinds),
        numpy,
        commutative=algebra,
        associative=algebra,
        doc=doc,
        **columns,
    )


_ARITHMETIC = (
    _binary(
        "add", _ALL, both(np.add), "x + y; or of preds", algebra=True, identity=0, modular=True
    ),
    _binary(
        "and",
        _BITS,
        both(np.bitwise_and),
        "bits of both",
        algebra=True,
        identity=-1,
        idempotent=True,
        bitwise=True,
        modular=True,
    ),
    _binary(
        "divide",
        _NUMBERS,
        split(_integers.divide, complex_too(plain(np.divide), _complex.divide)),
        "x / y",
        cheap="gpu",
    ),
    _binary(
        "maximum",
        _ORDERED,
        split(plain(np.maximum), _floats.maximum),
        "the larger; NaN if either is",
        algebra=True,
        identity="lowest",
        idempotent=True,
    ),
    _binary(
        "minimum",
        _ORDERED,
        split(plain(np.minimum), _floats.minimum),
        "the smaller; NaN if either is",
        algebra=True,
        identity="highest",
        idempotent=True,
    ),
    _row(
        "mulhi",
        2,
        same_shape(*_INTEGERS),
        integer(_integers.multiply_high),
        commutative=True,
        doc="the upper half of x * y",
    ),
    _binary(
        "multiply",
        _ALL,
        split(plain(np.multiply), complex_too(plain(np.multiply), _complex.multiply)),
        "x * y; and of preds",
        algebra=True,
        identity=1,
        modular=True,
    ),
    _binary(
        "or",
        _BITS,
        both(np.bitwise_or),
        "bits of either",
        algebra=True,
        identity=0,
        idempotent=True,
        bitwise=True,
        modular=True,
    ),
    _binary(
        "remainder",
        _REALS,
        split(_integers.remainder, plain(np.fmod)),
        "with the sign of x",
        cheap="",
    ),
    _binary("shift-left", _INTEGERS, integer(_integers.shift_left), "x * 2^y"),
    _binary(
        "shift-right-arithmetic",
        _INTEGERS,
        integer(_integers.shift_right_arithmetic),
        "x / 2^y, copies of the sign come in",
    ),
    _binary(
        "shift-right-logical",
        _INTEGERS,
        integer(_integers.shift_right_logical),
        "x / 2^y, zeros come in",
    ),
    _binary("subtract", _NUMBERS, both(np.subtract), "x - y", modular=True),
    _binary(
        "xor",
        _BITS,
        both(np.bitwise_xor),
        "bits of one",
        algebra=True,
        identity=0,
        bitwise=True,
        modular=True,
    ),
    _unary(
        "abs",
        _SIGNED,
        split(plain(np.abs), complex_too(plain(np.abs), _complex.absolute)),
        "the size",
        cheap="real",
    ),
    _unary("ceil", _FLOAT, plain(np.ceil), "the next integer above", integral=True, monotone=True),
    _unary(
        "count-leading-zeros",
        _INTEGERS,
        integer(_integers.count_leading_zeros),
        "zeros above the uppermost bit set",
    ),
    _unary(
        "floor", _FLOAT, plain(np.floor), "the next integer below", integral=True, monotone=True
    ),
    _unary("negate", _NUMBERS, both(np.negative), "-x", modular=True),
    _unary(
        "not", _BITS, integer(_integers.invert), "all bits turned over", bitwise=True, modular=True
    ),
    _unary("popcnt", _INTEGERS, integer(_integers.population_count), "the number of bits set"),
    _unary(
        "round-nearest-afz",
        _FLOAT,
        _floats.round_away,
        "to an integer, halves away from zero",
        integral=True,
        monotone=True,
    ),
    _unary(
        "round-nearest-even",
        _FLOAT,
        plain(np.rint),
        "to an integer, halves to even",
        integral=True,
        monotone=True,
    ),
    _unary(
        "sign",
        _SIGNED,
        split(plain(np.sign), complex_too(_floats.sign, _complex.sign)),
        "-1, 0 or 1; x / |x|",
        cheap="real",
        integral=True,
        monotone=True,
        within_one=True,
    ),
)

_FUNCTIONS = (
    _transcendental("acos", steady("acos"), "inverse cosine"),
    _transcendental("acosh", steady("acosh"), "inverse hyperbolic cosine"),
    _transcendental("asin", steady("asin"), "inverse sine"),
    _transcendental("asinh", steady("asinh"), "inverse hyperbolic sine", monotone=True),
    _transcendental(
        "atan2", complex_too(steady("atan2"), _complex.atan2), "the angle of (y, x)", arity=2
    ),
    _transcendental("atanh", steady("atanh"), "inverse hyperbolic tangent"),
    _transcendental("cbrt", steady("cbrt"), "cube root", monotone=True, kinds=_FLOAT),
    _transcendental("cosine", steady("cosine"), "cosine", cheap="real", within_one=True),
    _transcendental("cosh", steady("cosh"), "hyperbolic cosine", cheap="real"),
    _transcendental(
        "erf", plain(erf), "error function", monotone=True, within_one=True, kinds=_FLOAT
    ),
    _transcendental("exponential", steady("exponential"), "e^x", cheap="gpu", monotone=True),
    _transcendental(
        "exponential-minus-one",
        complex_too(steady("exponential-minus-one"), _complex.expm1),
        "e^x - 1",
        monotone=True,
    ),
    _transcendental("log", steady("log"), "natural logarithm"),
    _transcendental(
        "log-plus-one", complex_too(steady("log-plus-one"), _complex.log1p), "log(1 + x)"
    ),
    _transcendental(
        "logistic",
        complex_too(_floats.logistic, _complex.logistic),
        "1 / (1 + e^-x)",
        monotone=True,
        within_one=True,
    ),
    _transcendental(
        "power",
        split(_integers.power, complex_too(steady("power"), _complex.power)),
        "x^y; 1 where x is 1 or y is 0",
        arity=2,
        kinds=_NUMBERS,
    ),
    _transcendental(
        "rsqrt", complex_too(_floats.rsqrt, _complex.rsqrt), "1 / sqrt(x)", cheap="gpu"
    ),
    _transcendental("sine", steady("sine"), "sine", cheap="real", within_one=True),
    _transcendental("sinh", steady("sinh"), "hyperbolic sine", cheap="real", monotone=True),
    _transcendental("sqrt", complex_too(plain(np.sqrt), _complex.sqrt), "square root", cheap="gpu"),
    _transcendental("tan", steady("tan"), "tangent", cheap="real"),
    _transcendental("tanh", steady("tanh"), "hyperbolic tangent", monotone=True, within_one=True),
)

_DIRECTIONS = ("EQ", "NE", "GE", "GT", "LE", "LT")
_ORDERS = ("FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED")

_SELECTION = (
    _row("clamp", 3, infer_clamp, integer(clamp), doc="x moved into [least, greatest]"),
    _row(
        "compare",
        2,
        infer_compare,
        integer(_conversions.compare),
        Kind.WORD("direction", required=True, words=_DIRECTIONS),
        Kind.WORD("type", words=_ORDERS),
        doc="x == y, x < y ... by direction",
    ),
    _row("complex", 2, infer_complex, _complex.make_complex, doc="a number from its parts"),
    _row(
        "convert",
        1,
        infer_convert,
        _conversions.convert,
        inferable=False,
        passes_on=True,
        doc="the value in another element type",
    ),
    _row(
        "copy",
        1,
        infer_copy,
        copy,
        flops=0,
        moves="permutes",
        passes_on=True,
        doc="the operand, maybe in another layout",
    ),
    _row(
        "imag",
        1,
        same_shape(*_INEXACT, result="real"),
        imag,
        passes_on=True,
        doc="the imaginary part",
    ),
    _row(
        "is-finite",
        1,
        same_shape(*_FLOAT, result="pred"),
        plain(np.isfinite),
        doc="neither infinite nor NaN",
    ),
    _row(
        "real", 1, same_shape(*_INEXACT, result="real"), real, passes_on=True, doc="the real part"
    ),
    _row(
        "reduce-precision",
        1,
        infer_reduce_precision,
        _conversions.reduce_precision,
        Kind.INT("exponent_bits", required=True),
        Kind.INT("mantissa_bits", required=True),
        doc="round to a float type of fewer bits and back",
    ),
    _row("select", 3, infer_select, plain(np.where), doc="the second where the first holds"),
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
