"""Rules for what compare says: of itself, by ranges, of extrema and of what a pred chose."""

from __future__ import annotations

from hloopt.analysis.values import decided
from hloopt.ir import Instruction
from hloopt.ops.traits import INVERSE, MIRRORED
from hloopt.rewrite import Match, Rule, op, splat, splat_literal, var
from hloopt.simplify.conditions import (
    FLOAT,
    INTEGER,
    PRED,
    compared,
    has_kind,
    has_known_arithmetic,
    is_plain,
    scalar_value,
)
from hloopt.simplify.folding import holds

__all__ = ["RULES"]

A, B, P = var("A"), var("B"), var("P", has_kind(PRED))
C, C1, C2 = splat(name="C"), splat(name="C1"), splat(name="C2")


def _constant_right(match: Match) -> Instruction | None:
    left, right = match.root.operands
    if left.opcode != "constant" and splat_literal(left) is None:
        return None
    if right.opcode == "constant" or splat_literal(right) is not None:
        return None
    return compared(match, right, left, MIRRORED[match.root.attributes["direction"]])


def _truth(match: Match, value: bool) -> Instruction:
    return match.splat(match.array, value)


def _compare_itself(match: Match) -> Instruction | None:
    """Of floats only what a NaN would not change: nothing is less than itself."""
    if not is_plain(match.root):
        return None
    direction = match.root.attributes["direction"]
    true = direction in ("EQ", "LE", "GE")
    kind = match.A.array.dtype.kind
    never_nan = kind in (*INTEGER, PRED) or (kind == FLOAT and not match.values.of(match.A).nan)
    if direction not in ("LT", "GT") and not never_nan:
        return match.refuse("a NaN is not equal to itself")
    return _truth(match, true)


def _by_ranges(match: Match) -> Instruction | None:
    if not is_plain(match.root):
        return None
    left, right = map(match.values.of, match.root.operands)
    answer = decided(match.root.attributes["direction"], left, right)
    return None if answer is None else _truth(match, answer)


def _pred_itself(match: Match) -> Instruction | None:
    """``P == true``, ``P != false`` are P; the other two are ``not P``."""
    direction, value = match.root.attributes["direction"], scalar_value(match.C)
    if value is None or direction not in ("EQ", "NE"):
        return None
    return _or_not(match, bool(value) == (direction == "EQ"))


def _or_not(match: Match, itself: bool) -> Instruction:
    return match.P if itself else match.result("not", match.P)


def _of_two(match: Match, if_true: bool | None, if_false: bool | None) -> Instruction | None:
    """A comparison whose answer depends on P alone."""
    if if_true is None or if_false is None or match.P.array.dims != match.array.dims:
        return None
    if if_true == if_false:
        return _truth(match, if_true)
    return _or_not(match, if_true)


def _of_select(match: Match) -> Instruction | None:
    if not is_plain(match.root):
        return None
    direction = match.root.attributes["direction"]
    return _of_two(match, holds(direction, match.C1, match.C), holds(direction, match.C2, match.C))


def _of_converted_pred(match: Match) -> Instruction | None:
    kind = match.inner.array.dtype
    if not is_plain(match.root) or not has_known_arithmetic(match.inner):
        return None
    if kind.name == "s1":  # true is -1 there
        return None
    one, zero = (match.splat(match.C.array, value) for value in (1, 0))
    direction = match.root.attributes["direction"]
    return _of_two(match, holds(direction, one, match.C), holds(direction, zero, match.C))


def _inverse(match: Match) -> Instruction | None:
    # not(a < b) is not a >= b where a NaN takes part; equality has no such case.
    compare = match.inner
    direction = compare.attributes["direction"]
    if match.A.array.dtype.kind not in (*INTEGER, PRED) and direction not in ("EQ", "NE"):
        left, right = map(match.values.of, compare.operands)
        if left.nan or right.nan:
            return match.refuse("beside a NaN both comparisons are false")
    attributes = {**compare.attributes, "direction": INVERSE[direction]}
    return match.result("compare", *compare.operands, **attributes)


def _of_extremum(match: Match) -> Instruction | None:
    return _extremum_against(match, match.inner.opcode, match.root.attributes["direction"])


def _of_mirrored_extremum(match: Match) -> Instruction | None:
    return _extremum_against(
        match, match.root.operands[1].opcode, MIRRORED[match.root.attributes["direction"]]
    )


def _extremum_against(match: Match, opcode: str, direction: str) -> Instruction | None:
    """``max(A, B) > A`` is ``B > A``; the other orders likewise, beside NaN too."""
    if not is_plain(match.root) or not has_known_arithmetic(match.A):
        return None
    above, below = ("GT", "LE") if opcode == "maximum" else ("LT", "GE")
    whole = match.A.array.dtype.kind in (*INTEGER, PRED)
    if direction in (above, below):
        return compared(match, match.B, match.A, direction)
    if direction == "EQ" or (direction == "NE" and whole):
        kept = below if direction == "EQ" else above
        return compared(match, match.B, match.A, kept)
    if direction == MIRRORED[above]:
        return _truth(match, value=False)
    return _truth(match, value=True) if whole else None


RULES = (
    Rule("compare(C, A) => compare(A, C)", op("compare", C, A), _constant_right),
    Rule("not(compare(A, B)) => compare(A, B) inverted", ~op("compare", A, B).one_use, _inverse),
    Rule("compare(A, A) => constant", op("compare", A, A), _compare_itself),
    Rule("compare(A, B) => constant where ranges do not meet", op("compare", A, B), _by_ranges),
    Rule("P == true => P", op("compare", var("P", has_kind(PRED)), splat(name="C")), _pred_itself),
    Rule(
        "compare(select(P, C1, C2), C) => P", op("compare", op("select", P, C1, C2), C), _of_select
    ),
    Rule("compare(convert(P), C) => P", op("compare", op("convert", P), C), _of_converted_pred),
    Rule(
        "max(A, B) > A => B > A", op("compare", op(("maximum", "minimum"), A, B), A), _of_extremum
    ),
    Rule(
        "A < max(A, B) => A < B",
        op("compare", A, op(("maximum", "minimum"), A, B)),
        _of_mirrored_extremum,
    ),
)
