"""Ops that talk to other devices."""

from __future__ import annotations

from hloopt.ops.attributes import (
    CHANNEL,
    DIMENSIONS,
    DIMENSIONS_OPTIONAL,
    OUTPUT_ALIASING,
    TO_APPLY,
)
from hloopt.ops.opdef import MANY, Attribute, Kind, OpDef
from hloopt.ops.shapes import declared

__all__ = ["ROWS"]

_FAMILY = "collective"
_LAYOUT = Attribute("constrain_layout", Kind.BOOL)
_GLOBAL = Attribute("use_global_device_ids", Kind.BOOL)
_GATHER = (DIMENSIONS, *CHANNEL, _GLOBAL, _LAYOUT)
_REDUCE = (*CHANNEL, _GLOBAL, _LAYOUT, TO_APPLY)
_PERMUTE = (
    Attribute("channel_id", Kind.INT),
    Attribute("source_target_pairs", Kind.GROUPS, required=True),
    Attribute("slice_sizes", Kind.GROUPS),
)


def _row(opcode: str, least: int, most: int, *attributes: Attribute) -> OpDef:
    return OpDef(
        opcode, (least, most), _FAMILY, declared, attributes, side_effect=True, inferable=False
    )


ROWS = (
    _row("all-gather", 1, MANY, *_GATHER),
    _row("all-gather-done", 1, 1),
    _row("all-gather-start", 1, MANY, *_GATHER),
    _row("all-reduce", 1, MANY, *_REDUCE),
    _row("all-reduce-done", 1, 1),
    _row("all-reduce-start", 1, MANY, *_REDUCE),
    _row("all-to-all", 1, MANY, DIMENSIONS_OPTIONAL, *CHANNEL, _LAYOUT),
    _row("collective-broadcast", 1, MANY, *CHANNEL),
    _row("collective-permute", 1, MANY, *_PERMUTE),
    _row("collective-permute-done", 1, 1),
    _row("collective-permute-start", 1, MANY, *_PERMUTE, OUTPUT_ALIASING),
    _row("ragged-all-to-all", 6, 6, *CHANNEL),
    _row("reduce-scatter", 1, MANY, DIMENSIONS, *_REDUCE),
    OpDef("partition-id", (0, 0), _FAMILY, declared),
    OpDef("replica-id", (0, 0), _FAMILY, declared),
)
