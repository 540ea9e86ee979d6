"""Rules for and, or, xor, not: of bits, and of pred."""

from __future__ import annotations

from collections.abc import Callable

from hloopt.ir import Instruction
from hloopt.passes.simplify.conditions import is_all_ones, scalar_value
from hloopt.passes.simplify.folding import folded
from hloopt.rewrite import Match, Rewrite, Rule, op, splat, var

__all__ = ["RULES"]

A, B = var("A"), var("B")
C = splat(name="C")
C1, C2 = splat(name="C1"), splat(name="C2")
Z = splat(0, name="Z")
ONES = splat(name="ONES").where(is_all_ones)
LOGIC = ("and", "or", "xor")

_BITS = ("s32", "u8", "pred", "u64")


def _constant(value: int) -> Rewrite:
    def make(match: Match) -> Instruction:
        return match.splat(match.root.array, value)

    return make


def _keeps_all_bits(match: Match) -> bool:
    """Whether every bit that a value may have is one of the mask's."""
    value, known = scalar_value(match.C), match.values.of(match.A)
    if value is None or not match.root.array.dtype.is_integer or known.low < 0:
        return False
    possible = (1 << int(known.high).bit_length()) - 1
    return possible & ~int(value) == 0


def _all_ones(match: Match) -> Instruction:
    dtype = match.root.array.dtype
    return match.splat(
        match.root.array, -1 if dtype.kind == "signed" else _top(dtype.bits, dtype.is_pred)
    )


def _top(bits: int, is_pred: bool) -> int:
    return 1 if is_pred else (1 << bits) - 1


def _merged(match: Match) -> Instruction | None:
    """``(A op C1) op C2`` as ``A op (C1 op C2)``."""
    opcode, shape = match.root.opcode, match.root.array
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
        shape = match.root.array
        return match.make("not", match.make(other, match.A, match.B, shape=shape), shape=shape)

    return rewrite


RULES = (
    Rule(
        "A & A => A",
        A & A,
        A,
        example="x = $T[6] parameter(0)\n ROOT r = $T[6] and(x, x)",
        counterexample="x = s32[] parameter(0)\n y = s32[] parameter(1)\n ROOT r = s32[] and(x, y)",
        types=_BITS,
    ),
    Rule(
        "A & 0 => 0",
        A & Z,
        var("Z"),
        example="x = $T[] parameter(0)\n z = $T[] constant($0)\n ROOT r = $T[] and(x, z)",
        counterexample="x = s32[] parameter(0)\n z = s32[] constant(1)\n ROOT r = s32[] and(x, z)",
        types=_BITS,
    ),
    Rule(
        "A & ones => A",
        A & ONES,
        A,
        example="x = s32[6] parameter(0)\n m = s32[] constant(-1)\n"
        "b = s32[6] broadcast(m), dimensions={}\n ROOT r = s32[6] and(b, x)",
        counterexample="x = u8[] parameter(0)\n m = u8[] constant(127)\n ROOT r = u8[] and(x, m)",
    ),
    Rule(
        "A & (2^N - 1) => A where 0 <= A < 2^N",
        A & C,
        A,
        when=_keeps_all_bits,
        example="x = u8[6] parameter(0)\n y = $T[6] convert(x)\n c = $T[] constant(511)\n"
        "b = $T[6] broadcast(c), dimensions={}\n ROOT r = $T[6] and(y, b)",
        counterexample="x = u8[6] parameter(0)\n y = s32[6] convert(x)\n c = s32[] constant(254)\n"
        "b = s32[6] broadcast(c), dimensions={}\n ROOT r = s32[6] and(y, b)",
        types=("s32", "u32", "s64"),
    ),
    Rule(
        "A | A => A",
        A | A,
        A,
        example="x = $T[6] parameter(0)\n ROOT r = $T[6] or(x, x)",
        counterexample="x = s32[] parameter(0)\n y = s32[] parameter(1)\n ROOT r = s32[] or(x, y)",
        types=_BITS,
    ),
    Rule(
        "A | 0 => A",
        A | Z,
        A,
        example="x = $T[] parameter(0)\n z = $T[] constant($0)\n ROOT r = $T[] or(z, x)",
        counterexample="x = s32[] parameter(0)\n z = s32[] constant(1)\n ROOT r = s32[] or(x, z)",
        types=_BITS,
    ),
    Rule(
        "A | ones => ones",
        A | ONES,
        var("ONES"),
        example="x = pred[] parameter(0)\n t = pred[] constant(true)\n ROOT r = pred[] or(x, t)",
        counterexample="x = s32[] parameter(0)\n t = s32[] constant(1)\n ROOT r = s32[] or(x, t)",
    ),
    Rule(
        "A ^ 0 => A",
        A ^ Z,
        A,
        example="x = $T[] parameter(0)\n z = $T[] constant($0)\n ROOT r = $T[] xor(z, x)",
        counterexample="x = s32[] parameter(0)\n z = s32[] constant(1)\n ROOT r = s32[] xor(x, z)",
        types=_BITS,
    ),
    Rule(
        "A ^ A => 0",
        A ^ A,
        _constant(0),
        example="x = $T[6] parameter(0)\n ROOT r = $T[6] xor(x, x)",
        counterexample="x = s32[] parameter(0)\n y = s32[] parameter(1)\n ROOT r = s32[] xor(x, y)",
        types=_BITS,
    ),
    Rule(
        "not(not(A)) => A",
        op("not", ~A),
        A,
        example="x = $T[6] parameter(0)\n n = $T[6] not(x)\n ROOT r = $T[6] not(n)",
        counterexample="x = s32[] parameter(0)\n n = s32[] negate(x)\n ROOT r = s32[] not(n)",
        types=_BITS,
    ),
    Rule(
        "A & not(A) => 0",
        A & ~A,
        _constant(0),
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n n = $T[6] not(x)\n"
        "ROOT r = $T[6] and(n, x)",
        counterexample="x = s32[6] parameter(0)\n y = s32[6] parameter(1)\n n = s32[6] not(y)\n"
        "ROOT r = s32[6] and(n, x)",
        types=_BITS,
    ),
    Rule(
        "A | not(A) => ones",
        op(("or", "xor"), A, ~A),
        _all_ones,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n n = $T[6] not(x)\n"
        "ROOT r = $T[6] or(n, x)",
        counterexample="x = s32[6] parameter(0)\n y = s32[6] parameter(1)\n n = s32[6] not(y)\n"
        "ROOT r = s32[6] or(n, x)",
        types=_BITS,
    ),
    Rule(
        "A ^ ones => not(A)",
        A ^ ONES,
        ~A,
        example="x = pred[6] parameter(0)\n t = pred[] constant(true)\n"
        "b = pred[6] broadcast(t), dimensions={}\n ROOT r = pred[6] xor(x, b)",
        counterexample="x = s32[] parameter(0)\n t = s32[] constant(1)\n ROOT r = s32[] xor(x, t)",
    ),
    Rule(
        "A & (A | B) => A",
        A & (A | B),
        A,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n n = $T[6] or(x, y)\n"
        "ROOT r = $T[6] and(n, y)",
        counterexample="x = s32[6] parameter(0)\n y = s32[6] parameter(1)\n n = s32[6] xor(x, y)\n"
        "ROOT r = s32[6] and(n, x)",
        types=_BITS,
    ),
    Rule(
        "A | (A & B) => A",
        A | (A & B),
        A,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n n = $T[6] and(x, y)\n"
        "ROOT r = $T[6] or(n, y)",
        counterexample="x = s32[6] parameter(0)\n y = s32[6] parameter(1)\n n = s32[6] xor(x, y)\n"
        "ROOT r = s32[6] or(n, x)",
        types=_BITS,
    ),
    Rule(
        "A & (A & B) => A & B",
        op(("and", "or"), A, op(("and", "or"), A, B).bind("C")),
        _other,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n n = $T[6] and(x, y)\n"
        "ROOT r = $T[6] and(n, y)",
        counterexample="x = s32[6] parameter(0)\n y = s32[6] parameter(1)\n n = s32[6] xor(x, y)\n"
        "ROOT r = s32[6] and(n, x)",
        types=_BITS,
    ),
    Rule(
        "A ^ (A ^ B) => B",
        A ^ (A ^ B),
        B,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n n = $T[6] xor(x, y)\n"
        "ROOT r = $T[6] xor(n, y)",
        counterexample="x = s32[6] parameter(0)\n y = s32[6] parameter(1)\n n = s32[6] or(x, y)\n"
        "ROOT r = s32[6] xor(n, y)",
        types=_BITS,
    ),
    Rule(
        "not(A) & not(B) => not(A | B)",
        (~A).one_use & (~B).one_use,
        _de_morgan("or"),
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n n = $T[6] not(x)\n"
        "m = $T[6] not(y)\n ROOT r = $T[6] and(n, m)",
        counterexample="x = s32[6] parameter(0)\n y = s32[6] parameter(1)\n n = s32[6] not(x)\n"
        "m = s32[6] negate(y)\n ROOT r = s32[6] and(n, m)",
        types=_BITS,
    ),
    Rule(
        "not(A) | not(B) => not(A & B)",
        (~A).one_use | (~B).one_use,
        _de_morgan("and"),
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n n = $T[6] not(x)\n"
        "m = $T[6] not(y)\n ROOT r = $T[6] or(n, m)",
        counterexample="x = s32[6] parameter(0)\n y = s32[6] parameter(1)\n n = s32[6] not(x)\n"
        "m = s32[6] negate(y)\n ROOT r = s32[6] or(n, m)",
        types=_BITS,
    ),
    Rule(
        "not(A) ^ not(B) => A ^ B",
        ~A ^ ~B,
        A ^ B,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n n = $T[6] not(x)\n"
        "m = $T[6] not(y)\n ROOT r = $T[6] xor(n, m)",
        counterexample="x = s32[6] parameter(0)\n y = s32[6] parameter(1)\n n = s32[6] not(x)\n"
        "ROOT r = s32[6] xor(n, y)",
        types=_BITS,
    ),
    Rule(
        "(A & C1) & C2 => A & (C1 & C2)",
        op(LOGIC, op(LOGIC, A, C1), C2),
        _merged,
        example="x = $T[6] parameter(0)\n c = $T[] constant(6)\n d = $T[] constant(3)\n"
        "cc = $T[6] broadcast(c), dimensions={}\n"
        "dd = $T[6] broadcast(d), dimensions={}\n n = $T[6] and(x, cc)\n"
        "ROOT r = $T[6] and(n, dd)",
        counterexample="x = s32[] parameter(0)\n c = s32[] constant(6)\n d = s32[] constant(3)\n"
        "n = s32[] and(x, c)\n ROOT r = s32[] or(n, d)",
        types=("s32", "u8", "u64"),
    ),
)
