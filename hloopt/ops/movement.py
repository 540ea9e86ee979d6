"""Ops that move elements: broadcast, reshape, transpose, reverse, concatenate, pad, bitcasts."""

from __future__ import annotations

from hloopt.ops.attributes import DIMENSIONS, DIMENSIONS_OPTIONAL
from hloopt.ops.opdef import MANY, Attribute, Kind, OpDef
from hloopt.ops.shapes import declared

__all__ = ["ROWS"]

_FAMILY = "movement"

ROWS = (
    OpDef("bitcast", (1, 1), _FAMILY, declared, inferable=False),
    OpDef("bitcast-convert", (1, 1), _FAMILY, declared, inferable=False),
    OpDef("broadcast", (1, 1), _FAMILY, declared, (DIMENSIONS_OPTIONAL,), inferable=False),
    OpDef("concatenate", (1, MANY), _FAMILY, declared, (DIMENSIONS,)),
    OpDef("dynamic-reshape", (1, MANY), _FAMILY, declared, inferable=False),
    OpDef("pad", (2, 2), _FAMILY, declared, (Attribute("padding", Kind.PADDING, required=True),)),
    OpDef(
        "reshape",
        (1, 1),
        _FAMILY,
        declared,
        (Attribute("inferred_dimension", Kind.INT),),
        inferable=False,
    ),
    OpDef("reverse", (1, 1), _FAMILY, declared, (DIMENSIONS,)),
    OpDef("transpose", (1, 1), _FAMILY, declared, (DIMENSIONS,)),
)
