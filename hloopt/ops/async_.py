"""Asynchronous ops: async-start/-update/-done and copy-start/-done."""

from __future__ import annotations

from hloopt.ops.attributes import EXECUTION_THREAD, OUTPUT_ALIASING
from hloopt.ops.opdef import MANY, Attribute, Kind, OpDef
from hloopt.ops.shapes import declared

__all__ = ["ROWS"]

_FAMILY = "async"
_CALLS = Attribute("calls", Kind.COMPUTATION)

ROWS = (
    OpDef("async-done", (1, 1), _FAMILY, declared, (_CALLS, EXECUTION_THREAD), inferable=False),
    OpDef(
        "async-start",
        (0, MANY),
        _FAMILY,
        declared,
        (
            EXECUTION_THREAD,
            OUTPUT_ALIASING,
            Attribute("calls", Kind.COMPUTATION, required=True),
        ),
        inferable=False,
    ),
    OpDef("async-update", (1, 1), _FAMILY, declared, (_CALLS, EXECUTION_THREAD), inferable=False),
    OpDef("copy-done", (1, 1), _FAMILY, declared),
    OpDef(
        "copy-start",
        (1, 1),
        _FAMILY,
        declared,
        (Attribute("cross_program_prefetch_index", Kind.INT),),
    ),
)
