"""Ops that talk to the host: infeed, outfeed, send, recv."""

from __future__ import annotations

from hloopt.ops.opdef import Attribute, Kind, OpDef
from hloopt.ops.shapes import declared

__all__ = ["ROWS"]

_FAMILY = "host"
_TRANSFER = (Attribute("channel_id", Kind.INT), Attribute("is_host_transfer", Kind.BOOL))


def _row(opcode: str, operands: int, *attributes: Attribute) -> OpDef:
    return OpDef(
        opcode,
        (operands, operands),
        _FAMILY,
        declared,
        attributes,
        side_effect=True,
        inferable=False,
    )


ROWS = (
    _row("infeed", 1, Attribute("infeed_config", Kind.STRING)),
    _row(
        "outfeed",
        2,
        Attribute("outfeed_shape", Kind.SHAPE),
        Attribute("outfeed_config", Kind.STRING),
    ),
    _row("recv", 1, *_TRANSFER),
    _row("recv-done", 1, *_TRANSFER),
    _row("send", 2, *_TRANSFER),
    _row("send-done", 1, *_TRANSFER),
)
