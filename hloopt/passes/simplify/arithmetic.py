"""Rules for add, subtract, multiply, divide, remainder, power, negate, abs and complex parts."""

from __future__ import annotations

import numpy as np

from hloopt.ir import Instruction
from hloopt.passes.simplify.conditions import (
    COMPLEX,
    FLOAT,
    INTEGER,
    UNSIGNED,
    exact_or_fast,
    has_kind,
    is_negative_zero,
    is_positive_zero,
    never_negative_zero,
    power_of_two,
    scalar_value,
)
from hloopt.rewrite import Match, Rule, op, splat, var

__all__ = ["RULES"]

A, B = var("A"), var("B")
Z, C = splat(0, name="Z"), splat(name="C")
C1, C2 = splat(name="C1"), splat(name="C2")
N = splat(name="N")

_NUMBERS = ("f32", "f64", "f16", "bf16", "s32", "u8", "s64")
_FLOATS = ("f32", "f64", "f16", "bf16")
_INTEGERS = ("s32", "u32", "s8", "u64")


def _adds_nothing(match: Match) -> bool:
    # -0.0 + 0.0 is 0.0, so only -0.0 is neutral for every float.
    kind = match.root.array.dtype.kind
    if match.fast_math or kind in INTEGER or is_negative_zero(match.Z):
        return True
    return kind == FLOAT and never_negative_zero(match.A)


def _subtracts_nothing(match: Match) -> bool:
    # x - 0.0 keeps x, whatever its sign; x - -0.0 turns -0.0 into 0.0.
    return match.fast_math or match.root.array.dtype.kind in INTEGER or is_positive_zero(match.Z)


def _real_or_fast(match: Match) -> bool:
    # (a+bi)*(1+0i) computes a*1 - b*0: wrong for infinite b, and it loses signs of zero.
    return match.fast_math or match.root.array.dtype.kind != COMPLEX


def _negates(match: Match) -> bool:
    return match.fast_math or match.root.array.dtype.kind in INTEGER or is_negative_zero(match.Z)


def _negatable(match: Match) -> bool:
    # f8e8m0fnu has no sign: there -x is NaN, and a rule that removes it would bring a number back.
    return match.root.array.dtype.name != "f8e8m0fnu"


def _has_sign(match: Match) -> bool:
    # The abs of an unsigned number is itself, and its negation is another.
    return _negatable(match) and match.A.array.dtype.kind != UNSIGNED


def _zero(match: Match) -> Instruction:
    return match.splat(match.root.array, 0)


def _one(match: Match) -> Instruction:
    return match.splat(match.root.array, 1)


def _times_reciprocal(match: Match) -> Instruction | None:
    """Exact where the reciprocal is: then both round the same real number once."""
    shape, value = match.root.array, scalar_value(match.C)
    if value is None or float(value) == 0 or not np.isfinite(float(value)):
        return None
    reciprocal = np.array(1 / float(value)).astype(shape.dtype.numpy)
    if float(reciprocal) == 0 or not np.isfinite(float(reciprocal)):
        return None
    mantissa, _ = np.frexp(float(value))
    if not match.fast_math and (
        abs(mantissa) != 0.5 or abs(float(reciprocal)) < _smallest_normal(shape.dtype.name)
    ):
        return None
    return match.make("multiply", (match.A, match.splat(shape, reciprocal)), {}, shape)


def _smallest_normal(dtype: str) -> float:
    exponent = {"f16": -14, "bf16": -126, "f32": -126, "f64": -1022}
    return float(2.0 ** exponent.get(dtype, 1024 - 1))


def _shift(match: Match) -> Instruction | None:
    exponent = power_of_two(match.N)
    if exponent is None or exponent == 0:
        return None
    shape = match.root.array
    return match.make("shift-right-logical", (match.A, match.splat(shape, exponent)), {}, shape)


def _mask(match: Match) -> Instruction | None:
    exponent = power_of_two(match.N)
    if exponent is None:
        return None
    shape = match.root.array
    return match.make("and", (match.A, match.splat(shape, (1 << exponent) - 1)), {}, shape)


RULES = (
    Rule(
        "A + 0 => A",
        A + Z,
        A,
        when=_adds_nothing,
        example="x = $T[6] parameter(0)\n y = $T[6] abs(x)\n z = $T[] constant(0)\n"
        "b = $T[6] broadcast(z), dimensions={}\n ROOT r = $T[6] add(b, y)",
        counterexample="x = f32[6] parameter(0)\n z = f32[] constant(0)\n"
        "b = f32[6] broadcast(z), dimensions={}\n ROOT r = f32[6] add(x, b)",
        types=("f32", "f16", "bf16", "s32", "s8"),
    ),
    Rule(
        "A - 0 => A",
        A - Z,
        A,
        when=_subtracts_nothing,
        example="x = $T[] parameter(0)\n z = $T[] constant(0)\n ROOT r = $T[] subtract(x, z)",
        counterexample="x = f32[] parameter(0)\n z = f32[] constant(-0.0)\n"
        "ROOT r = f32[] subtract(x, z)",
        types=_NUMBERS,
    ),
    Rule(
        "0 - A => -A",
        op("subtract", Z, A),
        -A,
        when=_negates,
        example="x = $T[] parameter(0)\n z = $T[] constant(0)\n ROOT r = $T[] subtract(z, x)",
        counterexample="x = f32[] parameter(0)\n z = f32[] constant(0)\n"
        "ROOT r = f32[] subtract(z, x)",
        types=_INTEGERS,
    ),
    Rule(
        "A - A => 0",
        A - A,
        _zero,
        when=exact_or_fast,
        example="x = $T[6] parameter(0)\n ROOT r = $T[6] subtract(x, x)",
        counterexample="x = f32[6] parameter(0)\n ROOT r = f32[6] subtract(x, x)",
        types=_INTEGERS,
    ),
    Rule(
        "A * 1 => A",
        A * 1,
        A,
        when=_real_or_fast,
        example="x = $T[6] parameter(0)\n o = $T[] constant(1)\n"
        "b = $T[6] broadcast(o), dimensions={}\n ROOT r = $T[6] multiply(b, x)",
        counterexample="x = c64[6] parameter(0)\n o = c64[] constant((1, 0))\n"
        "b = c64[6] broadcast(o), dimensions={}\n ROOT r = c64[6] multiply(b, x)",
        types=_NUMBERS,
    ),
    Rule(
        "A * -1 => -A",
        A * -1,
        -A,
        when=_real_or_fast,
        example="x = $T[] parameter(0)\n o = $T[] constant(-1)\n ROOT r = $T[] multiply(x, o)",
        counterexample="x = c64[] parameter(0)\n o = c64[] constant((-1, 0))\n"
        "ROOT r = c64[] multiply(x, o)",
        types=("f32", "bf16", "s32", "s8"),
    ),
    Rule(
        "A * 0 => 0",
        A * Z,
        _zero,
        when=exact_or_fast,
        example="x = $T[6] parameter(0)\n z = $T[] constant(0)\n"
        "b = $T[6] broadcast(z), dimensions={}\n ROOT r = $T[6] multiply(x, b)",
        counterexample="x = f32[] parameter(0)\n z = f32[] constant(0)\n"
        "ROOT r = f32[] multiply(x, z)",
        types=_INTEGERS,
    ),
    Rule(
        "A / 1 => A",
        A / 1,
        A,
        when=_real_or_fast,
        example="x = $T[] parameter(0)\n o = $T[] constant(1)\n ROOT r = $T[] divide(x, o)",
        counterexample="x = f32[] parameter(0)\n o = f32[] constant(1)\n ROOT r = f32[] divide(o, x)",
        types=_NUMBERS,
    ),
    Rule(
        "A / 2^N => A >> N",
        op("divide", A, N).where(has_kind(UNSIGNED)),
        _shift,
        example="x = $T[6] parameter(0)\n n = $T[] constant(8)\n"
        "b = $T[6] broadcast(n), dimensions={}\n ROOT r = $T[6] divide(x, b)",
        counterexample="x = s32[] parameter(0)\n n = s32[] constant(8)\n ROOT r = s32[] divide(x, n)",
        types=("u32", "u8", "u64"),
    ),
    Rule(
        "A % 2^N => A & (2^N - 1)",
        op("remainder", A, N).where(has_kind(UNSIGNED)),
        _mask,
        example="x = $T[] parameter(0)\n n = $T[] constant(16)\n ROOT r = $T[] remainder(x, n)",
        counterexample="x = u32[] parameter(0)\n n = u32[] constant(12)\n"
        "ROOT r = u32[] remainder(x, n)",
        types=("u32", "u8", "u64"),
    ),
    Rule(
        "A / C => A * (1 / C)",
        op("divide", A, C).where(has_kind(FLOAT)),
        _times_reciprocal,
        example="x = $T[6] parameter(0)\n c = $T[] constant(-8)\n"
        "b = $T[6] broadcast(c), dimensions={}\n ROOT r = $T[6] divide(x, b)",
        counterexample="x = f32[] parameter(0)\n c = f32[] constant(3)\n ROOT r = f32[] divide(x, c)",
        types=_FLOATS,
    ),
    Rule(
        "-(-A) => A",
        op("negate", -A),
        A,
        when=_negatable,
        example="x = $T[6] parameter(0)\n n = $T[6] negate(x)\n ROOT r = $T[6] negate(n)",
        counterexample="x = f32[] parameter(0)\n n = f32[] abs(x)\n ROOT r = f32[] negate(n)",
        types=(*_NUMBERS, "c64"),
    ),
    Rule(
        "A + (-B) => A - B",
        A + (-B),
        A - B,
        when=_negatable,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n n = $T[6] negate(x)\n"
        "ROOT r = $T[6] add(n, y)",
        counterexample="x = f32[] parameter(0)\n n = f32[] abs(x)\n ROOT r = f32[] add(n, x)",
        types=_NUMBERS,
    ),
    Rule(
        "A - (-B) => A + B",
        A - (-B),
        A + B,
        when=_negatable,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n n = $T[6] negate(x)\n"
        "ROOT r = $T[6] subtract(y, n)",
        counterexample="x = f32[] parameter(0)\n y = f32[] parameter(1)\n n = f32[] negate(x)\n"
        "ROOT r = f32[] subtract(n, y)",
        types=_NUMBERS,
    ),
    Rule(
        "(-A) * (-B) => A * B",
        (-A) * (-B),
        A * B,
        when=_negatable,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n n = $T[6] negate(x)\n"
        "m = $T[6] negate(y)\n ROOT r = $T[6] multiply(n, m)",
        counterexample="x = f32[] parameter(0)\n y = f32[] parameter(1)\n n = f32[] negate(x)\n"
        "ROOT r = f32[] multiply(n, y)",
        types=_NUMBERS,
    ),
    Rule(
        "(A + C1) + C2 => A + (C1 + C2)",
        (A + C1) + C2,
        A + (C1 + C2),
        when=exact_or_fast,
        example="x = $T[] parameter(0)\n c = $T[] constant(100)\n d = $T[] constant(99)\n"
        "y = $T[] add(x, c)\n ROOT r = $T[] add(d, y)",
        counterexample="x = f32[] parameter(0)\n c = f32[] constant(100)\n d = f32[] constant(0.1)\n"
        "y = f32[] add(x, c)\n ROOT r = f32[] add(y, d)",
        types=_INTEGERS,
    ),
    Rule(
        "(A * C1) * C2 => A * (C1 * C2)",
        (A * C1) * C2,
        A * (C1 * C2),
        when=exact_or_fast,
        example="x = $T[] parameter(0)\n c = $T[] constant(100)\n d = $T[] constant(99)\n"
        "y = $T[] multiply(x, c)\n ROOT r = $T[] multiply(d, y)",
        counterexample="x = f32[] parameter(0)\n c = f32[] constant(3)\n d = f32[] constant(0.1)\n"
        "y = f32[] multiply(x, c)\n ROOT r = f32[] multiply(y, d)",
        types=_INTEGERS,
    ),
    Rule(
        "(A - B) + B => A",
        (A - B) + B,
        A,
        when=exact_or_fast,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n d = $T[6] subtract(x, y)\n"
        "ROOT r = $T[6] add(y, d)",
        counterexample="x = f32[] parameter(0)\n y = f32[] parameter(1)\n d = f32[] subtract(x, y)\n"
        "ROOT r = f32[] add(d, y)",
        types=_INTEGERS,
    ),
    Rule(
        "(A + B) - B => A",
        (A + B) - B,
        A,
        when=exact_or_fast,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n s = $T[6] add(y, x)\n"
        "ROOT r = $T[6] subtract(s, y)",
        counterexample="x = s32[] parameter(0)\n y = s32[] parameter(1)\n s = s32[] add(x, y)\n"
        "ROOT r = s32[] subtract(y, s)",
        types=_INTEGERS,
    ),
    Rule(
        "power(A, 0) => 1",
        op("power", A, Z),
        _one,
        when=_real_or_fast,
        example="x = $T[] parameter(0)\n z = $T[] constant(0)\n ROOT r = $T[] power(x, z)",
        counterexample="x = f32[] parameter(0)\n z = f32[] constant(0)\n ROOT r = f32[] power(z, x)",
        types=("f32", "f64", "bf16", "s32"),
    ),
    Rule(
        "power(A, 1) => A",
        op("power", A, splat(1)),
        A,
        when=_real_or_fast,
        example="x = $T[] parameter(0)\n o = $T[] constant(1)\n ROOT r = $T[] power(x, o)",
        counterexample="x = f32[] parameter(0)\n t = f32[] constant(2)\n ROOT r = f32[] power(x, t)",
        types=("f32", "f64", "bf16", "s32"),
    ),
    Rule(
        "power(A, 2) => A * A",
        op("power", A, splat(2)),
        A * A,
        fast_math=True,
        example="x = f32[] parameter(0)\n t = f32[] constant(2)\n ROOT r = f32[] power(x, t)",
        counterexample="x = f32[] parameter(0)\n t = f32[] constant(3)\n ROOT r = f32[] power(x, t)",
    ),
    Rule(
        "A / sqrt(B) => A * rsqrt(B)",
        op("divide", A, op("sqrt", B)),
        A * op("rsqrt", B),
        fast_math=True,
        example="x = f32[] parameter(0)\n y = f32[] parameter(1)\n s = f32[] sqrt(y)\n"
        "ROOT r = f32[] divide(x, s)",
        counterexample="x = f32[] parameter(0)\n s = f32[] sqrt(x)\n ROOT r = f32[] divide(s, x)",
    ),
    Rule(
        "exp(A) * exp(B) => exp(A + B)",
        op("exponential", A).one_use * op("exponential", B).one_use,
        op("exponential", A + B),
        fast_math=True,
        example="x = f32[] parameter(0)\n y = f32[] parameter(1)\n e = f32[] exponential(x)\n"
        "f = f32[] exponential(y)\n ROOT r = f32[] multiply(e, f)",
        counterexample="x = f32[] parameter(0)\n e = f32[] exponential(x)\n"
        "ROOT r = f32[] multiply(e, e)",
    ),
    Rule(
        "log(exp(A)) => A",
        op("log", op("exponential", A)),
        A,
        fast_math=True,
        example="x = f32[] parameter(0)\n e = f32[] exponential(x)\n ROOT r = f32[] log(e)",
        counterexample="x = f32[] parameter(0)\n e = f32[] log(x)\n ROOT r = f32[] exponential(e)",
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
        when=_has_sign,
        example="x = $T[6] parameter(0)\n a = $T[6] negate(x)\n ROOT r = $T[6] abs(a)",
        counterexample="x = f32[] parameter(0)\n a = f32[] abs(x)\n ROOT r = f32[] negate(a)",
        types=("f32", "s8", "bf16"),
    ),
    Rule(
        "real(complex(A, B)) => A",
        op("real", op("complex", A, B)),
        A,
        example="x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n z = c64[6] complex(x, y)\n"
        "ROOT r = f32[6] real(z)",
        counterexample="x = c64[] parameter(0)\n ROOT r = f32[] real(x)",
    ),
    Rule(
        "imag(complex(A, B)) => B",
        op("imag", op("complex", A, B)),
        B,
        example="x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n z = c64[6] complex(x, y)\n"
        "ROOT r = f32[6] imag(z)",
        counterexample="x = c64[] parameter(0)\n ROOT r = f32[] imag(x)",
    ),
    Rule(
        "complex(real(A), imag(A)) => A",
        op("complex", op("real", A), op("imag", A)),
        A,
        example="z = c64[6] parameter(0)\n x = f32[6] real(z)\n y = f32[6] imag(z)\n"
        "ROOT r = c64[6] complex(x, y)",
        counterexample="z = c64[] parameter(0)\n x = f32[] real(z)\n y = f32[] imag(z)\n"
        "ROOT r = c64[] complex(y, x)",
    ),
)
