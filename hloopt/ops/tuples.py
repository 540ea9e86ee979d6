"""Tuples."""

from __future__ import annotations

from hloopt.ops.opdef import MANY, InferArgs, Kind, family
from hloopt.ops.shapes import attribute, error, like, tuple_of, tuple_operand
from hloopt.types import Shape

__all__ = ["ROWS"]


def _tuple(args: InferArgs) -> Shape:
    """The operands' shapes."""
    return tuple_of(args, args.operands)


def _get_tuple_element(args: InferArgs) -> Shape:
    """The shape of one element."""
    elements = tuple_operand(args, 0).elements
    index = attribute(args, "index")
    if not 0 <= index < len(elements):
        raise error(args, f"index={index} is not in a tuple of {len(elements)}")
    return like(args, elements[index])


_row = family("tuple")

ROWS = (
    _row(
        "get-tuple-element",
        1,
        _get_tuple_element,
        Kind.INT("index", required=True),
        aliases=True,
        cheap="always",
        elemental=True,
        doc="one element of a tuple",
    ),
    _row(
        "tuple",
        (0, MANY),
        _tuple,
        aliases=True,
        cheap="always",
        elemental=True,
        doc="the operands as a tuple",
    ),
)
