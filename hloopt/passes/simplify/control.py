"""Rules for while and conditional whose way is known; call-inliner takes the calls they leave apart."""

from __future__ import annotations

from hloopt.analysis.trip_count import trip_count
from hloopt.ir import Computation, Instruction
from hloopt.ir.walk import has_side_effect
from hloopt.passes.simplify.conditions import scalar_value
from hloopt.rewrite import Match, Rule, op

__all__ = ["RULES"]

_LESS = "less { s = (s32[]) parameter(0)\n i = s32[] get-tuple-element(s), index=0\n"
_NEXT = (
    "next { s = (s32[]) parameter(0)\n i = s32[] get-tuple-element(s), index=0\n"
    "k = s32[] constant(3)\n n = s32[] multiply(i, k)\n ROOT t = (s32[]) tuple(n) }\n"
)
_STEP = (
    "next { s = (s32[]) parameter(0)\n i = s32[] get-tuple-element(s), index=0\n"
    "k = s32[] constant(3)\n n = s32[] add(i, k)\n ROOT t = (s32[]) tuple(n) }\n"
)
_LOOP = (
    "ENTRY e { x = s32[] constant(5)\n t = (s32[]) tuple(x)\n"
    "ROOT w = (s32[]) while(t), condition=less, body=next }"
)
_BRANCHES = (
    "HloModule m\nneg { x = f32[] parameter(0)\n ROOT r = f32[] negate(x) }\n"
    "exp { x = f32[] parameter(0)\n ROOT r = f32[] exponential(x) }\n"
)


def _compares(limit: int) -> str:
    return f"{_LESS} n = s32[] constant({limit})\n ROOT c = pred[] compare(i, n), direction=LT }}\n"


def _is_pure(computation: Computation) -> bool:
    return not any(has_side_effect(instruction) for instruction in computation)


def _never_runs(match: Match) -> Instruction | None:
    root = match.root
    if trip_count(root) != 0 or not _is_pure(root.attributes["condition"]):
        return None
    return root.operands[0]


def _runs_once(match: Match) -> Instruction | None:
    root = match.root
    if trip_count(root) != 1 or not _is_pure(root.attributes["condition"]):
        return None
    return _call(match, root.attributes["body"], root.operands[0])


def _call(match: Match, computation: Computation, argument: Instruction) -> Instruction:
    attributes = {"to_apply": computation}
    return match.make("call", (argument,), attributes, match.root.shape)


def _known_branch(match: Match) -> Instruction | None:
    """The branch of a constant; an index out of range takes the last."""
    root = match.root
    value = scalar_value(root.operands[0])
    if value is None:
        return None
    if "branch_computations" in root.attributes:
        branches = root.attributes["branch_computations"]
    else:
        branches = (root.attributes["true_computation"], root.attributes["false_computation"])
    if root.operands[0].array.dtype.is_pred:
        index = 0 if bool(value) else 1
    else:
        index = int(value) if 0 <= int(value) < len(branches) else len(branches) - 1
    return _call(match, branches[index], root.operands[1 + index])


RULES = (
    Rule(
        "while(A) that never runs => A",
        op("while"),
        _never_runs,
        example=f"HloModule m\n{_compares(5)}{_STEP}{_LOOP}",
        counterexample=f"HloModule m\n{_compares(12)}{_STEP}{_LOOP}",
    ),
    Rule(
        "while(A) that runs once => call(A)",
        op("while"),
        _runs_once,
        example=f"HloModule m\n{_compares(8)}{_STEP}{_LOOP}",
        counterexample=f"HloModule m\n{_compares(20)}{_NEXT}{_LOOP}",
    ),
    Rule(
        "conditional(C, A, B) => call(A)",
        op("conditional"),
        _known_branch,
        example=f"{_BRANCHES}ENTRY e {{ p = s32[] constant(7)\n x = f32[] parameter(0)\n"
        "y = f32[] parameter(1)\n"
        "ROOT r = f32[] conditional(p, x, y), branch_computations={neg, exp} }",
        counterexample=f"{_BRANCHES}ENTRY e {{ p = pred[] parameter(0)\n x = f32[] parameter(1)\n"
        "ROOT r = f32[] conditional(p, x, x), true_computation=neg, false_computation=exp }",
    ),
)
