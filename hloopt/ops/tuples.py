"""Tuples."""

from __future__ import annotations

from hloopt.ops.opdef import MANY, Attribute, Kind, OpDef
from hloopt.ops.shapes import declared

__all__ = ["ROWS"]

_FAMILY = "tuple"

ROWS = (
    OpDef(
        "get-tuple-element",
        (1, 1),
        _FAMILY,
        declared,
        (Attribute("index", Kind.INT, required=True),),
    ),
    OpDef("tuple", (0, MANY), _FAMILY, declared),
)
