"""Rules for ops of one number: negate, abs, sign, rounding, is-finite, and the parts of complex numbers."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.ops.traits import INTEGRAL
from hloopt.rewrite import Match, Rule, op, splat, var, variables
from hloopt.simplify.constant_arithmetic import folded
from hloopt.simplify.predicates import (
    COMPLEX,
    FLOAT,
    INTEGER,
    UNSIGNED,
    has_kind,
    is_exact,
    is_negatable,
    is_positive_zero,
    is_signed_negatable,
    scalar_value,
)
from hloopt.types import DTYPES

__all__ = ["RULES"]

A, B = variables("A B")
C = splat(name="C")
ROUNDED = INTEGRAL - {"sign"}


def _has_no_sign(match: Match) -> bool:
    known = match.range_of(match.A)
    return known.low >= 0 and not known.negative_zero


def _has_only_sign(match: Match) -> bool:
    """A zero without a sign must not be there: its negation has one."""
    known = match.range_of(match.A)
    if match.A.array.dtype.kind in INTEGER:
        return known.high <= 0
    return known.high < 0


def _is_whole(match: Match) -> bool:
    return match.range_of(match.A).whole


def _is_factor(instruction: Instruction) -> bool:
    """Whether this is a splat of more than a sign, for which there are rules of their own."""
    value = scalar_value(instruction)
    return value is not None and abs(complex(value)) != 1


def _is_exact_float(match: Match) -> bool:
    return is_exact(match) and match.array.dtype.kind not in INTEGER


def _differences(match: Match) -> bool:
    # A - A is +0, its negation -0.
    return match.fast_math or match.array.dtype.kind in INTEGER


def _negated_sum(match: Match) -> Instruction | None:
    """Sums round alike on both sides of zero; one that starts at 0.0 is never -0.0, nor is 0.0 - x."""
    root = match.root
    combiner = root.to_apply
    total = combiner.root
    if total.opcode != "add" or set(total.operands) != set(combiner.parameters):
        return None
    if not is_exact(match) or total.array.dtype is not root.array.dtype:
        return None
    if root.array.dtype.kind not in INTEGER and not is_positive_zero(match.Z):
        return None
    plain = match.result("reduce", match.A, match.Z, **root.attributes)
    return match.result("subtract", match.splat(root.array, 0), plain)


REAL = var("A", has_kind(FLOAT))


def _is_imaginary_unit(instruction: Instruction) -> bool:
    value = scalar_value(instruction)
    return value is not None and complex(value) == 1j


I = splat(name="I").where(_is_imaginary_unit)  # noqa: E741 - the number


def _from_parts(match: Match) -> Instruction:
    """Numbers put together as JAX does: 0 * B is 0, but for infinities and NaN."""
    shape = match.array
    part = DTYPES["f32" if shape.dtype.name == "c64" else "f64"]
    parts = tuple(
        entry
        if entry.array.dtype is part
        else match.make("convert", entry, shape=shape.with_dtype(part))
        for entry in (match.A, match.B)
    )
    return match.make("complex", *parts, shape=shape)


RULES = (
    Rule("-(-A) => A", op("negate", -A), A, when=is_negatable),
    Rule("-(A - B) => B - A", op("negate", (A - B).one_use), B - A, when=_differences),
    Rule(
        "-(A * C) => A * (-C)",
        op("negate", (A * var("C", _is_factor)).one_use),
        A * folded(-C),
        when=is_exact,
    ),
    Rule("(-A) * C => A * (-C)", (-A) * C, A * folded(-C), when=is_exact),
    Rule("(-A) / C => A / (-C)", (-A) / C, A / folded(-C), when=_is_exact_float),
    Rule(
        "reduce-add(-A, 0) => 0 - reduce-add(A, 0)",
        op("reduce", (-A).one_use, splat(0, name="Z")),
        _negated_sum,
    ),
    Rule("abs(A) => A without a sign", op("abs", A), A, when=_has_no_sign),
    Rule("abs(A) => -A of a negative A", op("abs", A), -A, when=_has_only_sign),
    Rule("abs(abs(A)) => abs(A)", op("abs", op("abs", A).bind("B")), B),
    Rule("abs(-A) => abs(A)", op("abs", -A), op("abs", A), when=is_signed_negatable),
    Rule(
        "A * sign(A) => abs(A)",
        A * op("sign", A),
        op("abs", A),
        when=lambda match: is_exact(match) and match.array.dtype.kind != UNSIGNED,
    ),
    Rule("sign(sign(A)) => sign(A)", op("sign", op("sign", A).bind("B")), B, when=is_exact),
    Rule("floor(A) => A of whole numbers", op(ROUNDED, A), A, when=_is_whole),
    Rule(
        "is-finite(A) => true of finite numbers",
        op("is-finite", A),
        splat(1),
        when=lambda match: match.range_of(match.A).is_finite,
    ),
    Rule("real(complex(A, B)) => A", op("real", op("complex", A, B)), A),
    Rule("imag(complex(A, B)) => B", op("imag", op("complex", A, B)), B),
    Rule(
        "complex(real(A), imag(A)) => A",
        op("complex", op("real", var("A", has_kind(COMPLEX))), op("imag", A)),
        A,
    ),
    Rule("real(A) => A of a real number", op("real", var("A", has_kind(FLOAT))), A),
    Rule("imag(A) => 0 of a real number", op("imag", var("A", has_kind(FLOAT))), splat(0)),
    Rule(
        "convert(A) + convert(B) * i => complex(A, B)",
        op("convert", REAL).one_use + (op("convert", var("B", has_kind(FLOAT))) * I).one_use,
        _from_parts,
        floats_are_real=True,
    ),
)
