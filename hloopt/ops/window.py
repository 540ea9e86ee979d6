"""Ops that slide a window: reduce-window, select-and-scatter, and batch normalisation beside them."""

from __future__ import annotations

from hloopt.ops.attributes import TO_APPLY
from hloopt.ops.opdef import MANY, Attribute, Kind, OpDef
from hloopt.ops.shapes import declared

__all__ = ["ROWS"]

_FAMILY = "window"
_WINDOW = Attribute("window", Kind.WINDOW)
_BATCH_NORM = (
    Attribute("epsilon", Kind.FLOAT, required=True),
    Attribute("feature_index", Kind.INT, required=True),
)

ROWS = (
    OpDef("batch-norm-grad", (5, 5), _FAMILY, declared, _BATCH_NORM),
    OpDef("batch-norm-inference", (5, 5), _FAMILY, declared, _BATCH_NORM),
    OpDef("batch-norm-training", (3, 3), _FAMILY, declared, _BATCH_NORM),
    OpDef("reduce-window", (2, MANY), _FAMILY, declared, (_WINDOW, TO_APPLY)),
    OpDef(
        "select-and-scatter",
        (3, 3),
        _FAMILY,
        declared,
        (
            _WINDOW,
            Attribute("select", Kind.COMPUTATION, required=True),
            Attribute("scatter", Kind.COMPUTATION, required=True),
        ),
    ),
)
