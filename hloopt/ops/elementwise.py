"""Elementwise ops: each result element depends on the operands' elements at the same index."""

from __future__ import annotations

from hloopt.ops.opdef import Attribute, Kind, OpDef
from hloopt.ops.shapes import declared

__all__ = ["ROWS"]

_UNARY = """abs acos acosh asin asinh atanh cbrt ceil copy cosine cosh count-leading-zeros erf
exponential exponential-minus-one floor imag is-finite log log-plus-one logistic negate not popcnt
real round-nearest-afz round-nearest-even rsqrt sign sine sinh sqrt tan tanh"""
_BINARY = """add and atan2 complex divide maximum minimum mulhi multiply or power remainder
shift-left shift-right-arithmetic shift-right-logical subtract xor"""
_DIRECTIONS = ("EQ", "NE", "GE", "GT", "LE", "LT")
_ORDERS = ("FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED")


def _row(opcode: str, arity: int, *attributes: Attribute, inferable: bool = True) -> OpDef:
    return OpDef(opcode, (arity, arity), "elementwise", declared, attributes, inferable=inferable)


ROWS = (
    *(_row(opcode, 1) for opcode in _UNARY.split()),
    *(_row(opcode, 2) for opcode in _BINARY.split()),
    _row("clamp", 3),
    _row(
        "compare",
        2,
        Attribute("direction", Kind.WORD, required=True, words=_DIRECTIONS),
        Attribute("type", Kind.WORD, words=_ORDERS),
    ),
    _row("convert", 1, inferable=False),
    _row(
        "reduce-precision",
        1,
        Attribute("exponent_bits", Kind.INT, required=True),
        Attribute("mantissa_bits", Kind.INT, required=True),
    ),
    _row("select", 3),
    _row("stochastic-convert", 2, inferable=False),
)
