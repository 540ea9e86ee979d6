"""Rules for quotients of floats, powers, roots, exponentials and logarithms; integers divide in ``integer``."""

from __future__ import annotations

import numpy as np

from hloopt.analysis.value_range import IEEE
from hloopt.ir import Instruction
from hloopt.ops.traits import INTEGRAL, MONOTONE
from hloopt.rewrite import Match, Rule, op, splat, splat_literal, var, variables
from hloopt.simplify.predicates import (
    FLOAT,
    exact_or_fast,
    has_kind,
    is_exact,
    real_or_fast,
)
from hloopt.types import Array, Literal, array

__all__ = ["RULES"]

A, B, C, D = variables("A B C D")
REAL, Z = var("A", has_kind(FLOAT)), splat(0, name="Z")

_SMALLEST_NORMAL = {"f16": -14, "bf16": -126, "f32": -126, "f64": -1022}


def _times_reciprocal(match: Match) -> Instruction | None:
    """Exact where the reciprocal is: then both round the same real number once."""
    shape, literal = match.array, _constant_of(match.C)
    if shape.dtype.kind != FLOAT or shape.dtype.name not in IEEE or literal is None:
        return None
    values = literal.astype(np.float64)
    with np.errstate(all="ignore"):
        reciprocals = np.asarray(1 / values).astype(shape.dtype.numpy)
    back = reciprocals.astype(np.float64)
    if not np.all(np.isfinite(values) & (values != 0) & np.isfinite(back) & (back != 0)):
        return None
    mantissas, _ = np.frexp(values)
    exact = (np.abs(mantissas) == 0.5) & (np.abs(back) >= 2.0 ** _SMALLEST_NORMAL[shape.dtype.name])
    if not match.fast_math and not exact.all():
        return match.refuse("the divisor's reciprocal is rounded, which fast_math allows")
    return match.result("multiply", match.A, _with_values(match, reciprocals))


def _constant_of(instruction: Instruction) -> Array | None:
    """The elements of a constant, or the one that a splat repeats."""
    literal = splat_literal(instruction) or instruction.literal
    return None if literal is None else literal.array


def _is_constant(instruction: Instruction) -> bool:
    return instruction.is_array and _constant_of(instruction) is not None


def _with_values(match: Match, values: Array) -> Instruction:
    shape = match.C.array
    if values.ndim == 0:
        return match.splat_of(shape, Literal(array(shape.dtype), values))
    return match.constant(Literal(shape, values))


def _reciprocal_first(match: Match) -> Instruction | None:
    """``A / broadcast(B)``: one division for each element of the smaller array."""
    small, wide = match.B, match.root.operands[1]
    if small.array.elements >= wide.array.elements or splat_literal(wide) is not None:
        return None
    if match.A.opcode == "broadcast":
        return None  # that division sinks below the broadcasts
    inverse = match.make("divide", match.splat(small.array, 1), small, shape=small.array)
    spread = match.make("broadcast", inverse, shape=wide.array, **wide.attributes)
    return match.result("multiply", match.A, spread)


def _log_of_power(match: Match) -> Instruction:
    """``B * log(|A|)``, or 0 where B is: the power is 1 then, of infinities and zeros as well."""
    shape = match.array
    zero = match.splat(shape, 0)
    size = match.make("log", match.make("abs", match.A, shape=shape), shape=shape)
    product = match.make("multiply", match.B, size, shape=shape)
    is_one = match.make("compare", match.B, zero, direction="EQ")
    return match.make("select", is_one, zero, product, shape=shape)


def _has_root(match: Match) -> bool:
    """Whether A has a root that is real, and a reciprocal of its sign."""
    known = match.range_of(match.A)
    return known.low >= 0 and not known.negative_zero


def _extremum_of(match: Match) -> Instruction | None:
    """``max(f(A), f(B))`` as ``f(max(A, B))`` for an f that never falls."""
    inner = match.inner
    if inner.opcode != match.root.operands[1].opcode or match.A is match.B:
        return None
    if not match.fast_math and (inner.opcode not in INTEGRAL or not is_exact(match)):
        return match.refuse(f"{inner.opcode} is rounded, maybe not always the same way")
    extremum = match.result(match.root.opcode, match.A, match.B)
    return match.result(inner.opcode, extremum, **inner.attributes)


RULES = (
    Rule("A / 1 => A", A / 1, A, when=real_or_fast),
    Rule("A / -1 => -A", A / -1, -A, when=is_exact),
    Rule("A / C => A * (1 / C)", A / var("C", _is_constant), _times_reciprocal),
    Rule(
        "(-A) / (-B) => A / B",
        (-A) / (-B),
        A / B,
        when=lambda match: is_exact(match) and match.array.dtype.kind == FLOAT,
    ),
    Rule(
        "A / broadcast(B) => A * broadcast(1 / B)",
        REAL / op("broadcast", B).one_use,
        _reciprocal_first,
        fast_math=True,
    ),
    Rule(
        "(A / B) / (C / D) => (A * D) / (B * C)",
        ((A / B).one_use / (C / D).one_use).where(has_kind(FLOAT)),
        (A * D) / (B * C),
        fast_math=True,
    ),
    Rule(
        "(A / B) / C => A / (B * C)",
        ((A / B).one_use / C).where(has_kind(FLOAT)),
        A / (B * C),
        fast_math=True,
    ),
    Rule(
        "A / (B / C) => (A * C) / B",
        (A / (B / C).one_use).where(has_kind(FLOAT)),
        (A * C) / B,
        fast_math=True,
    ),
    Rule(
        "A / sqrt(B) => A * rsqrt(B)",
        REAL / op("sqrt", B),
        A * op("rsqrt", B),
        fast_math=True,
    ),
    Rule(
        "A / rsqrt(B) => A * sqrt(B)",
        REAL / op("rsqrt", B),
        A * op("sqrt", B),
        fast_math=True,
    ),
    Rule(
        "A / exp(B) => A * exp(-B)",
        REAL / op("exponential", B).one_use,
        A * op("exponential", -B),
        fast_math=True,
    ),
    Rule(
        "A / power(B, C) => A * power(B, -C)",
        (A / op("power", B, C).one_use).where(has_kind(FLOAT)),
        A * op("power", B, -C),
        fast_math=True,
    ),
    Rule(
        "exp(A) / exp(B) => exp(A - B)",
        op("exponential", REAL).one_use / op("exponential", B).one_use,
        op("exponential", A - B),
        fast_math=True,
    ),
    Rule(
        "exp(A) * exp(B) => exp(A + B)",
        op("exponential", REAL).one_use * op("exponential", B).one_use,
        op("exponential", A + B),
        fast_math=True,
    ),
    Rule("power(A, 0) => 1", op("power", A, Z), splat(1), when=real_or_fast),
    Rule("power(A, 1) => A", op("power", A, splat(1)), A, when=real_or_fast),
    Rule("power(A, 2) => A * A", op("power", A, splat(2)), A * A, when=exact_or_fast),
    Rule("power(A, 3) => A * A * A", op("power", A, splat(3)), (A * A) * A, when=exact_or_fast),
    Rule(
        "power(A, -1) => 1 / A",
        op("power", var("A", has_kind(FLOAT, "complex")), splat(-1)),
        1 / A,
        fast_math=True,
    ),
    Rule(
        "power(A, 0.5) => sqrt(A)", op("power", A, splat(0.5)), op("sqrt", A), floats_are_real=True
    ),
    Rule(
        "power(exp(A), B) => exp(A * B)",
        op("power", op("exponential", REAL).one_use, B),
        op("exponential", A * B),
        fast_math=True,
    ),
    Rule(
        "sqrt(A) * sqrt(A) => A", op("sqrt", A) * op("sqrt", A), A, when=_has_root, fast_math=True
    ),
    Rule(
        "rsqrt(A) * rsqrt(A) => 1 / A",
        op("rsqrt", A) * op("rsqrt", A),
        1 / A,
        when=_has_root,
        fast_math=True,
    ),
    Rule("sqrt(A * A) => abs(A)", op("sqrt", REAL * A), op("abs", A), fast_math=True),
    Rule(
        "rsqrt(power(A, -2)) => abs(A)",
        op("rsqrt", op("power", REAL, splat(-2))),
        op("abs", A),
        when=_has_root,
        fast_math=True,
    ),
    Rule(
        "rsqrt(1 / A) => sqrt(A)",
        op("rsqrt", 1 / A),
        op("sqrt", A),
        when=_has_root,
        fast_math=True,
    ),
    Rule("log(exp(A)) => A", op("log", op("exponential", REAL)), A, fast_math=True),
    Rule("exp(log(A)) => A", op("exponential", op("log", A)), A, floats_are_real=True),
    Rule(
        "log(power(A, B)) => B * log(abs(A))",
        op("log", op("power", REAL, B)),
        _log_of_power,
        fast_math=True,
    ),
    Rule(
        "log(sqrt(A)) => log(A) * 0.5", op("log", op("sqrt", A)), op("log", A) * 0.5, fast_math=True
    ),
    Rule(
        "log(rsqrt(A)) => log(A) * -0.5",
        op("log", op("rsqrt", A)),
        op("log", A) * -0.5,
        fast_math=True,
    ),
    Rule(
        "max(f(A), f(B)) => f(max(A, B))",
        op("maximum", op(MONOTONE, A).one_use, op(MONOTONE, B).one_use),
        _extremum_of,
    ),
    Rule(
        "min(f(A), f(B)) => f(min(A, B))",
        op("minimum", op(MONOTONE, A).one_use, op(MONOTONE, B).one_use),
        _extremum_of,
    ),
)
