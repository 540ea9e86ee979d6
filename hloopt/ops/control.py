"""Control flow: call, fusion, while, conditional, and the ops that only order others."""

from __future__ import annotations

from hloopt.ops.attributes import OUTPUT_ALIASING, TO_APPLY
from hloopt.ops.opdef import MANY, Attribute, Kind, OpDef
from hloopt.ops.shapes import declared

__all__ = ["ROWS"]

_FAMILY = "control"

ROWS = (
    OpDef("add-dependency", (2, 2), _FAMILY, declared),
    OpDef("after-all", (0, MANY), _FAMILY, declared),
    OpDef(
        "call",
        (0, MANY),
        _FAMILY,
        declared,
        (TO_APPLY, Attribute("is_composite", Kind.BOOL), OUTPUT_ALIASING),
    ),
    OpDef(
        "conditional",
        (2, MANY),
        _FAMILY,
        declared,
        (
            Attribute("true_computation", Kind.COMPUTATION),
            Attribute("false_computation", Kind.COMPUTATION),
            Attribute("branch_computations", Kind.COMPUTATIONS),
        ),
    ),
    OpDef(
        "domain", (1, 1), _FAMILY, declared, (Attribute("domain", Kind.VERBATIM, required=True),)
    ),
    OpDef(
        "fusion",
        (0, MANY),
        _FAMILY,
        declared,
        (
            Attribute(
                "kind", Kind.WORD, required=True, words=("kLoop", "kInput", "kOutput", "kCustom")
            ),
            OUTPUT_ALIASING,
            Attribute("calls", Kind.COMPUTATION, required=True),
        ),
        inferable=False,
    ),
    OpDef("opt-barrier", (1, 1), _FAMILY, declared),
    OpDef(
        "while",
        (1, 1),
        _FAMILY,
        declared,
        (
            Attribute("condition", Kind.COMPUTATION, required=True),
            Attribute("body", Kind.COMPUTATION, required=True),
        ),
    ),
)
