"""Sorting: sort and topk."""

from __future__ import annotations

from hloopt.ops.attributes import DIMENSIONS, TO_APPLY
from hloopt.ops.opdef import MANY, Attribute, Kind, OpDef
from hloopt.ops.shapes import declared

__all__ = ["ROWS"]

_FAMILY = "sort"
_STABLE = Attribute("is_stable", Kind.BOOL)

ROWS = (
    OpDef("sort", (1, MANY), _FAMILY, declared, (DIMENSIONS, _STABLE, TO_APPLY)),
    OpDef(
        "topk",
        (1, 1),
        _FAMILY,
        declared,
        (
            Attribute("k", Kind.INT, required=True),
            Attribute("largest", Kind.BOOL, required=True),
            _STABLE,
        ),
    ),
)
