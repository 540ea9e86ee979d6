"""Rules for dot; passes/dots has what changes its form."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op
from hloopt.types import DotDims

__all__ = ["RULES"]


def _contracts_nothing(match: Match) -> Instruction | None:
    lhs, dims = match.root.operands[0], DotDims.of(match.root.attributes)
    if all(lhs.array.dims[d] for d in dims.lhs_contracting) or not match.root.array.elements:
        return None
    return match.splat(match.root.array, 0)


RULES = (
    Rule(
        "dot(A, B) over nothing => 0",
        op("dot"),
        _contracts_nothing,
        example="x = $T[3,0] parameter(0)\n y = $T[0,2] parameter(1)\n"
        "ROOT r = $T[3,2] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        counterexample="x = f32[3,1] parameter(0)\n y = f32[1,2] parameter(1)\n"
        "ROOT r = f32[3,2] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        types=("f32", "bf16", "s32"),
    ),
)
