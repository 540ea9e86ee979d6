"""Rules for compare: of itself, by ranges, of what a pred chose, and of something simpler."""

from __future__ import annotations

import numpy as np

from hloopt.analysis.values import decided
from hloopt.ir import Instruction
from hloopt.ops.traits import INVERSE, MIRRORED
from hloopt.rewrite import Match, Rule, op, splat, splat_literal, var
from hloopt.simplify.constant_arithmetic import folded, holds
from hloopt.simplify.predicates import (
    FLOAT,
    INTEGER,
    PRED,
    compared,
    has_kind,
    has_known_arithmetic,
    is_plain,
    scalar_value,
)
from hloopt.types import Literal, array

__all__ = ["RULES"]

A, B, P = var("A"), var("B"), var("P", has_kind(PRED))
Z, WHOLE = splat(0, name="Z"), has_kind(*INTEGER)
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


def _at_the_end(match: Match) -> Instruction | None:
    """A bound at the end of the range leaves one number: ``unsigned A <= 0`` is ``A == 0``."""
    value, known = scalar_value(match.C), match.values.of(match.A)
    if value is None or match.A.array.dtype.kind not in INTEGER or known.low == known.high:
        return None
    if match.A.opcode in ("parameter", "get-tuple-element"):
        return None  # what loops count with stays an order
    bound, direction = int(value), match.root.attributes["direction"]
    ends = {
        "LE": (known.low, bound),
        "LT": (known.low, bound - 1),
        "GE": (known.high, bound),
        "GT": (known.high, bound + 1),
    }
    end, last = ends.get(direction, (0, 1))
    if end != last:
        return None
    return compared(match, match.A, match.splat(match.A.array, last), "EQ")


def _constant_moved(match: Match) -> Instruction | None:
    """``A + C1 < C2`` as ``A < C2 - C1``; orders need that neither side wraps."""
    direction, known = match.root.attributes["direction"], match.values.of(match.A)
    low, high = match.A.array.dtype.limits
    first, second = scalar_value(match.C1), scalar_value(match.C2)
    if first is None or second is None:
        return None
    if direction not in ("EQ", "NE"):
        sums = (known.low + int(first), known.high + int(first))
        if sums[0] < low or sums[1] > high:
            return match.refuse("the sum may wrap")
        if not low <= int(second) - int(first) <= high:
            return None
    bound = folded(match, "subtract", match.A.array, match.C2, match.C1)
    return None if bound is None else compared(match, match.A, bound, direction)


def _difference_is_zero(match: Match) -> Instruction | None:
    """Integers wrap, all but equality; equal infinities have no difference."""
    direction, kind = match.root.attributes["direction"], match.A.array.dtype.kind
    if kind in INTEGER:
        return compared(match, match.A, match.B, direction) if direction in ("EQ", "NE") else None
    if not is_plain(match.root) or not has_known_arithmetic(match.A) or kind == PRED:
        return None
    finite = any(match.values.of(entry).is_finite for entry in (match.A, match.B))
    if not match.floats_are_real and not finite:
        return match.refuse("both may be infinite")
    return compared(match, match.A, match.B, direction)


def _bits_are_equal(match: Match) -> Instruction | None:
    direction = match.root.attributes["direction"]
    if direction not in ("EQ", "NE"):
        return None
    return compared(match, match.A, match.B, direction)


def _uppermost_bits(match: Match) -> Instruction | None:
    """``(A >> C1) == C2`` with the greatest C2 there is: ``A >= C2 << C1``."""
    dtype = match.A.array.dtype
    amount, value = scalar_value(match.C1), scalar_value(match.C2)
    if dtype.kind != "unsigned" or amount is None or value is None or int(amount) >= dtype.bits:
        return None
    top, direction = (dtype.limits[1] >> int(amount)), match.root.attributes["direction"]
    if int(value) != top or direction not in ("EQ", "NE"):
        return None
    bound = match.splat(match.A.array, top << int(amount))
    return compared(match, match.A, bound, "GE" if direction == "EQ" else "LT")


def _both_negated(match: Match) -> Instruction | None:
    """``-A < -B`` is ``B < A`` for floats; integers may wrap, all but equality."""
    kind, direction = match.A.array.dtype, match.root.attributes["direction"]
    if direction not in ("EQ", "NE") and (
        kind.kind in INTEGER or not has_known_arithmetic(match.A)
    ):
        return None
    if not is_plain(match.root) or kind.name == "f8e8m0fnu":
        return None
    return compared(match, match.B, match.A, direction)


def _negated_constant(match: Match) -> Instruction | None:
    """``-A < C`` as ``A > -C``, for floats, and for integers where no negation wraps."""
    kind, direction = match.A.array.dtype, match.root.attributes["direction"]
    if not is_plain(match.root) or not has_known_arithmetic(match.A) or kind.is_pred:
        return None
    if kind.kind in INTEGER and direction not in ("EQ", "NE"):
        low, value = kind.limits[0], scalar_value(match.C)
        wraps = kind.kind == "unsigned" or match.values.of(match.A).low == low
        if wraps or value is None or int(value) == low:
            return None
    bound = folded(match, "negate", match.C.array, match.C)
    return None if bound is None else compared(match, match.A, bound, MIRRORED[direction])


def _narrower(match: Match) -> Instruction | None:
    """Integers widened without loss are compared as they were, where the bound is one of them."""
    source, wide = match.A.array.dtype, match.inner.array.dtype
    value = scalar_value(match.C)
    if source.kind not in INTEGER or wide.kind not in INTEGER or value is None:
        return None
    if source.bits > wide.bits:
        return None
    low, high = source.limits
    least, greatest = wide.limits
    known = match.values.of(match.A)
    if not (least <= known.low and known.high <= greatest and low <= int(value) <= high):
        return None
    literal = Literal(array(source), np.array(int(value)).astype(source.numpy))
    return compared(
        match, match.A, match.splat_of(match.A.array, literal), match.root.attributes["direction"]
    )


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
    Rule("compare(A, end of A) => A == C", op("compare", var("A", WHOLE), C), _at_the_end),
    Rule(
        "compare(A + C1, C2) => compare(A, C2 - C1)",
        op("compare", var("A", WHOLE) + C1, C2),
        _constant_moved,
    ),
    Rule("compare(A - B, 0) => compare(A, B)", op("compare", A - B, Z), _difference_is_zero),
    Rule(
        "compare(A ^ B, 0) => compare(A, B)", op("compare", var("A", WHOLE) ^ B, Z), _bits_are_equal
    ),
    Rule(
        "(A >> C1) == top => A >= top << C1",
        op("compare", op("shift-right-logical", A, C1), C2),
        _uppermost_bits,
    ),
    Rule("compare(-A, -B) => compare(B, A)", op("compare", -A, -B), _both_negated),
    Rule("compare(-A, C) => compare(A, -C)", op("compare", -A, C), _negated_constant),
    Rule(
        "compare(not(A), not(B)) => compare(A, B)",
        op("compare", ~A, ~B),
        lambda match: compared(match, match.B, match.A, match.root.attributes["direction"]),
    ),
    Rule("compare(convert(A), C) => compare(A, C)", op("compare", op("convert", A), C), _narrower),
)
