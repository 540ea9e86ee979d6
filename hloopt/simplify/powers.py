"""Rules for powers, roots, exponentials and logarithms."""

from __future__ import annotations

from collections.abc import Callable

from hloopt.ir import Instruction
from hloopt.ops.traits import INTEGRAL, MONOTONE
from hloopt.rewrite import Match, Rule, op, splat, var, variables
from hloopt.simplify.conditions import (
    FLOAT,
    exact_or_fast,
    has_kind,
    is_exact,
    real_or_fast,
)

__all__ = ["RULES"]

A, B = variables("A B")
Z = splat(0, name="Z")
REAL = var("A", has_kind(FLOAT))


def _one(match: Match) -> Instruction:
    return match.splat(match.array, 1)


def _scaled(factor: float) -> Callable[[Match], Instruction]:
    def make(match: Match) -> Instruction:
        shape = match.array
        logarithm = match.make("log", match.A, shape=shape)
        return match.make("multiply", logarithm, match.splat(shape, factor), shape=shape)

    return make


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
    known = match.values.of(match.A)
    return known.low >= 0 and not known.negative_zero


def _inverse(match: Match) -> Instruction:
    return match.result("divide", _one(match), match.A)


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
    Rule(
        "exp(A) * exp(B) => exp(A + B)",
        op("exponential", REAL).one_use * op("exponential", B).one_use,
        op("exponential", A + B),
        fast_math=True,
    ),
    Rule("power(A, 0) => 1", op("power", A, Z), _one, when=real_or_fast),
    Rule("power(A, 1) => A", op("power", A, splat(1)), A, when=real_or_fast),
    Rule("power(A, 2) => A * A", op("power", A, splat(2)), A * A, when=exact_or_fast),
    Rule("power(A, 3) => A * A * A", op("power", A, splat(3)), (A * A) * A, when=exact_or_fast),
    Rule(
        "power(A, -1) => 1 / A",
        op("power", var("A", has_kind(FLOAT, "complex")), splat(-1)),
        _inverse,
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
        _inverse,
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
        op("rsqrt", op("divide", splat(1), A)),
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
    Rule("log(sqrt(A)) => log(A) * 0.5", op("log", op("sqrt", A)), _scaled(0.5), fast_math=True),
    Rule(
        "log(rsqrt(A)) => log(A) * -0.5", op("log", op("rsqrt", A)), _scaled(-0.5), fast_math=True
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
