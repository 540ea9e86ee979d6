"""Rules for and, or, xor, not: of bits, and of pred."""

from __future__ import annotations

from collections.abc import Callable

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rewrite, Rule, op, splat, var, variables
from hloopt.simplify.constant_arithmetic import folded
from hloopt.simplify.predicates import is_all_ones, scalar_value

__all__ = ["RULES"]

A, B = variables("A B")
C = splat(name="C")
C1, C2 = splat(name="C1"), splat(name="C2")
Z = splat(0, name="Z")
ONES = splat(name="ONES").where(is_all_ones)
LOGIC = ("and", "or", "xor")


def _constant(value: int) -> Rewrite:
    def make(match: Match) -> Instruction:
        return match.splat(match.array, value)

    return make


def _keeps_all_bits(match: Match) -> bool:
    """Whether every bit that a value may have is one of the mask's."""
    value, known = scalar_value(match.C), match.values.of(match.A)
    if value is None or not match.array.dtype.is_integer or known.low < 0:
        return False
    possible = (1 << int(known.high).bit_length()) - 1
    return possible & ~int(value) == 0


def _all_ones(match: Match) -> Instruction:
    dtype = match.array.dtype
    return match.splat(
        match.array, -1 if dtype.kind == "signed" else _top(dtype.bits, dtype.is_pred)
    )


def _top(bits: int, is_pred: bool) -> int:
    return 1 if is_pred else (1 << bits) - 1


def _merged(match: Match) -> Instruction | None:
    """``(A op C1) op C2`` as ``A op (C1 op C2)``."""
    opcode, shape = match.root.opcode, match.array
    inner = match.root.operands[0 if match.C2 is match.root.operands[1] else 1]
    if inner.opcode != opcode:
        return None
    constant = folded(match, opcode, shape, match.C1, match.C2)
    return None if constant is None else match.make(opcode, match.A, constant, shape=shape)


def _other(match: Match) -> Instruction | None:
    """``A op (A op B)`` for and, or: the inner one already has A in it."""
    inner = match.C
    return inner if inner.opcode == match.root.opcode else None


def _de_morgan(other: str) -> Callable[[Match], Instruction]:
    def rewrite(match: Match) -> Instruction:
        shape = match.array
        return match.make("not", match.make(other, match.A, match.B, shape=shape), shape=shape)

    return rewrite


RULES = (
    Rule("A & A => A", A & A, A),
    Rule("A & 0 => 0", A & Z, var("Z")),
    Rule("A & ones => A", A & ONES, A),
    Rule("A & (2^N - 1) => A where 0 <= A < 2^N", A & C, A, when=_keeps_all_bits),
    Rule("A | A => A", A | A, A),
    Rule("A | 0 => A", A | Z, A),
    Rule("A | ones => ones", A | ONES, var("ONES")),
    Rule("A ^ 0 => A", A ^ Z, A),
    Rule("A ^ A => 0", A ^ A, _constant(0)),
    Rule("not(not(A)) => A", op("not", ~A), A),
    Rule("A & not(A) => 0", A & ~A, _constant(0)),
    Rule("A | not(A) => ones", op(("or", "xor"), A, ~A), _all_ones),
    Rule("A ^ ones => not(A)", A ^ ONES, ~A),
    Rule("A & (A | B) => A", A & (A | B), A),
    Rule("A | (A & B) => A", A | (A & B), A),
    Rule("A & (A & B) => A & B", op(("and", "or"), A, op(("and", "or"), A, B).bind("C")), _other),
    Rule("A ^ (A ^ B) => B", A ^ (A ^ B), B),
    Rule("not(A) & not(B) => not(A | B)", (~A).one_use & (~B).one_use, _de_morgan("or")),
    Rule("not(A) | not(B) => not(A & B)", (~A).one_use | (~B).one_use, _de_morgan("and")),
    Rule("not(A) ^ not(B) => A ^ B", ~A ^ ~B, A ^ B),
    Rule("(A & C1) & C2 => A & (C1 & C2)", op(LOGIC, op(LOGIC, A, C1), C2), _merged),
)
