"""Rules for and, or, xor, not: of bits, and of pred."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op, same_op, splat, var, variables
from hloopt.simplify.constant_arithmetic import folded
from hloopt.simplify.predicates import is_all_ones, known_value, repeats_root

__all__ = ["RULES"]

A, B, P = variables("A B P")
C = splat(name="C")
C1, C2 = splat(name="C1"), splat(name="C2")
Z = splat(0, name="Z")
ONES = splat(name="ONES").where(is_all_ones)
LOGIC = ("and", "or", "xor")


def _keeps_all_bits(match: Match) -> bool:
    """Whether every bit that a value may have is one of the mask's."""
    known = match.range_of(match.A)
    if not match.array.dtype.is_integer or known.low < 0:
        return False
    possible = (1 << int(known.high).bit_length()) - 1
    return possible & ~int(known_value(match.C)) == 0


def _all_ones(match: Match) -> Instruction:
    dtype = match.array.dtype
    signed = dtype.kind == "signed"
    return match.full(-1 if signed else (1 << (1 if dtype.is_pred else dtype.bits)) - 1)


RULES = (
    Rule("A & A => A", A & A, A),
    Rule("A & 0 => 0", A & Z, var("Z")),
    Rule("A & ones => A", A & ONES, A),
    Rule("A & (2^N - 1) => A where 0 <= A < 2^N", A & C, A, when=_keeps_all_bits),
    Rule("A | A => A", A | A, A),
    Rule("A | 0 => A", A | Z, A),
    Rule("A | ones => ones", A | ONES, var("ONES")),
    Rule("A ^ 0 => A", A ^ Z, A),
    Rule("A ^ A => 0", A ^ A, splat(0)),
    Rule("not(not(A)) => A", op("not", ~A), A),
    Rule("A & not(A) => 0", A & ~A, splat(0)),
    Rule("A | not(A) => ones", op(("or", "xor"), A, ~A), _all_ones),
    Rule("A ^ ones => not(A)", A ^ ONES, ~A),
    Rule("A & (A | B) => A", A & (A | B), A),
    Rule("A | (A & B) => A", A | (A & B), A),
    Rule(
        "A & (A & B) => A & B",
        op(("and", "or"), A, op(("and", "or"), A, B).bind("P")),
        P,
        when=repeats_root,
    ),
    Rule("A ^ (A ^ B) => B", A ^ (A ^ B), B),
    Rule("not(A) & not(B) => not(A | B)", (~A).one_use & (~B).one_use, ~(A | B)),
    Rule("not(A) | not(B) => not(A & B)", (~A).one_use | (~B).one_use, ~(A & B)),
    Rule("not(A) ^ not(B) => A ^ B", ~A ^ ~B, A ^ B),
    Rule(
        "(A & C1) & C2 => A & (C1 & C2)",
        op(LOGIC, op(LOGIC, A, C1).bind("P"), C2),
        same_op(A, folded(same_op(C1, C2))),
        when=repeats_root,
    ),
)
