"""Rules for select: which arm it is, and choices that are logic, numbers or extrema."""

from __future__ import annotations

from collections.abc import Callable

from hloopt.ir import Instruction
from hloopt.passes.simplify.conditions import (
    INTEGER,
    PRED,
    has_kind,
    has_known_arithmetic,
    is_used_here,
)
from hloopt.passes.simplify.folding import computed
from hloopt.rewrite import Match, Rule, op, splat, splat_literal, var

__all__ = ["RULES"]

A, B, P = var("A"), var("B"), var("P")
C1, C2 = splat(name="C1"), splat(name="C2")
TRUE, FALSE = splat(1).where(has_kind(PRED)), splat(0).where(has_kind(PRED))


def _same_dims(match: Match) -> bool:
    # A scalar predicate chooses whole arrays: then it is not the result.
    return match.P.array.dims == match.root.array.dims


def _inverts(match: Match) -> bool:
    """Whether the negation of P costs nothing: it is a comparison, which becomes the opposite one."""
    compare = match.P
    if compare.opcode != "compare" or not is_used_here(compare) or not _same_dims(match):
        return False
    kind = compare.operands[0].array.dtype
    if compare.attributes["direction"] in ("EQ", "NE") or kind.is_integer or kind.is_pred:
        return True
    return not any(match.values.of(operand).nan for operand in compare.operands)


def _known_choice(match: Match) -> Instruction | None:
    known = match.values.of(match.P)
    return (match.A if known.low else match.B) if known.is_single else None


def _converted(on_true: int) -> Callable[[Match], Instruction | None]:
    """``select(P, 1, 0)`` as the number that P is."""

    def rewrite(match: Match) -> Instruction | None:
        shape = match.root.array
        if not _same_dims(match) or not has_known_arithmetic(match.root) or shape.dtype.is_pred:
            return None
        if shape.dtype.name == "s1" or not _are_one_and_zero(match, on_true):
            return None
        if not on_true and not _inverts(match):
            return None
        chosen = match.P
        if not on_true:
            chosen = match.make("not", chosen, shape=chosen.shape)
        return match.make("convert", chosen, shape=shape)

    return rewrite


def _are_one_and_zero(match: Match, on_true: int) -> bool:
    one, zero = (match.C1, match.C2) if on_true else (match.C2, match.C1)
    shape = match.root.array
    return all(
        splat_literal(entry) == computed("convert", shape.dtype, match.splat(match.P.array, number))
        for entry, number in ((one, 1), (zero, 0))
    )


def _of_equals(match: Match) -> Instruction | None:
    """``select(A == B, A, B)``: what is equal may still be zeros of two signs."""
    compare = match.root.operands[0]
    direction = compare.attributes["direction"]
    if direction not in ("EQ", "NE") or not _elementwise_choice(match):
        return None
    a, b = match.values.of(match.A), match.values.of(match.B)
    if match.A.array.dtype.kind not in (*INTEGER, PRED) and (
        not has_known_arithmetic(match.A)
        or (a.has_zero and b.has_zero and (a.negative_zero or b.negative_zero))
    ):
        return match.refuse("zeros of both signs are equal")
    chosen_when_equal, otherwise = match.root.operands[1:]
    return otherwise if direction == "EQ" else chosen_when_equal


def _elementwise_choice(match: Match) -> bool:
    compare = match.root.operands[0]
    return (
        compare.array.dims == match.root.array.dims
        and match.A.array.dtype is match.root.array.dtype
        and compare.attributes.get("type") != "TOTALORDER"
    )


def _as_extremum(match: Match) -> Instruction | None:
    """``select(A > B, A, B)``: the larger, unless a NaN or zeros of two signs take part."""
    compare = match.root.operands[0]
    direction = compare.attributes["direction"]
    if direction in ("EQ", "NE") or not _elementwise_choice(match):
        return None
    a, b = match.values.of(match.A), match.values.of(match.B)
    if match.A.array.dtype.kind not in (*INTEGER, PRED):
        if not has_known_arithmetic(match.A):
            return None
        zeros = a.has_zero and b.has_zero and (a.negative_zero or b.negative_zero)
        if not match.floats_are_real and (a.nan or b.nan or zeros):
            return match.refuse("NaN or zeros of both signs may be compared")
    first = match.root.operands[1] is match.A
    opcode = "maximum" if first == (direction in ("GT", "GE")) else "minimum"
    return match.result(opcode, match.A, match.B)


RULES = (
    Rule(
        "select(P, A, A) => A",
        op("select", P, A, A),
        A,
        example="p = pred[6] parameter(0)\n x = $T[6] parameter(1)\nROOT r = $T[6] select(p, x, x)",
        counterexample="p = pred[] parameter(0)\n x = f32[] parameter(1)\n y = f32[] parameter(2)\n"
        "ROOT r = f32[] select(p, x, y)",
        types=("f32", "s8"),
    ),
    Rule(
        "select(P, A, B) => A where P is known",
        op("select", P, A, B),
        _known_choice,
        example="i = u8[6] parameter(0)\n j = s32[6] convert(i)\n z = s32[] constant(0)\n"
        "n = s32[] constant(6)\n zz = s32[6] broadcast(z), dimensions={}\n"
        "nn = s32[6] broadcast(n), dimensions={}\n"
        "c = pred[6] compare(j, zz), direction=LT\n k = s32[6] add(j, nn)\n"
        "ROOT r = s32[6] select(c, k, j)",
        counterexample="i = s32[6] parameter(0)\n z = s32[] constant(0)\n n = s32[] constant(6)\n"
        "zz = s32[6] broadcast(z), dimensions={}\n"
        "nn = s32[6] broadcast(n), dimensions={}\n"
        "c = pred[6] compare(i, zz), direction=LT\n k = s32[6] add(i, nn)\n"
        "ROOT r = s32[6] select(c, k, i)",
    ),
    Rule(
        "select(true, A, B) => A",
        op("select", TRUE, A, B),
        A,
        example="p = pred[] constant(true)\n x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n"
        "b = pred[6] broadcast(p), dimensions={}\n ROOT r = f32[6] select(b, x, y)",
        counterexample="p = pred[2] constant({true, false})\n x = f32[2] parameter(0)\n"
        "y = f32[2] parameter(1)\n ROOT r = f32[2] select(p, x, y)",
    ),
    Rule(
        "select(false, A, B) => B",
        op("select", FALSE, A, B),
        B,
        example="p = pred[] constant(false)\n x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n"
        "ROOT r = f32[6] select(p, x, y)",
        counterexample="p = pred[2] constant({true, false})\n x = f32[2] parameter(0)\n"
        "y = f32[2] parameter(1)\n ROOT r = f32[2] select(p, x, y)",
    ),
    Rule(
        "select(not(P), A, B) => select(P, B, A)",
        op("select", ~P, A, B),
        op("select", P, B, A),
        example="p = pred[6] parameter(0)\n x = f32[6] parameter(1)\n y = f32[6] parameter(2)\n"
        "n = pred[6] not(p)\n ROOT r = f32[6] select(n, x, y)",
        counterexample="p = pred[6] parameter(0)\n x = pred[6] parameter(1)\n n = pred[6] not(x)\n"
        "ROOT r = pred[6] select(p, n, x)",
    ),
    Rule(
        "select(P, true, false) => P",
        op("select", P, TRUE, FALSE),
        P,
        when=_same_dims,
        example="p = pred[] parameter(0)\n t = pred[] constant(true)\n f = pred[] constant(false)\n"
        "ROOT r = pred[] select(p, t, f)",
        counterexample="p = pred[] parameter(0)\n t = pred[] constant(true)\n"
        "f = pred[] constant(false)\n tt = pred[6] broadcast(t), dimensions={}\n"
        "ff = pred[6] broadcast(f), dimensions={}\n ROOT r = pred[6] select(p, tt, ff)",
    ),
    Rule(
        "select(P, false, true) => not(P)",
        op("select", P, FALSE, TRUE),
        ~P,
        when=_same_dims,
        example="p = pred[] parameter(0)\n t = pred[] constant(true)\n f = pred[] constant(false)\n"
        "ROOT r = pred[] select(p, f, t)",
        counterexample="p = pred[] parameter(0)\n t = s32[] constant(1)\n f = s32[] constant(0)\n"
        "ROOT r = s32[] select(p, f, t)",
    ),
    Rule(
        "select(P, A, false) => P & A",
        op("select", P, A, FALSE),
        P & A,
        when=_same_dims,
        example="p = pred[6] parameter(0)\n q = pred[6] parameter(1)\n"
        "t = pred[] constant(true)\n f = pred[] constant(false)\n"
        "tt = pred[6] broadcast(t), dimensions={}\n"
        "ff = pred[6] broadcast(f), dimensions={}\n ROOT r = pred[6] select(p, q, ff)",
        counterexample="p = pred[] parameter(0)\n q = pred[6] parameter(1)\n"
        "t = pred[] constant(true)\n f = pred[] constant(false)\n"
        "tt = pred[6] broadcast(t), dimensions={}\n"
        "ff = pred[6] broadcast(f), dimensions={}\n ROOT r = pred[6] select(p, q, ff)",
    ),
    Rule(
        "select(P, true, A) => P | A",
        op("select", P, TRUE, A),
        P | A,
        when=_same_dims,
        example="p = pred[6] parameter(0)\n q = pred[6] parameter(1)\n"
        "t = pred[] constant(true)\n f = pred[] constant(false)\n"
        "tt = pred[6] broadcast(t), dimensions={}\n"
        "ff = pred[6] broadcast(f), dimensions={}\n ROOT r = pred[6] select(p, tt, q)",
        counterexample="p = pred[] parameter(0)\n q = pred[6] parameter(1)\n"
        "t = pred[] constant(true)\n f = pred[] constant(false)\n"
        "tt = pred[6] broadcast(t), dimensions={}\n"
        "ff = pred[6] broadcast(f), dimensions={}\n ROOT r = pred[6] select(p, tt, q)",
    ),
    Rule(
        "select(P, false, A) => not(P) & A",
        op("select", P, FALSE, A),
        ~P & A,
        when=_inverts,
        example="x = s32[6] parameter(0)\n q = pred[6] parameter(1)\n z = s32[6] parameter(2)\n"
        "p = pred[6] compare(x, z), direction=LT\n t = pred[] constant(true)\n"
        "f = pred[] constant(false)\n tt = pred[6] broadcast(t), dimensions={}\n"
        "ff = pred[6] broadcast(f), dimensions={}\n ROOT r = pred[6] select(p, ff, q)",
        counterexample="x = f32[6] parameter(0)\n q = pred[6] parameter(1)\n z = f32[6] parameter(2)\n"
        "p = pred[6] compare(x, z), direction=LT\n t = pred[] constant(true)\n"
        "f = pred[] constant(false)\n tt = pred[6] broadcast(t), dimensions={}\n"
        "ff = pred[6] broadcast(f), dimensions={}\n ROOT r = pred[6] select(p, ff, q)",
    ),
    Rule(
        "select(P, A, true) => not(P) | A",
        op("select", P, A, TRUE),
        ~P | A,
        when=_inverts,
        example="x = s32[6] parameter(0)\n q = pred[6] parameter(1)\n z = s32[6] parameter(2)\n"
        "p = pred[6] compare(x, z), direction=LT\n t = pred[] constant(true)\n"
        "f = pred[] constant(false)\n tt = pred[6] broadcast(t), dimensions={}\n"
        "ff = pred[6] broadcast(f), dimensions={}\n ROOT r = pred[6] select(p, q, tt)",
        counterexample="x = f32[6] parameter(0)\n q = pred[6] parameter(1)\n z = f32[6] parameter(2)\n"
        "p = pred[6] compare(x, z), direction=LT\n t = pred[] constant(true)\n"
        "f = pred[] constant(false)\n tt = pred[6] broadcast(t), dimensions={}\n"
        "ff = pred[6] broadcast(f), dimensions={}\n ROOT r = pred[6] select(p, q, tt)",
    ),
    Rule(
        "select(P, 1, 0) => convert(P)",
        op("select", P, C1, C2),
        _converted(1),
        example="p = pred[6] parameter(0)\n c = $T[] constant(1)\n d = $T[] constant(0)\n"
        "cc = $T[6] broadcast(c), dimensions={}\n"
        "dd = $T[6] broadcast(d), dimensions={}\n ROOT r = $T[6] select(p, cc, dd)",
        counterexample="p = pred[6] parameter(0)\n c = f32[] constant(1)\n"
        "d = f32[] constant(-0.0)\n cc = f32[6] broadcast(c), dimensions={}\n"
        "dd = f32[6] broadcast(d), dimensions={}\n ROOT r = f32[6] select(p, cc, dd)",
        types=("f32", "bf16", "s32", "u8"),
    ),
    Rule(
        "select(P, 0, 1) => convert(not(P))",
        op("select", P, C1, C2),
        _converted(0),
        example="x = s32[6] parameter(0)\n z = s32[6] parameter(1)\n"
        "p = pred[6] compare(x, z), direction=LT\n c = $T[] constant(0)\n d = $T[] constant(1)\n"
        "cc = $T[6] broadcast(c), dimensions={}\n dd = $T[6] broadcast(d), dimensions={}\n"
        "ROOT r = $T[6] select(p, cc, dd)",
        counterexample="p = pred[6] parameter(0)\n c = f32[] constant(0)\n d = f32[] constant(1)\n"
        "cc = f32[6] broadcast(c), dimensions={}\n dd = f32[6] broadcast(d), dimensions={}\n"
        "ROOT r = f32[6] select(p, cc, dd)",
        types=("f32", "bf16", "s32", "u8"),
    ),
    Rule(
        "select(A == B, A, B) => B",
        op("select", op("compare", A, B), A, B),
        _of_equals,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n"
        "c = pred[6] compare(x, y), direction=NE\n ROOT r = $T[6] select(c, x, y)",
        counterexample="x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n"
        "c = pred[6] compare(x, y), direction=EQ\n ROOT r = f32[6] select(c, x, y)",
        types=("s32", "u8", "pred"),
    ),
    Rule(
        "select(A == B, B, A) => A",
        op("select", op("compare", A, B), B, A),
        _of_equals,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n"
        "c = pred[6] compare(x, y), direction=EQ\n ROOT r = $T[6] select(c, y, x)",
        counterexample="x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n"
        "c = pred[6] compare(x, y), direction=EQ\n ROOT r = f32[6] select(c, y, x)",
        types=("s32", "u8", "pred"),
    ),
    Rule(
        "select(A > B, A, B) => max(A, B)",
        op("select", op("compare", A, B), A, B),
        _as_extremum,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n"
        "c = pred[6] compare(x, y), direction=GE\n ROOT r = $T[6] select(c, x, y)",
        counterexample="x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n"
        "c = pred[6] compare(x, y), direction=GE\n ROOT r = f32[6] select(c, x, y)",
        types=("s32", "u8", "pred"),
    ),
    Rule(
        "select(A > B, B, A) => min(A, B)",
        op("select", op("compare", A, B), B, A),
        _as_extremum,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n"
        "c = pred[6] compare(x, y), direction=GT\n ROOT r = $T[6] select(c, y, x)",
        counterexample="x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n"
        "c = pred[6] compare(x, y), direction=LT\n ROOT r = f32[6] select(c, y, x)",
        types=("s32", "u8", "pred"),
    ),
)
