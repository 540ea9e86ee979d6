"""Rules for sums, differences and products; constants stand on the right."""

from __future__ import annotations

import numpy as np

from hloopt.ir import Instruction
from hloopt.ops import OPS
from hloopt.rewrite import Match, Rule, op, splat, splat_literal, var, variables
from hloopt.simplify.constant_arithmetic import folded
from hloopt.simplify.predicates import (
    COMPLEX,
    FLOAT,
    INTEGER,
    PRED,
    exact_or_fast,
    exact_or_real,
    has_kind,
    is_negatable,
    is_negative_zero,
    is_positive_zero,
    known_value,
    real_or_fast,
    scalar_value,
)

__all__ = ["RULES"]

A, B, P, Q = variables("A B P Q")
Z, C = splat(0, name="Z"), splat(name="C")
C1, C2 = splat(name="C1"), splat(name="C2")

_COMMUTATIVE = tuple(name for name, row in OPS.items() if row.commutative)


def _is_constant(instruction: Instruction) -> bool:
    return instruction.opcode == "constant" or splat_literal(instruction) is not None


def _constant_right(match: Match) -> Instruction | None:
    left, right = match.root.operands
    if not _is_constant(left) or _is_constant(right):
        return None
    return match.result(match.root.opcode, right, left)


def _adds_nothing(match: Match) -> bool:
    # -0.0 + 0.0 is 0.0, so only -0.0 is neutral for every float.
    kind = match.array.dtype.kind
    if match.fast_math or kind in (*INTEGER, PRED) or is_negative_zero(match.Z):
        return True
    return kind == FLOAT and not match.range_of(match.A).negative_zero


def _subtracts_nothing(match: Match) -> bool:
    # x - 0.0 keeps x, whatever its sign; x - -0.0 turns -0.0 into 0.0.
    return match.fast_math or match.array.dtype.kind in INTEGER or is_positive_zero(match.Z)


def _negates(match: Match) -> bool:
    # 0.0 - 0.0 is 0.0, and -(0.0) is not.
    return match.fast_math or match.array.dtype.kind in INTEGER or is_negative_zero(match.Z)


def _is_itself_less_itself(match: Match) -> bool:
    return exact_or_real(match) or match.range_of(match.A).is_finite


def _is_times_zero(match: Match) -> bool:
    """Of a float: exact where it is finite and has no sign; then the product has that of the zero."""
    known = match.range_of(match.A)
    return exact_or_real(match) or (known.is_finite and known.is_non_negative)


def _two_constants(match: Match) -> bool:
    """XLA regroups what constants multiply, broadcasts of constants not: they fuse as they are."""
    constants = match.C1.opcode == match.C2.opcode == "constant"
    return exact_or_real(match) or (match.fast_math and constants)


def _is_number_exact_or_fast(match: Match) -> bool:
    return exact_or_fast(match) and match.array.dtype.kind != PRED


def _has_common_factor(match: Match) -> bool:
    """A common factor that is not a constant on both sides: two products become one.

    Of floats a sum may overflow, and products with zero be NaN: XLA does so for powers of two only.
    """
    scaled = match.fast_math and _is_power_of_two(match.A)
    return (scaled or exact_or_real(match)) and match.array.dtype.kind != PRED


def _is_power_of_two(instruction: Instruction) -> bool:
    value = scalar_value(instruction)
    if value is None or instruction.array.dtype.kind != FLOAT:
        return False
    mantissa, _ = np.frexp(np.abs(value.astype(np.float64)))
    return bool(mantissa == 0.5)


def _is_zero_times_zero(match: Match) -> bool | None:
    """0 * A is 0 where A is finite and has no sign."""
    known, kind = match.range_of(match.A), match.array.dtype.kind
    if kind == FLOAT and not match.fast_math and not (known.is_finite and known.is_non_negative):
        return match.refuse("the other factor may be negative, infinite or NaN")
    return kind != PRED and real_or_fast(match)


def _smaller_first(match: Match) -> Instruction | None:
    """``(A * C) * broadcast(B)`` as ``A * broadcast(B * C)``, where ``B`` has fewer elements."""
    small = match.B
    if small.array.elements >= match.array.elements or splat_literal(match.P) is not None:
        return None
    constant = match.splat(small.array, known_value(match.C))
    product = match.make("multiply", small, constant, shape=small.array)
    wide = match.make("broadcast", product, shape=match.P.array, **match.P.attributes)
    return match.result("multiply", match.A, wide)


RULES = (
    Rule(
        "C + A => A + C",
        op(_COMMUTATIVE),
        _constant_right,
        among=frozenset({"constant", "broadcast"}),
    ),
    Rule("A + 0 => A", A + Z, A, when=_adds_nothing),
    Rule("A - 0 => A", A - Z, A, when=_subtracts_nothing),
    Rule("0 - A => -A", Z - A, -A, when=_negates),
    Rule("A - A => 0", A - A, splat(0), when=_is_itself_less_itself),
    Rule("A - C => A + (-C)", A - C, A + folded(-C), when=is_negatable),
    Rule("A + (-B) => A - B", A + (-B), A - B, when=is_negatable),
    Rule("A - (-B) => A + B", A - (-B), A + B, when=is_negatable),
    Rule("(A + C1) + C2 => A + (C1 + C2)", (A + C1) + C2, A + folded(C1 + C2), when=exact_or_fast),
    Rule("(C1 - A) + C2 => (C1 + C2) - A", (C1 - A) + C2, folded(C1 + C2) - A, when=exact_or_fast),
    Rule("C1 - (A + C2) => (C1 - C2) - A", C1 - (A + C2), folded(C1 - C2) - A, when=exact_or_fast),
    Rule("(A - B) + B => A", (A - B) + B, A, when=exact_or_real),
    Rule("(A + B) - B => A", (A + B) - B, A, when=exact_or_real),
    Rule("A - (A - B) => B", A - (A - B), B, when=exact_or_real),
    Rule("A - (A + B) => -B", A - (A + B), -B, when=exact_or_real),
    Rule("(A - B) - A => -B", (A - B) - A, -B, when=exact_or_real),
    Rule("(A + P) - (A + Q) => P - Q", (A + P).one_use - (A + Q), P - Q, when=exact_or_real),
    Rule("A * 1 => A", A * 1, A, when=real_or_fast),
    Rule("A * -1 => -A", A * -1, -A, when=lambda match: match.array.dtype.kind != COMPLEX),
    Rule("A * 0 => 0", A * Z, var("Z"), when=_is_times_zero),
    Rule("(-A) * (-B) => A * B", (-A) * (-B), A * B, when=is_negatable),
    Rule(
        "abs(A) * abs(A) => A * A",
        op("abs", var("A", has_kind(FLOAT, *INTEGER))) * op("abs", A),
        A * A,
    ),
    Rule("(A * C1) * C2 => A * (C1 * C2)", (A * C1) * C2, A * folded(C1 * C2), when=exact_or_fast),
    Rule(
        "A * C + A => A * (C + 1)",
        (A * C).one_use + A,
        A * folded(C + 1),
        when=_is_number_exact_or_fast,
    ),
    Rule(
        "P * A + Q * A => (P + Q) * A",
        (P * A).one_use + (Q * A).one_use,
        (P + Q) * A,
        when=_has_common_factor,
    ),
    Rule(
        "P * A - Q * A => (P - Q) * A",
        (P * A).one_use - (Q * A).one_use,
        (P - Q) * A,
        when=_has_common_factor,
    ),
    Rule(
        "(A * C1) * (B * C2) => (A * B) * (C1 * C2)",
        (A * C1).one_use * (B * C2).one_use,
        (A * B) * (C1 * C2),
        when=_two_constants,
    ),
    Rule(
        "(A * C) * broadcast(B) => A * broadcast(B * C)",
        (A * C).one_use * op("broadcast", B).bind("P"),
        _smaller_first,
        when=exact_or_fast,
    ),
    Rule(
        "convert(P) * A => select(P, A, 0)",
        op("convert", var("P", has_kind(PRED))) * A,
        op("select", P, A, splat(0)),
        when=_is_zero_times_zero,
    ),
)
