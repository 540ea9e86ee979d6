"""Rules for sort; the pass sort-simplifier looks into comparators."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op

__all__ = ["RULES"]


def _sorts_nothing(match: Match) -> Instruction | None:
    root = match.root
    (dimension,) = root.dimensions
    if root.operands[0].array.dims[dimension] > 1:
        return None
    return match.results(root.operands)


def _sorts_equal(match: Match) -> Instruction | None:
    """Along a dimension in which every operand repeats itself there is one order."""
    root = match.root
    (dimension,) = root.dimensions
    for operand in root.operands:
        repeats = operand.opcode == "broadcast" and dimension not in operand.attributes.get(
            "dimensions", ()
        )
        if not repeats:
            return None
    return match.results(root.operands)


def _sorts_repeated(match: Match) -> Instruction | None:
    """Along the sorted dimension all elements are one."""
    (dimension,) = match.root.dimensions
    operand = match.inner
    return None if dimension in operand.dimensions else operand


RULES = (
    Rule("sort(broadcast(A)) => broadcast(A)", op("sort", op("broadcast")), _sorts_repeated),
    Rule("sort(A) of single elements => A", op("sort"), _sorts_nothing),
    Rule("sort(broadcast(A)) along a repeated dimension => broadcast(A)", op("sort"), _sorts_equal),
)
