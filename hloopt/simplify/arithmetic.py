"""Rules for sums and differences; constants stand on the right."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.ops import OPS
from hloopt.rewrite import Match, Rule, op, splat, splat_literal, variables
from hloopt.simplify.conditions import (
    FLOAT,
    INTEGER,
    PRED,
    exact_or_real,
    is_negatable,
    is_negative_zero,
    is_positive_zero,
)
from hloopt.simplify.folding import folded, merged

__all__ = ["RULES"]

A, B, P, Q = variables("A B P Q")
Z, C = splat(0, name="Z"), splat(name="C")
C1, C2 = splat(name="C1"), splat(name="C2")

_COMMUTATIVE = tuple(name for name, row in OPS.items() if row.commutative)


def _is_constant(instruction: Instruction) -> bool:
    return instruction.opcode == "constant" or splat_literal(instruction) is not None


def _constant_right(match: Match) -> Instruction | None:
    left, right = match.root.operands
    if not _is_constant(left) or _is_constant(right):
        return None
    return match.result(match.root.opcode, right, left)


def _adds_nothing(match: Match) -> bool:
    # -0.0 + 0.0 is 0.0, so only -0.0 is neutral for every float.
    kind = match.array.dtype.kind
    if match.fast_math or kind in (*INTEGER, PRED) or is_negative_zero(match.Z):
        return True
    return kind == FLOAT and not match.values.of(match.A).negative_zero


def _subtracts_nothing(match: Match) -> bool:
    # x - 0.0 keeps x, whatever its sign; x - -0.0 turns -0.0 into 0.0.
    return match.fast_math or match.array.dtype.kind in INTEGER or is_positive_zero(match.Z)


def _negates(match: Match) -> bool:
    # 0.0 - 0.0 is 0.0, and -(0.0) is not.
    return match.fast_math or match.array.dtype.kind in INTEGER or is_negative_zero(match.Z)


def _is_itself_less_itself(match: Match) -> bool:
    return exact_or_real(match) or match.values.of(match.A).is_finite


def _negated_constant(match: Match) -> Instruction | None:
    if not is_negatable(match):
        return None
    negated = folded(match, "negate", match.C.array, match.C)
    return None if negated is None else match.result("add", match.A, negated)


def _zero(match: Match) -> Instruction:
    return match.splat(match.array, 0)


RULES = (
    Rule("C + A => A + C", op(_COMMUTATIVE), _constant_right),
    Rule("A + 0 => A", A + Z, A, when=_adds_nothing),
    Rule("A - 0 => A", A - Z, A, when=_subtracts_nothing),
    Rule("0 - A => -A", op("subtract", Z, A), -A, when=_negates),
    Rule("A - A => 0", A - A, _zero, when=_is_itself_less_itself),
    Rule("A - C => A + (-C)", A - C, _negated_constant),
    Rule("A + (-B) => A - B", A + (-B), A - B, when=is_negatable),
    Rule("A - (-B) => A + B", A - (-B), A + B, when=is_negatable),
    Rule("(A + C1) + C2 => A + (C1 + C2)", (A + C1) + C2, merged("add")),
    Rule("(C1 - A) + C2 => (C1 + C2) - A", op("subtract", C1, A) + C2, merged("add", "subtract")),
    Rule(
        "C1 - (A + C2) => (C1 - C2) - A", op("subtract", C1, A + C2), merged("subtract", "subtract")
    ),
    Rule("(A - B) + B => A", (A - B) + B, A, when=exact_or_real),
    Rule("(A + B) - B => A", (A + B) - B, A, when=exact_or_real),
    Rule("A - (A - B) => B", A - (A - B), B, when=exact_or_real),
    Rule("A - (A + B) => -B", A - (A + B), -B, when=exact_or_real),
    Rule("(A - B) - A => -B", op("subtract", A - B, A), -B, when=exact_or_real),
    Rule("(A + P) - (A + Q) => P - Q", (A + P).one_use - (A + Q), P - Q, when=exact_or_real),
)
