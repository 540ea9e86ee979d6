"""Rules for bitwise ops, compare, select, maximum, minimum and clamp."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.passes.simplify.conditions import (
    FLOAT,
    INTEGER,
    PRED,
    UNSIGNED,
    has_kind,
    is_all_ones,
    is_highest,
    is_lowest,
    scalar_value,
)
from hloopt.rewrite import Match, Rewrite, Rule, op, splat, var

__all__ = ["RULES"]

A, B, C, P = var("A"), var("B"), var("C"), var("P")
Z = splat(0, name="Z")
ONES = splat(name="ONES").where(is_all_ones)
LOWEST, HIGHEST = splat(name="L").where(is_lowest), splat(name="H").where(is_highest)
TRUE, FALSE = splat(1).where(has_kind(PRED)), splat(0).where(has_kind(PRED))

_BITS = ("s32", "u8", "pred", "u64")
_INVERSE = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}


def _constant(value: int) -> Rewrite:
    def make(match: Match) -> Instruction:
        return match.splat(match.root.array, value)

    return make


def _compare_itself(match: Match) -> Instruction:
    true = match.root.attributes["direction"] in ("EQ", "LE", "GE")
    return match.splat(match.root.array, true)


def _compare_unsigned(true: str, false: str) -> Rewrite:
    def make(match: Match) -> Instruction | None:
        direction = match.root.attributes["direction"]
        if direction not in (true, false):
            return None
        return match.splat(match.root.array, direction == true)

    return make


def _truth(match: Match) -> Instruction | None:
    """``P == true``, ``P != false`` are P; the other two are ``not P``."""
    direction, value = match.root.attributes["direction"], scalar_value(match.C)
    if value is None or direction not in ("EQ", "NE"):
        return None
    if bool(value) == (direction == "EQ"):
        return match.P
    return match.make("not", (match.P,), {}, match.root.shape)


def _inverse(match: Match) -> Instruction | None:
    # not(a < b) is not a >= b where a NaN takes part; equality has no such case.
    compare = match.root.operands[0]
    direction = compare.attributes["direction"]
    if match.A.array.dtype.kind not in (*INTEGER, PRED) and direction not in ("EQ", "NE"):
        return None
    attributes = {**compare.attributes, "direction": _INVERSE[direction]}
    return match.make("compare", compare.operands, attributes, match.root.shape)


def _same_dims(match: Match) -> bool:
    # A scalar predicate chooses whole arrays: then it is not the result.
    return match.P.array.dims == match.root.array.dims


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
        "not(compare(A, B)) => compare(A, B) inverted",
        ~op("compare", A, B).one_use,
        _inverse,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n"
        "c = pred[6] compare(x, y), direction=LT\n ROOT r = pred[6] not(c)",
        counterexample="x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n"
        "c = pred[6] compare(x, y), direction=LT\n ROOT r = pred[6] not(c)",
        types=("s32", "u8", "pred"),
    ),
    Rule(
        "compare(A, A) => constant",
        op("compare", var("A", has_kind(*INTEGER, PRED)), A),
        _compare_itself,
        example="x = $T[6] parameter(0)\n ROOT r = pred[6] compare(x, x), direction=GE",
        counterexample="x = f32[6] parameter(0)\n ROOT r = pred[6] compare(x, x), direction=EQ",
        types=("s32", "u8", "pred"),
    ),
    Rule(
        "unsigned A < 0 => false",
        op("compare", var("A", has_kind(UNSIGNED)), Z),
        _compare_unsigned("GE", "LT"),
        example="x = u32[] parameter(0)\n z = u32[] constant(0)\n"
        "ROOT r = pred[] compare(x, z), direction=LT",
        counterexample="x = s32[] parameter(0)\n z = s32[] constant(0)\n"
        "ROOT r = pred[] compare(x, z), direction=LT",
    ),
    Rule(
        "0 > unsigned A => false",
        op("compare", Z, var("A", has_kind(UNSIGNED))),
        _compare_unsigned("LE", "GT"),
        example="x = u32[] parameter(0)\n z = u32[] constant(0)\n"
        "ROOT r = pred[] compare(z, x), direction=LE",
        counterexample="x = u32[] parameter(0)\n z = u32[] constant(0)\n"
        "ROOT r = pred[] compare(z, x), direction=LT",
    ),
    Rule(
        "P == true => P",
        op("compare", var("P", has_kind(PRED)), splat(name="C")),
        _truth,
        example="x = pred[6] parameter(0)\n f = pred[] constant(false)\n"
        "b = pred[6] broadcast(f), dimensions={}\n"
        "ROOT r = pred[6] compare(x, b), direction=NE",
        counterexample="x = pred[] parameter(0)\n f = pred[] constant(false)\n"
        "ROOT r = pred[] compare(x, f), direction=GT",
    ),
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
        "select(P, select(P, A, B), C) => select(P, A, C)",
        op("select", P, op("select", P, A, B), C),
        op("select", P, A, C),
        example="p = pred[6] parameter(0)\n x = f32[6] parameter(1)\n y = f32[6] parameter(2)\n"
        "z = f32[6] parameter(3)\n s = f32[6] select(p, x, y)\n ROOT r = f32[6] select(p, s, z)",
        counterexample="p = pred[6] parameter(0)\n q = pred[6] parameter(1)\n"
        "x = f32[6] parameter(2)\n y = f32[6] parameter(3)\n s = f32[6] select(p, x, y)\n"
        "ROOT r = f32[6] select(q, s, y)",
    ),
    Rule(
        "select(P, A, select(P, B, C)) => select(P, A, C)",
        op("select", P, A, op("select", P, B, C)),
        op("select", P, A, C),
        example="p = pred[6] parameter(0)\n x = f32[6] parameter(1)\n y = f32[6] parameter(2)\n"
        "z = f32[6] parameter(3)\n s = f32[6] select(p, x, y)\n ROOT r = f32[6] select(p, z, s)",
        counterexample="p = pred[6] parameter(0)\n q = pred[6] parameter(1)\n"
        "x = f32[6] parameter(2)\n y = f32[6] parameter(3)\n s = f32[6] select(p, x, y)\n"
        "ROOT r = f32[6] select(q, y, s)",
    ),
    Rule(
        "max(A, A) => A",
        op("maximum", A, A),
        A,
        example="x = $T[6] parameter(0)\n ROOT r = $T[6] maximum(x, x)",
        counterexample="x = f32[] parameter(0)\n y = f32[] parameter(1)\n"
        "ROOT r = f32[] maximum(x, y)",
        types=("f32", "bf16", "s32", "pred"),
    ),
    Rule(
        "min(A, A) => A",
        op("minimum", A, A),
        A,
        example="x = $T[6] parameter(0)\n ROOT r = $T[6] minimum(x, x)",
        counterexample="x = f32[] parameter(0)\n y = f32[] parameter(1)\n"
        "ROOT r = f32[] minimum(x, y)",
        types=("f32", "bf16", "s32", "pred"),
    ),
    Rule(
        "max(A, lowest) => A",
        op("maximum", A, LOWEST),
        A,
        example="x = $T[6] parameter(0)\n l = $T[] constant(-inf)\n"
        "b = $T[6] broadcast(l), dimensions={}\n ROOT r = $T[6] maximum(b, x)",
        counterexample="x = f32[] parameter(0)\n l = f32[] constant(-3e38)\n"
        "ROOT r = f32[] maximum(x, l)",
        types=("f32", "f16", "bf16", "f64"),
    ),
    Rule(
        "min(A, highest) => A",
        op("minimum", A, HIGHEST),
        A,
        example="x = s32[] parameter(0)\n h = s32[] constant(2147483647)\n"
        "ROOT r = s32[] minimum(x, h)",
        counterexample="x = f32[] parameter(0)\n h = f32[] constant(-inf)\n"
        "ROOT r = f32[] minimum(x, h)",
    ),
    Rule(
        "max(max(A, B), B) => max(A, B)",
        op("maximum", op("maximum", A, B).bind("C"), B),
        C,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n m = $T[6] maximum(x, y)\n"
        "ROOT r = $T[6] maximum(y, m)",
        counterexample="x = f32[] parameter(0)\n y = f32[] parameter(1)\n m = f32[] minimum(x, y)\n"
        "ROOT r = f32[] maximum(m, y)",
        types=_BITS,
        when=lambda match: match.fast_math or match.root.array.dtype.kind != FLOAT,
    ),
    Rule(
        "min(min(A, B), B) => min(A, B)",
        op("minimum", op("minimum", A, B).bind("C"), B),
        C,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n m = $T[6] minimum(x, y)\n"
        "ROOT r = $T[6] minimum(y, m)",
        counterexample="x = f32[] parameter(0)\n y = f32[] parameter(1)\n m = f32[] maximum(x, y)\n"
        "ROOT r = f32[] minimum(m, y)",
        types=_BITS,
        when=lambda match: match.fast_math or match.root.array.dtype.kind != FLOAT,
    ),
    Rule(
        "clamp(A, clamp(A, B, C), C) => clamp(A, B, C)",
        op("clamp", A, op("clamp", A, B, C).bind("P"), C),
        P,
        example="l = $T[] parameter(0)\n x = $T[6] parameter(1)\n h = $T[] parameter(2)\n"
        "c = $T[6] clamp(l, x, h)\n ROOT r = $T[6] clamp(l, c, h)",
        counterexample="l = s32[] parameter(0)\n x = s32[6] parameter(1)\n h = s32[] parameter(2)\n"
        "c = s32[6] clamp(l, x, h)\n ROOT r = s32[6] clamp(h, c, l)",
        types=("s32", "u8"),
        when=lambda match: match.fast_math or match.root.array.dtype.kind != FLOAT,
    ),
)
