"""Rules for quotients of floats; those of integers are in ``integers``."""

from __future__ import annotations

import numpy as np

from hloopt.analysis.value_range import IEEE
from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op, splat, splat_literal, var, variables
from hloopt.simplify.conditions import (
    FLOAT,
    has_kind,
    is_exact,
    real_or_fast,
)
from hloopt.types import Array, Literal, array

__all__ = ["RULES"]

A, B, C, D = variables("A B C D")
REAL = var("A", has_kind(FLOAT))

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
    return match.make("multiply", match.A, _with_values(match, reciprocals), shape=shape)


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


RULES = (
    Rule("A / 1 => A", A / 1, A, when=real_or_fast),
    Rule("A / -1 => -A", op("divide", A, splat(-1)), -A, when=is_exact),
    Rule("A / C => A * (1 / C)", op("divide", A, var("C", _is_constant)), _times_reciprocal),
    Rule(
        "(-A) / (-B) => A / B",
        (-A) / (-B),
        A / B,
        when=lambda match: is_exact(match) and match.array.dtype.kind == FLOAT,
    ),
    Rule(
        "A / broadcast(B) => A * broadcast(1 / B)",
        op("divide", REAL, op("broadcast", B).one_use),
        _reciprocal_first,
        fast_math=True,
    ),
    Rule(
        "(A / B) / (C / D) => (A * D) / (B * C)",
        op("divide", (A / B).one_use, (C / D).one_use).where(has_kind(FLOAT)),
        (A * D) / (B * C),
        fast_math=True,
    ),
    Rule(
        "(A / B) / C => A / (B * C)",
        op("divide", (A / B).one_use, C).where(has_kind(FLOAT)),
        A / (B * C),
        fast_math=True,
    ),
    Rule(
        "A / (B / C) => (A * C) / B",
        op("divide", A, (B / C).one_use).where(has_kind(FLOAT)),
        (A * C) / B,
        fast_math=True,
    ),
    Rule(
        "A / sqrt(B) => A * rsqrt(B)",
        op("divide", REAL, op("sqrt", B)),
        A * op("rsqrt", B),
        fast_math=True,
    ),
    Rule(
        "A / rsqrt(B) => A * sqrt(B)",
        op("divide", REAL, op("rsqrt", B)),
        A * op("sqrt", B),
        fast_math=True,
    ),
    Rule(
        "A / exp(B) => A * exp(-B)",
        op("divide", REAL, op("exponential", B).one_use),
        A * op("exponential", -B),
        fast_math=True,
    ),
    Rule(
        "A / power(B, C) => A * power(B, -C)",
        op("divide", A, op("power", B, C).one_use).where(has_kind(FLOAT)),
        A * op("power", B, -C),
        fast_math=True,
    ),
    Rule(
        "exp(A) / exp(B) => exp(A - B)",
        op("divide", op("exponential", REAL).one_use, op("exponential", B).one_use),
        op("exponential", A - B),
        fast_math=True,
    ),
)
