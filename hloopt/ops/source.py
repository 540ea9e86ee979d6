"""Ops without operands: constant, iota, parameter."""

from __future__ import annotations

from hloopt.ops.opdef import Attribute, Kind, OpDef
from hloopt.ops.shapes import declared

__all__ = ["ROWS"]

_FAMILY = "source"

ROWS = (
    OpDef(
        "constant",
        (0, 0),
        _FAMILY,
        declared,
        (Attribute("literal", Kind.LITERAL, required=True),),
        inferable=False,
    ),
    OpDef(
        "iota",
        (0, 0),
        _FAMILY,
        declared,
        (Attribute("iota_dimension", Kind.INT, required=True),),
        inferable=False,
    ),
    OpDef(
        "parameter",
        (0, 0),
        _FAMILY,
        declared,
        (Attribute("parameter_number", Kind.INT, required=True),),
        inferable=False,
    ),
)
