"""Rules for maximum, minimum and clamp.

-0.0 is less than 0.0 to them, and a NaN on either side is the result: they choose by one total order, whatever
the order in which operands come, so that chains of them may be put together freely.
"""

from __future__ import annotations

from hloopt.analysis.value_range import ValueRange
from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op, same_op, splat, variables
from hloopt.simplify.constant_arithmetic import folded, holds
from hloopt.simplify.predicates import (
    FLOAT,
    PRED,
    has_kind,
    has_known_arithmetic,
    is_exact,
    is_highest,
    is_lowest,
    repeats_root,
)

__all__ = ["RULES"]

A, B, C, P = variables("A B C P")
C1, C2 = splat(name="C1"), splat(name="C2")
LOWEST, HIGHEST = splat(name="L").where(is_lowest), splat(name="H").where(is_highest)
EXTREMA = ("maximum", "minimum")


def _is_above(upper: ValueRange, lower: ValueRange) -> bool:
    """Whether the maximum is always ``upper``: no smaller, -0.0 beside 0.0 and the NaN of others minded."""
    if lower.nan or upper.low < lower.high:
        return False
    return upper.low > lower.high or upper.low != 0 or not upper.negative_zero


def _is_below(lower: ValueRange, upper: ValueRange) -> bool:
    if upper.nan or lower.high > upper.low:
        return False
    # A zero of the upper one that is -0.0 is below a 0.0.
    return lower.high < upper.low or lower.high != 0 or not upper.negative_zero


def _by_ranges(match: Match) -> bool:
    if not has_known_arithmetic(match.root):
        return False
    a, b = match.range_of(match.A), match.range_of(match.B)
    return _is_above(a, b) if match.root.opcode == "maximum" else _is_below(a, b)


def _repeats_root(match: Match) -> bool:
    return repeats_root(match) and is_exact(match)


def _absorbed(match: Match) -> Instruction | None:
    """``max(A, min(A, B))`` is A, unless B brings a NaN."""
    if repeats_root(match) or not is_exact(match):
        return None
    if (
        match.array.dtype.kind == FLOAT
        and not match.floats_are_real
        and match.range_of(match.B).nan
    ):
        return match.refuse("the other operand may be NaN")
    return match.A


def _as_clamp(match: Match) -> Instruction | None:
    """``max(C2, min(C1, A))`` and ``min(C2, max(C1, A))`` where the bounds do not cross."""
    if repeats_root(match) or not is_exact(match):
        return None
    low, high = match.C1, match.C2
    if match.root.opcode == "maximum":
        low, high = high, low
    if not holds("LT", low, high):
        return None
    return match.result("clamp", low, match.A, high)


def _clamp_by_ranges(match: Match) -> Instruction | None:
    """A bound that is never met is dropped: both, the lower, or the upper one."""
    low, high = (match.range_of(entry) for entry in (match.P, match.C))
    known = match.range_of(match.A)
    if not has_known_arithmetic(match.root):
        return None
    never_low, never_high = _is_above(known, low), _is_below(known, high)
    if never_low and never_high:
        return match.A
    if never_low or (never_high and _is_below(low, high)):
        opcode, bound = ("minimum", match.C) if never_low else ("maximum", match.P)
        return match.result(opcode, match.A, _widened(match, bound))
    return None


def _widened(match: Match, bound: Instruction) -> Instruction:
    """A scalar bound for all elements."""
    if bound.array.dims == match.array.dims:
        return bound
    return match.result("broadcast", bound, dimensions=())


def _clamp_to_one(match: Match) -> Instruction | None:
    """Bounds that are one instruction leave nothing else; a NaN stays."""
    if match.array.dtype.kind == FLOAT and match.range_of(match.A).nan:
        return None
    return _widened(match, match.P) if has_known_arithmetic(match.root) else None


def _as_logic(match: Match) -> Instruction:
    """Of pred, maximum and add are or; minimum and multiply are and."""
    opcode = "or" if match.root.opcode in ("maximum", "add") else "and"
    return match.result(opcode, match.A, match.B)


RULES = (
    Rule("max(A, A) => A", op("maximum", A, A), A),
    Rule("min(A, A) => A", op("minimum", A, A), A),
    Rule("max(A, lowest) => A", op("maximum", A, LOWEST), A),
    Rule("min(A, highest) => A", op("minimum", A, HIGHEST), A),
    Rule("max(A, B) => A where A >= B", op(EXTREMA, A, B), A, when=_by_ranges),
    Rule(
        "max(max(A, B), B) => max(A, B)",
        op(EXTREMA, op(EXTREMA, A, B).bind("P"), B),
        P,
        when=_repeats_root,
    ),
    Rule("max(A, min(A, B)) => A", op(EXTREMA, A, op(EXTREMA, A, B).bind("P")), _absorbed),
    Rule(
        "max(max(A, C1), C2) => max(A, max(C1, C2))",
        op(EXTREMA, op(EXTREMA, A, C1).bind("P"), C2),
        same_op(A, folded(same_op(C1, C2))),
        when=_repeats_root,
    ),
    Rule(
        "max(min(A, C1), C2) => clamp(C2, A, C1)",
        op(EXTREMA, op(EXTREMA, A, C1).one_use.bind("P"), C2),
        _as_clamp,
    ),
    Rule(
        "clamp(A, clamp(A, B, C), C) => clamp(A, B, C)",
        op("clamp", A, op("clamp", A, B, C).bind("P"), C),
        P,
        when=is_exact,
    ),
    Rule("clamp(P, A, C) => A where P <= A <= C", op("clamp", P, A, C), _clamp_by_ranges),
    Rule("clamp(P, A, P) => P", op("clamp", P, A, P), _clamp_to_one),
    Rule(
        "min(clamp(A, B, C), C) => clamp(A, B, C)",
        op("minimum", op("clamp", A, B, C).bind("P"), C),
        P,
        when=is_exact,
    ),
    Rule(
        "pred max(A, B) => A | B",
        op((*EXTREMA, "add", "multiply"), A, B).where(has_kind(PRED)),
        _as_logic,
    ),
)
