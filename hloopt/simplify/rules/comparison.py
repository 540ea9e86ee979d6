"""Rules for compare: of itself, by ranges, of what a pred chose, and of something simpler."""

from __future__ import annotations

from hloopt.analysis.values import decided
from hloopt.ir import Instruction
from hloopt.ops.traits import INVERSE, MIRRORED
from hloopt.rewrite import Match, Rule, op, splat, splat_literal, var
from hloopt.simplify.constant_arithmetic import fold_splats, holds
from hloopt.simplify.predicates import (
    FLOAT,
    INTEGER,
    PRED,
    compared,
    has_kind,
    has_known_arithmetic,
    is_plain,
    known_value,
)

__all__ = ["RULES"]

A, B, P = var("A"), var("B"), var("P", has_kind(PRED))
EXTREMUM = op(("maximum", "minimum"), A, B).bind("P")
Z, WHOLE = splat(0, name="Z"), has_kind(*INTEGER)
C, C1, C2 = splat(name="C"), splat(name="C1"), splat(name="C2")


def _is_equality(match: Match) -> bool:
    return match.root.direction in ("EQ", "NE")


def _constant_right(match: Match) -> Instruction | None:
    left, right = match.root.operands
    if left.opcode != "constant" and splat_literal(left) is None:
        return None
    if right.opcode == "constant" or splat_literal(right) is not None:
        return None
    return compared(match, right, left, MIRRORED[match.root.direction])


def _compare_itself(match: Match) -> Instruction | None:
    """Of floats only what a NaN would not change: nothing is less than itself."""
    if not is_plain(match.root):
        return None
    direction = match.root.direction
    kind = match.A.array.dtype.kind
    never_nan = kind in (*INTEGER, PRED) or (kind == FLOAT and not match.range_of(match.A).nan)
    if direction not in ("LT", "GT") and not never_nan:
        return match.refuse("a NaN is not equal to itself")
    return match.full(direction in ("EQ", "LE", "GE"))


def _by_ranges(match: Match) -> Instruction | None:
    if not is_plain(match.root):
        return None
    left, right = map(match.range_of, match.root.operands)
    answer = decided(match.root.direction, left, right)
    return None if answer is None else match.full(answer)


def _pred_itself(match: Match) -> Instruction | None:
    """``P == true``, ``P != false`` are P; the other two are ``not P``."""
    if not _is_equality(match):
        return None
    return _or_not(match, bool(known_value(match.C)) == (match.root.direction == "EQ"))


def _or_not(match: Match, itself: bool) -> Instruction:
    return match.P if itself else match.result("not", match.P)


def _of_two(match: Match, if_true: bool | None, if_false: bool | None) -> Instruction | None:
    """A comparison whose answer depends on P alone."""
    if if_true is None or if_false is None or match.P.array.dims != match.array.dims:
        return None
    if if_true == if_false:
        return match.full(if_true)
    return _or_not(match, if_true)


def _of_select(match: Match) -> Instruction | None:
    if not is_plain(match.root):
        return None
    direction = match.root.direction
    return _of_two(match, holds(direction, match.C1, match.C), holds(direction, match.C2, match.C))


def _of_converted_pred(match: Match) -> Instruction | None:
    if not is_plain(match.root) or not has_known_arithmetic(match.inner):
        return None
    if match.inner.array.dtype.name == "s1":  # true is -1 there
        return None
    one, zero = (match.splat(match.C.array, value) for value in (1, 0))
    direction = match.root.direction
    return _of_two(match, holds(direction, one, match.C), holds(direction, zero, match.C))


def _inverse(match: Match) -> Instruction | None:
    # not(a < b) is not a >= b where a NaN takes part; equality has no such case.
    compare = match.inner
    direction = compare.direction
    ordered = match.A.array.dtype.kind not in (*INTEGER, PRED) and direction not in ("EQ", "NE")
    if ordered and any(match.range_of(operand).nan for operand in compare.operands):
        return match.refuse("beside a NaN both comparisons are false")
    attributes = {**compare.attributes, "direction": INVERSE[direction]}
    return match.result("compare", *compare.operands, **attributes)


def _of_extremum(match: Match) -> Instruction | None:
    """``max(A, B) > A`` is ``B > A``; the other orders and ``A < max(A, B)`` likewise, beside NaN too."""
    opcode, direction = match.P.opcode, match.root.direction
    if match.P is not match.inner:
        direction = MIRRORED[direction]
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
        return match.full(value=False)
    return match.full(value=True) if whole else None


def _at_the_end(match: Match) -> Instruction | None:
    """A bound at the end of the range leaves one number: ``unsigned A <= 0`` is ``A == 0``."""
    known = match.range_of(match.A)
    if known.low == known.high:
        return None
    if match.A.opcode in ("parameter", "get-tuple-element"):
        return None  # what loops count with stays an order
    bound = int(known_value(match.C))
    ends = {
        "LE": (known.low, bound),
        "LT": (known.low, bound - 1),
        "GE": (known.high, bound),
        "GT": (known.high, bound + 1),
    }
    end, last = ends.get(match.root.direction, (0, 1))
    if end != last:
        return None
    return compared(match, match.A, match.splat(match.A.array, last), "EQ")


def _constant_moved(match: Match) -> Instruction | None:
    """``A + C1 < C2`` as ``A < C2 - C1``; orders need that neither side wraps."""
    known, (low, high) = match.range_of(match.A), match.A.array.dtype.limits
    first, second = int(known_value(match.C1)), int(known_value(match.C2))
    if not _is_equality(match):
        if known.low + first < low or known.high + first > high:
            return match.refuse("the sum may wrap")
        if not low <= second - first <= high:
            return None
    bound = fold_splats(match, "subtract", match.A.array, match.C2, match.C1)
    return compared(match, match.A, bound, match.root.direction)


def _difference_is_zero(match: Match) -> Instruction | None:
    """Integers wrap, all but equality; equal infinities have no difference."""
    kind = match.A.array.dtype.kind
    if kind in INTEGER:
        return _unchanged(match) if _is_equality(match) else None
    if not is_plain(match.root) or not has_known_arithmetic(match.A) or kind == PRED:
        return None
    finite = any(match.range_of(entry).is_finite for entry in (match.A, match.B))
    if not match.floats_are_real and not finite:
        return match.refuse("both may be infinite")
    return _unchanged(match)


def _unchanged(match: Match) -> Instruction:
    return compared(match, match.A, match.B, match.root.direction)


def _uppermost_bits(match: Match) -> Instruction | None:
    """``(A >> C1) == C2`` with the greatest C2 there is: ``A >= C2 << C1``."""
    dtype = match.A.array.dtype
    amount = int(known_value(match.C1))
    if dtype.kind != "unsigned" or amount >= dtype.bits or not _is_equality(match):
        return None
    top = dtype.limits[1] >> amount
    if int(known_value(match.C2)) != top:
        return None
    bound = match.splat(match.A.array, top << amount)
    return compared(match, match.A, bound, "GE" if match.root.direction == "EQ" else "LT")


def _both_negated(match: Match) -> Instruction | None:
    """``-A < -B`` is ``B < A`` for floats; integers may wrap, all but equality."""
    dtype = match.A.array.dtype
    ordered = dtype.kind not in INTEGER and has_known_arithmetic(match.A)
    if not (ordered or _is_equality(match)) or not is_plain(match.root):
        return None
    return _exchanged(match) if dtype.name != "f8e8m0fnu" else None


def _exchanged(match: Match) -> Instruction:
    return compared(match, match.B, match.A, match.root.direction)


def _negated_constant(match: Match) -> Instruction | None:
    """``-A < C`` as ``A > -C``, for floats, and for integers where no negation wraps."""
    dtype = match.A.array.dtype
    if not is_plain(match.root) or not has_known_arithmetic(match.A) or dtype.is_pred:
        return None
    if dtype.kind in INTEGER and not _is_equality(match):
        low = dtype.limits[0]
        wraps = dtype.kind == "unsigned" or match.range_of(match.A).low == low
        if wraps or int(known_value(match.C)) == low:
            return None
    bound = fold_splats(match, "negate", match.C.array, match.C)
    return compared(match, match.A, bound, MIRRORED[match.root.direction])


def _narrower(match: Match) -> Instruction | None:
    """Integers widened without loss are compared as they were, where the bound is one of them."""
    source, wide = match.A.array.dtype, match.inner.array.dtype
    if source.kind not in INTEGER or wide.kind not in INTEGER or source.bits > wide.bits:
        return None
    bound, known = int(known_value(match.C)), match.range_of(match.A)
    (low, high), (least, greatest) = source.limits, wide.limits
    if not (least <= known.low and known.high <= greatest and low <= bound <= high):
        return None
    return compared(match, match.A, match.splat(match.A.array, bound), match.root.direction)


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
    Rule("max(A, B) > A => B > A", op("compare", EXTREMUM, A), _of_extremum),
    Rule(
        "A < max(A, B) => A < B",
        op("compare", A, EXTREMUM),
        _of_extremum,
    ),
    Rule("compare(A, end of A) => A == C", op("compare", var("A", WHOLE), C), _at_the_end),
    Rule(
        "compare(A + C1, C2) => compare(A, C2 - C1)",
        op("compare", var("A", WHOLE) + C1, C2),
        _constant_moved,
    ),
    Rule("compare(A - B, 0) => compare(A, B)", op("compare", A - B, Z), _difference_is_zero),
    Rule(
        "compare(A ^ B, 0) => compare(A, B)",
        op("compare", var("A", WHOLE) ^ B, Z),
        _unchanged,
        when=_is_equality,
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
        _exchanged,
    ),
    Rule("compare(convert(A), C) => compare(A, C)", op("compare", op("convert", A), C), _narrower),
)
