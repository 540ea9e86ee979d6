"""Rules for abs, sign, negate, rounding to whole numbers and is-finite."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.passes.simplify.conditions import (
    INTEGER,
    UNSIGNED,
    is_exact,
    is_negatable,
    is_positive_zero,
    is_signed_negatable,
    scalar_value,
)
from hloopt.passes.simplify.folding import folded
from hloopt.rewrite import Match, Rule, op, splat, var

__all__ = ["RULES"]

A, B = var("A"), var("B")
C = splat(name="C")
ROUNDED = ("floor", "ceil", "round-nearest-even", "round-nearest-afz")
_NUMBERS = ("f32", "f64", "f16", "bf16", "s32", "u8", "s64")


def _has_no_sign(match: Match) -> bool:
    known = match.values.of(match.A)
    return known.low >= 0 and not known.negative_zero


def _has_only_sign(match: Match) -> bool:
    """A zero without a sign must not be there: its negation has one."""
    known = match.values.of(match.A)
    if match.A.array.dtype.kind in INTEGER:
        return known.high <= 0
    return known.high < 0


def _is_whole(match: Match) -> bool:
    return match.values.of(match.A).whole


def _is_finite(match: Match) -> Instruction | None:
    if not match.values.of(match.A).is_finite:
        return None
    return match.splat(match.root.array, value=True)


def _is_factor(instruction: Instruction) -> bool:
    """Whether this is a splat of more than a sign, for which there are rules of their own."""
    value = scalar_value(instruction)
    return value is not None and abs(complex(value)) != 1


def _negated_factor(match: Match) -> Instruction | None:
    """Rounding knows no sign; complex products mix both parts."""
    if not is_exact(match):
        return None
    constant = folded(match, "negate", match.C.array, match.C)
    if constant is None:
        return None
    return match.result("multiply", match.A, constant)


def _negated_divisor(match: Match) -> Instruction | None:
    if not is_exact(match):
        return None
    if match.root.array.dtype.kind in INTEGER:
        return None
    constant = folded(match, "negate", match.C.array, match.C)
    if constant is None:
        return None
    return match.result("divide", match.A, constant)


def _differences(match: Match) -> bool:
    # A - A is +0, its negation -0.
    return match.fast_math or match.root.array.dtype.kind in INTEGER


def _negated_sum(match: Match) -> Instruction | None:
    """Sums round alike on both sides of zero; one that starts at 0.0 is never -0.0, nor is 0.0 - x."""
    root = match.root
    combiner = root.attributes["to_apply"]
    total = combiner.root
    if total.opcode != "add" or set(total.operands) != set(combiner.parameters):
        return None
    if not is_exact(match) or total.array.dtype is not root.array.dtype:
        return None
    if root.array.dtype.kind not in INTEGER and not is_positive_zero(match.Z):
        return None
    plain = match.result("reduce", match.A, match.Z, **root.attributes)
    return match.result("subtract", match.splat(root.array, 0), plain)


RULES = (
    Rule(
        "-(-A) => A",
        op("negate", -A),
        A,
        when=is_negatable,
        example="x = $T[6] parameter(0)\n n = $T[6] negate(x)\n ROOT r = $T[6] negate(n)",
        counterexample="x = f32[] parameter(0)\n n = f32[] abs(x)\n ROOT r = f32[] negate(n)",
        types=(*_NUMBERS, "c64"),
    ),
    Rule(
        "-(A - B) => B - A",
        op("negate", (A - B).one_use),
        B - A,
        when=_differences,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n d = $T[6] subtract(x, y)\n"
        "ROOT r = $T[6] negate(d)",
        counterexample="x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n"
        "d = f32[6] subtract(x, y)\n ROOT r = f32[6] negate(d)",
        types=("s32", "u8", "s64"),
    ),
    Rule(
        "-(A * C) => A * (-C)",
        op("negate", (A * var("C", _is_factor)).one_use),
        _negated_factor,
        example="x = $T[6] parameter(0)\n c = $T[] constant(3)\n"
        "b = $T[6] broadcast(c), dimensions={}\n m = $T[6] multiply(x, b)\n"
        "ROOT r = $T[6] negate(m)",
        counterexample="x = c64[] parameter(0)\n c = c64[] constant((3, 0))\n"
        "m = c64[] multiply(x, c)\n ROOT r = c64[] negate(m)",
        types=("f32", "bf16", "f64", "s8", "u32"),
    ),
    Rule(
        "(-A) * C => A * (-C)",
        (-A) * C,
        _negated_factor,
        example="x = $T[6] parameter(0)\n c = $T[] constant(3)\n"
        "b = $T[6] broadcast(c), dimensions={}\n n = $T[6] negate(x)\n"
        "ROOT r = $T[6] multiply(n, b)",
        counterexample="x = f32[] parameter(0)\n y = f32[] parameter(1)\n n = f32[] negate(x)\n"
        "ROOT r = f32[] multiply(n, y)",
        types=("f32", "bf16", "s8", "u32"),
    ),
    Rule(
        "(-A) / C => A / (-C)",
        (-A) / C,
        _negated_divisor,
        example="x = $T[6] parameter(0)\n c = $T[] constant(3)\n"
        "b = $T[6] broadcast(c), dimensions={}\n n = $T[6] negate(x)\n"
        "ROOT r = $T[6] divide(n, b)",
        counterexample="x = s32[] parameter(0)\n c = s32[] constant(1)\n n = s32[] negate(x)\n"
        "ROOT r = s32[] divide(n, c)",
        types=("f32", "bf16", "f64"),
    ),
    Rule(
        "reduce-add(-A, 0) => 0 - reduce-add(A, 0)",
        op("reduce", (-A).one_use, splat(0, name="Z")),
        _negated_sum,
        example="HloModule m\nplus { a = $T[] parameter(0)\n b = $T[] parameter(1)\n"
        "ROOT c = $T[] add(a, b) }\nENTRY e { x = $T[3,6] parameter(0)\n"
        "n = $T[3,6] negate(x)\n z = $T[] constant(0)\n"
        "ROOT r = $T[6] reduce(n, z), dimensions={0}, to_apply=plus }\n",
        counterexample="HloModule m\nplus { a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
        "ROOT c = f32[] add(a, b) }\nENTRY e { x = f32[3,6] parameter(0)\n"
        "n = f32[3,6] negate(x)\n z = f32[] constant(-0.0)\n"
        "ROOT r = f32[6] reduce(n, z), dimensions={0}, to_apply=plus }\n",
        types=("f32", "bf16", "f64", "s32", "u8"),
    ),
    Rule(
        "abs(A) => A without a sign",
        op("abs", A),
        A,
        when=_has_no_sign,
        example="x = $T[6] parameter(0)\n e = $T[6] multiply(x, x)\n ROOT r = $T[6] abs(e)",
        counterexample="x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n"
        "e = f32[6] multiply(x, y)\n ROOT r = f32[6] abs(e)",
        types=("f32", "bf16", "f64"),
    ),
    Rule(
        "abs(A) => -A of a negative A",
        op("abs", A),
        -A,
        when=_has_only_sign,
        example="x = u8[6] parameter(0)\n y = $T[6] convert(x)\n c = $T[] constant(300)\n"
        "b = $T[6] broadcast(c), dimensions={}\n n = $T[6] subtract(y, b)\n"
        "ROOT r = $T[6] abs(n)",
        counterexample="x = u8[6] parameter(0)\n y = f32[6] convert(x)\n n = f32[6] negate(y)\n"
        "ROOT r = f32[6] abs(n)",
        types=("f32", "s32", "f64"),
    ),
    Rule(
        "abs(abs(A)) => abs(A)",
        op("abs", op("abs", A).bind("B")),
        B,
        example="x = $T[6] parameter(0)\n a = $T[6] abs(x)\n ROOT r = $T[6] abs(a)",
        counterexample="x = f32[] parameter(0)\n a = f32[] negate(x)\n b = f32[] abs(a)\n"
        "ROOT r = f32[] negate(b)",
        types=("f32", "s8", "bf16"),
    ),
    Rule(
        "abs(-A) => abs(A)",
        op("abs", -A),
        op("abs", A),
        when=is_signed_negatable,
        example="x = $T[6] parameter(0)\n a = $T[6] negate(x)\n ROOT r = $T[6] abs(a)",
        counterexample="x = f32[] parameter(0)\n a = f32[] abs(x)\n ROOT r = f32[] negate(a)",
        types=("f32", "s8", "bf16"),
    ),
    Rule(
        "A * sign(A) => abs(A)",
        A * op("sign", A),
        op("abs", A),
        when=lambda match: is_exact(match) and match.root.array.dtype.kind != UNSIGNED,
        example="x = $T[6] parameter(0)\n s = $T[6] sign(x)\n ROOT r = $T[6] multiply(x, s)",
        counterexample="x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n s = f32[6] sign(y)\n"
        "ROOT r = f32[6] multiply(x, s)",
        types=("f32", "bf16", "s32", "s8"),
    ),
    Rule(
        "sign(sign(A)) => sign(A)",
        op("sign", op("sign", A).bind("B")),
        B,
        when=is_exact,
        example="x = $T[6] parameter(0)\n s = $T[6] sign(x)\n ROOT r = $T[6] sign(s)",
        counterexample="x = f32[6] parameter(0)\n s = f32[6] negate(x)\n ROOT r = f32[6] sign(s)",
        types=("f32", "s8"),
    ),
    Rule(
        "floor(A) => A of whole numbers",
        op(ROUNDED, A),
        A,
        when=_is_whole,
        example="x = $T[6] parameter(0)\n f = $T[6] floor(x)\nROOT r = $T[6] round-nearest-even(f)",
        counterexample="x = f32[6] parameter(0)\n f = f32[6] negate(x)\n ROOT r = f32[6] ceil(f)",
        types=("f32", "f16", "f64", "bf16"),
    ),
    Rule(
        "is-finite(A) => true of finite numbers",
        op("is-finite", A),
        _is_finite,
        example="x = s32[6] parameter(0)\n f = $T[6] convert(x)\n ROOT r = pred[6] is-finite(f)",
        counterexample="x = s32[6] parameter(0)\n f = f16[6] convert(x)\n"
        "ROOT r = pred[6] is-finite(f)",
        types=("f32", "bf16", "f64"),
    ),
)
