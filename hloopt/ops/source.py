"""Ops without operands: constant, iota, parameter."""

from __future__ import annotations

from hloopt.ops.opdef import InferArgs, Kind, family
from hloopt.ops.shapes import attribute, declared, declared_array, error, like
from hloopt.types import Literal, Shape, compatible

__all__ = ["ROWS"]


def _constant(args: InferArgs) -> Shape:
    """The literal's shape."""
    literal: Literal = attribute(args, "literal")
    if args.declared is not None and not compatible(args.declared, literal.shape):
        raise error(args, f"the literal has shape {literal.shape}, the result {args.declared}")
    return like(args, literal.shape)


def _iota(args: InferArgs) -> Shape:
    """The declared shape."""
    shape = declared_array(args)
    dim = attribute(args, "iota_dimension")
    if not 0 <= dim < shape.rank:
        raise error(args, f"iota_dimension={dim} is not a dimension of rank {shape.rank}")
    if shape.dtype.is_pred:
        raise error(args, "the element type pred cannot count")
    return shape


_row = family("source")

ROWS = (
    _row(
        "constant",
        0,
        _constant,
        Kind.LITERAL("literal", required=True),
        inferable=False,
        cheap="always",
        elemental=True,
        doc="a value of the module",
    ),
    _row(
        "iota",
        0,
        _iota,
        Kind.INT("iota_dimension", required=True),
        inferable=False,
        cheap="always",
        elemental=True,
        doc="each element is its index along a dimension",
    ),
    _row(
        "parameter",
        0,
        declared,
        Kind.INT("parameter_number", required=True),
        inferable=False,
        elemental=True,
        doc="an argument of the computation",
    ),
)
