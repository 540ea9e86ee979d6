"""Rules for sort; the pass sort-simplifier looks into comparators."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op
from hloopt.types import TupleShape

__all__ = ["RULES"]


def _sorts_nothing(match: Match) -> Instruction | None:
    root = match.root
    (dimension,) = root.attributes["dimensions"]
    if root.operands[0].array.dims[dimension] > 1:
        return None
    if isinstance(root.shape, TupleShape):
        return match.result("tuple", *root.operands)
    return root.operands[0]


def _sorts_equal(match: Match) -> Instruction | None:
    """Along a dimension in which every operand repeats itself there is one order."""
    root = match.root
    (dimension,) = root.attributes["dimensions"]
    for operand in root.operands:
        repeats = operand.opcode == "broadcast" and dimension not in operand.attributes.get(
            "dimensions", ()
        )
        if not repeats:
            return None
    if isinstance(root.shape, TupleShape):
        return match.result("tuple", *root.operands)
    return root.operands[0]


RULES = (
    Rule(
        "sort(A) of single elements => A",
        op("sort"),
        _sorts_nothing,
        example="HloModule m\nless { a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
        "c = s32[] parameter(2)\n d = s32[] parameter(3)\n"
        "ROOT l = pred[] compare(a, b), direction=LT }\n"
        "ENTRY e { x = f32[3,1] parameter(0)\n y = s32[3,1] parameter(1)\n"
        "ROOT r = (f32[3,1], s32[3,1]) sort(x, y), dimensions={1}, to_apply=less }",
        counterexample="HloModule m\nless { a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
        "ROOT l = pred[] compare(a, b), direction=LT }\n"
        "ENTRY e { x = f32[3,1] parameter(0)\n"
        "ROOT r = f32[3,1] sort(x), dimensions={0}, to_apply=less }",
    ),
    Rule(
        "sort(broadcast(A)) along a repeated dimension => broadcast(A)",
        op("sort"),
        _sorts_equal,
        example="HloModule m\nless { a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
        "ROOT l = pred[] compare(a, b), direction=LE }\n"
        "ENTRY e { x = f32[3] parameter(0)\n y = f32[3,4] broadcast(x), dimensions={0}\n"
        "ROOT r = f32[3,4] sort(y), dimensions={1}, to_apply=less }",
        counterexample="HloModule m\nless { a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
        "ROOT l = pred[] compare(a, b), direction=LE }\n"
        "ENTRY e { x = f32[3] parameter(0)\n y = f32[3,4] broadcast(x), dimensions={0}\n"
        "ROOT r = f32[3,4] sort(y), dimensions={0}, to_apply=less }",
    ),
)
