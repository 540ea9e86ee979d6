"""Ops that apply a computation along or over elements: reduce, map, scan."""

from __future__ import annotations

from hloopt.ops.attributes import DIMENSIONS, DIMENSIONS_OPTIONAL, TO_APPLY
from hloopt.ops.opdef import MANY, Attribute, Kind, OpDef
from hloopt.ops.shapes import declared

__all__ = ["ROWS"]

_FAMILY = "reduction"

ROWS = (
    OpDef("map", (1, MANY), _FAMILY, declared, (DIMENSIONS_OPTIONAL, TO_APPLY)),
    OpDef("reduce", (2, MANY), _FAMILY, declared, (DIMENSIONS, TO_APPLY)),
    OpDef(
        "scan",
        (1, MANY),
        _FAMILY,
        declared,
        (
            DIMENSIONS,
            Attribute("num_carries", Kind.INT),
            Attribute("is_reverse", Kind.BOOL),
            Attribute("is_associative", Kind.BOOL),
            TO_APPLY,
        ),
        inferable=False,
    ),
)
