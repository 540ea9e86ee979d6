"""Rules for compare; a constant stands on the right."""

from __future__ import annotations

from typing import Final

import numpy as np

from hloopt.analysis.value_range import integer_limits
from hloopt.analysis.values import decided
from hloopt.ir import Instruction
from hloopt.passes.simplify.conditions import (
    FLOAT,
    INTEGER,
    PRED,
    has_kind,
    has_known_arithmetic,
    scalar_value,
)
from hloopt.passes.simplify.folding import folded, holds
from hloopt.rewrite import Match, Rule, op, splat, splat_literal, var
from hloopt.types import Literal, array

__all__ = ["RULES"]

A, B, P = var("A"), var("B"), var("P", has_kind(PRED))
C, C1, C2 = splat(name="C"), splat(name="C1"), splat(name="C2")
Z = splat(0, name="Z")
WHOLE = has_kind(*INTEGER)

_INVERSE: Final = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}
_MIRRORED: Final = {"EQ": "EQ", "NE": "NE", "LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}
_WHOLE: Final = ("s32", "u8", "s64")


def _direction(match: Match) -> str:
    return str(match.root.attributes["direction"])


def _is_plain(match: Match) -> bool:
    """Not the total order of floats."""
    order, kind = match.root.attributes.get("type"), match.root.operands[0].array.dtype
    return order != "TOTALORDER" or not kind.is_float


def _compare(match: Match, left: Instruction, right: Instruction, direction: str) -> Instruction:
    # A type that is written out says what the operands are; other operands get their own default.
    attributes = {"direction": direction}
    kept = match.root.attributes.get("type")
    if kept is not None and left.array.dtype is match.root.operands[0].array.dtype:
        attributes["type"] = kept
    return match.make("compare", (left, right), attributes, match.root.shape)


def _constant_right(match: Match) -> Instruction | None:
    left, right = match.root.operands
    if left.opcode != "constant" and splat_literal(left) is None:
        return None
    if right.opcode == "constant" or splat_literal(right) is not None:
        return None
    return _compare(match, right, left, _MIRRORED[_direction(match)])


def _truth(match: Match, value: bool) -> Instruction:
    return match.splat(match.root.array, value)


def _compare_itself(match: Match) -> Instruction | None:
    """Of floats only what a NaN would not change: nothing is less than itself."""
    if not _is_plain(match):
        return None
    direction = _direction(match)
    true = direction in ("EQ", "LE", "GE")
    kind = match.A.array.dtype.kind
    never_nan = kind in (*INTEGER, PRED) or (kind == FLOAT and not match.values.of(match.A).nan)
    if direction not in ("LT", "GT") and not never_nan:
        return match.refuse("a NaN is not equal to itself")
    return _truth(match, true)


def _by_ranges(match: Match) -> Instruction | None:
    if not _is_plain(match):
        return None
    left, right = map(match.values.of, match.root.operands)
    answer = decided(_direction(match), left, right)
    return None if answer is None else _truth(match, answer)


def _at_the_end(match: Match) -> Instruction | None:
    """A bound at the end of the range leaves one number: ``unsigned A <= 0`` is ``A == 0``."""
    value, known = scalar_value(match.C), match.values.of(match.A)
    if value is None or match.A.array.dtype.kind not in INTEGER or known.low == known.high:
        return None
    bound = int(value)
    only = {
        ("LE", bound): known.low == bound,
        ("LT", bound): known.low == bound - 1,
        ("GE", bound): known.high == bound,
        ("GT", bound): known.high == bound + 1,
    }
    if only.get((_direction(match), bound)):
        end = known.low if _direction(match) in ("LE", "LT") else known.high
        return _compare(match, match.A, match.splat(match.A.array, int(end)), "EQ")
    return None


def _pred_itself(match: Match) -> Instruction | None:
    """``P == true``, ``P != false`` are P; the other two are ``not P``."""
    direction, value = _direction(match), scalar_value(match.C)
    if value is None or direction not in ("EQ", "NE"):
        return None
    return _or_not(match, bool(value) == (direction == "EQ"))


def _or_not(match: Match, itself: bool) -> Instruction:
    return match.P if itself else match.make("not", (match.P,), {}, match.root.shape)


def _of_two(match: Match, if_true: bool | None, if_false: bool | None) -> Instruction | None:
    """A comparison whose answer depends on P alone."""
    if if_true is None or if_false is None or match.P.array.dims != match.root.array.dims:
        return None
    if if_true == if_false:
        return _truth(match, if_true)
    return _or_not(match, if_true)


def _of_select(match: Match) -> Instruction | None:
    if not _is_plain(match):
        return None
    direction = _direction(match)
    return _of_two(match, holds(direction, match.C1, match.C), holds(direction, match.C2, match.C))


def _of_converted_pred(match: Match) -> Instruction | None:
    kind = match.root.operands[0].array.dtype
    if not _is_plain(match) or not has_known_arithmetic(match.root.operands[0]):
        return None
    if kind.name == "s1":  # true is -1 there
        return None
    one, zero = (match.splat(match.C.array, value) for value in (1, 0))
    direction = _direction(match)
    return _of_two(match, holds(direction, one, match.C), holds(direction, zero, match.C))


def _inverse(match: Match) -> Instruction | None:
    # not(a < b) is not a >= b where a NaN takes part; equality has no such case.
    compare = match.root.operands[0]
    direction = compare.attributes["direction"]
    if match.A.array.dtype.kind not in (*INTEGER, PRED) and direction not in ("EQ", "NE"):
        left, right = map(match.values.of, compare.operands)
        if left.nan or right.nan:
            return match.refuse("beside a NaN both comparisons are false")
    attributes = {**compare.attributes, "direction": _INVERSE[direction]}
    return match.make("compare", compare.operands, attributes, match.root.shape)


def _constant_moved(match: Match) -> Instruction | None:
    """``A + C1 < C2`` as ``A < C2 - C1``; orders need that neither side wraps."""
    direction, known = _direction(match), match.values.of(match.A)
    low, high = integer_limits(match.A.array.dtype)
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
    return None if bound is None else _compare(match, match.A, bound, direction)


def _difference_is_zero(match: Match) -> Instruction | None:
    """Integers wrap, all but equality; equal infinities have no difference."""
    direction, kind = _direction(match), match.A.array.dtype.kind
    if kind in INTEGER:
        return _compare(match, match.A, match.B, direction) if direction in ("EQ", "NE") else None
    if not _is_plain(match) or not has_known_arithmetic(match.A) or kind == PRED:
        return None
    finite = any(match.values.of(entry).is_finite for entry in (match.A, match.B))
    if not match.fast_math and not finite:
        return match.refuse("both may be infinite")
    return _compare(match, match.A, match.B, direction)


def _bits_are_equal(match: Match) -> Instruction | None:
    direction = _direction(match)
    if direction not in ("EQ", "NE"):
        return None
    return _compare(match, match.A, match.B, direction)


def _uppermost_bits(match: Match) -> Instruction | None:
    """``(A >> C1) == C2`` with the greatest C2 there is: ``A >= C2 << C1``."""
    dtype = match.A.array.dtype
    amount, value = scalar_value(match.C1), scalar_value(match.C2)
    if dtype.kind != "unsigned" or amount is None or value is None or int(amount) >= dtype.bits:
        return None
    top, direction = (integer_limits(dtype)[1] >> int(amount)), _direction(match)
    if int(value) != top or direction not in ("EQ", "NE"):
        return None
    bound = match.splat(match.A.array, top << int(amount))
    return _compare(match, match.A, bound, "GE" if direction == "EQ" else "LT")


def _both_negated(match: Match) -> Instruction | None:
    """``-A < -B`` is ``B < A`` for floats; integers may wrap, all but equality."""
    kind, direction = match.A.array.dtype, _direction(match)
    if direction not in ("EQ", "NE") and (
        kind.kind in INTEGER or not has_known_arithmetic(match.A)
    ):
        return None
    if not _is_plain(match) or kind.name == "f8e8m0fnu":
        return None
    return _compare(match, match.B, match.A, direction)


def _negated_constant(match: Match) -> Instruction | None:
    """``-A < C`` as ``A > -C``, for floats, and for integers where no negation wraps."""
    kind, direction = match.A.array.dtype, _direction(match)
    if not _is_plain(match) or not has_known_arithmetic(match.A) or kind.is_pred:
        return None
    if kind.kind in INTEGER and direction not in ("EQ", "NE"):
        low, value = integer_limits(kind)[0], scalar_value(match.C)
        wraps = kind.kind == "unsigned" or match.values.of(match.A).low == low
        if wraps or value is None or int(value) == low:
            return None
    bound = folded(match, "negate", match.C.array, match.C)
    return None if bound is None else _compare(match, match.A, bound, _MIRRORED[direction])


def _narrower(match: Match) -> Instruction | None:
    """Integers widened without loss are compared as they were, where the bound is one of them."""
    source, wide = match.A.array.dtype, match.root.operands[0].array.dtype
    value = scalar_value(match.C)
    if source.kind not in INTEGER or wide.kind not in INTEGER or value is None:
        return None
    if source.bits > wide.bits:
        return None
    low, high = integer_limits(source)
    least, greatest = integer_limits(wide)
    known = match.values.of(match.A)
    if not (least <= known.low and known.high <= greatest and low <= int(value) <= high):
        return None
    literal = Literal(array(source), np.array(int(value)).astype(source.numpy))
    return _compare(match, match.A, match.splat_of(match.A.array, literal), _direction(match))


def _of_extremum(match: Match) -> Instruction | None:
    return _extremum_against(match, match.root.operands[0].opcode, _direction(match))


def _of_mirrored_extremum(match: Match) -> Instruction | None:
    return _extremum_against(match, match.root.operands[1].opcode, _MIRRORED[_direction(match)])


def _extremum_against(match: Match, opcode: str, direction: str) -> Instruction | None:
    """``max(A, B) > A`` is ``B > A``; the other orders likewise, beside NaN too."""
    if not _is_plain(match) or not has_known_arithmetic(match.A):
        return None
    above, below = ("GT", "LE") if opcode == "maximum" else ("LT", "GE")
    whole = match.A.array.dtype.kind in (*INTEGER, PRED)
    if direction in (above, below):
        return _compare(match, match.B, match.A, direction)
    if direction == "EQ" or (direction == "NE" and whole):
        kept = below if direction == "EQ" else above
        return _compare(match, match.B, match.A, kept)
    if direction == _MIRRORED[above]:
        return _truth(match, value=False)
    return _truth(match, value=True) if whole else None


RULES = (
    Rule(
        "compare(C, A) => compare(A, C)",
        op("compare", C, A),
        _constant_right,
        example="x = $T[6] parameter(0)\n c = $T[] constant(3)\n"
        "b = $T[6] broadcast(c), dimensions={}\n"
        "ROOT r = pred[6] compare(b, x), direction=LT",
        counterexample="x = f32[6] parameter(0)\n c = f32[] constant(3)\n"
        "b = f32[6] broadcast(c), dimensions={}\n"
        "ROOT r = pred[6] compare(x, b), direction=LT",
        types=("f32", "s32", "u8"),
    ),
    Rule(
        "not(compare(A, B)) => compare(A, B) inverted",
        ~op("compare", A, B).one_use,
        _inverse,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n"
        "c = pred[6] compare(x, y), direction=LT\n ROOT r = pred[6] not(c)",
        counterexample="x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n"
        "c = pred[6] compare(x, y), direction=LT\n ROOT r = pred[6] not(c)",
        types=("s32", "u8", "pred"),
    ),
    Rule(
        "compare(A, A) => constant",
        op("compare", A, A),
        _compare_itself,
        example="x = $T[6] parameter(0)\n ROOT r = pred[6] compare(x, x), direction=GE",
        counterexample="x = f32[6] parameter(0)\n ROOT r = pred[6] compare(x, x), direction=EQ",
        types=("s32", "u8", "pred"),
    ),
    Rule(
        "compare(A, B) => constant where ranges do not meet",
        op("compare", A, B),
        _by_ranges,
        example="x = u8[6] parameter(0)\n y = $T[6] convert(x)\n c = $T[] constant(255)\n"
        "b = $T[6] broadcast(c), dimensions={}\n"
        "ROOT r = pred[6] compare(y, b), direction=LE",
        counterexample="x = u8[6] parameter(0)\n y = s32[6] convert(x)\n c = s32[] constant(255)\n"
        "b = s32[6] broadcast(c), dimensions={}\n"
        "ROOT r = pred[6] compare(y, b), direction=LT",
        types=("s32", "f32", "u16"),
    ),
    Rule(
        "compare(A, end of A) => A == C",
        op("compare", var("A", WHOLE), C),
        _at_the_end,
        example="x = $T[6] parameter(0)\n c = $T[] constant(1)\n"
        "b = $T[6] broadcast(c), dimensions={}\n"
        "ROOT r = pred[6] compare(x, b), direction=LT",
        counterexample="x = s32[6] parameter(0)\n c = s32[] constant(1)\n"
        "b = s32[6] broadcast(c), dimensions={}\n"
        "ROOT r = pred[6] compare(x, b), direction=LT",
        types=("u32", "u8", "u64"),
    ),
    Rule(
        "P == true => P",
        op("compare", var("P", has_kind(PRED)), splat(name="C")),
        _pred_itself,
        example="x = pred[6] parameter(0)\n f = pred[] constant(false)\n"
        "b = pred[6] broadcast(f), dimensions={}\n"
        "ROOT r = pred[6] compare(x, b), direction=NE",
        counterexample="x = pred[] parameter(0)\n f = pred[] constant(false)\n"
        "ROOT r = pred[] compare(x, f), direction=GT",
    ),
    Rule(
        "compare(select(P, C1, C2), C) => P",
        op("compare", op("select", P, C1, C2), C),
        _of_select,
        example="p = pred[6] parameter(0)\n c = $T[] constant(1)\n d = $T[] constant(0)\n"
        "cc = $T[6] broadcast(c), dimensions={}\n"
        "dd = $T[6] broadcast(d), dimensions={}\n s = $T[6] select(p, cc, dd)\n"
        "ROOT r = pred[6] compare(s, dd), direction=NE",
        counterexample="p = pred[] parameter(0)\n x = s32[] parameter(1)\n c = s32[] constant(1)\n"
        "s = s32[] select(p, c, x)\n ROOT r = pred[] compare(s, c), direction=NE",
        types=("f32", "s32", "bf16"),
    ),
    Rule(
        "compare(convert(P), C) => P",
        op("compare", op("convert", P), C),
        _of_converted_pred,
        example="p = pred[6] parameter(0)\n c = $T[] constant(0)\n"
        "cc = $T[6] broadcast(c), dimensions={}\n s = $T[6] convert(p)\n"
        "ROOT r = pred[6] compare(s, cc), direction=EQ",
        counterexample="p = u8[] parameter(0)\n c = s32[] constant(0)\n s = s32[] convert(p)\n"
        "ROOT r = pred[] compare(s, c), direction=EQ",
        types=("f32", "s32", "u8"),
    ),
    Rule(
        "compare(A + C1, C2) => compare(A, C2 - C1)",
        op("compare", var("A", WHOLE) + C1, C2),
        _constant_moved,
        example="x = $T[6] parameter(0)\n c = $T[] constant(100)\n d = $T[] constant(3)\n"
        "cc = $T[6] broadcast(c), dimensions={}\n"
        "dd = $T[6] broadcast(d), dimensions={}\n s = $T[6] add(x, cc)\n"
        "ROOT r = pred[6] compare(s, dd), direction=NE",
        counterexample="x = s32[] parameter(0)\n c = s32[] constant(100)\n s = s32[] add(x, c)\n"
        "ROOT r = pred[] compare(s, c), direction=LT",
        types=_WHOLE,
    ),
    Rule(
        "compare(A - B, 0) => compare(A, B)",
        op("compare", A - B, Z),
        _difference_is_zero,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n c = $T[] constant(0)\n"
        "cc = $T[6] broadcast(c), dimensions={}\n s = $T[6] subtract(x, y)\n"
        "ROOT r = pred[6] compare(s, cc), direction=EQ",
        counterexample="x = s32[] parameter(0)\n y = s32[] parameter(1)\n c = s32[] constant(0)\n"
        "s = s32[] subtract(x, y)\n ROOT r = pred[] compare(s, c), direction=LT",
        types=_WHOLE,
    ),
    Rule(
        "compare(A ^ B, 0) => compare(A, B)",
        op("compare", var("A", WHOLE) ^ B, Z),
        _bits_are_equal,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n c = $T[] constant(0)\n"
        "cc = $T[6] broadcast(c), dimensions={}\n s = $T[6] xor(x, y)\n"
        "ROOT r = pred[6] compare(s, cc), direction=NE",
        counterexample="x = s32[] parameter(0)\n y = s32[] parameter(1)\n c = s32[] constant(1)\n"
        "s = s32[] xor(x, y)\n ROOT r = pred[] compare(s, c), direction=EQ",
        types=_WHOLE,
    ),
    Rule(
        "(A >> C1) == top => A >= top << C1",
        op("compare", op("shift-right-logical", A, C1), C2),
        _uppermost_bits,
        example="x = $T[6] parameter(0)\n c = $T[] constant(7)\n d = $T[] constant(1)\n"
        "cc = $T[6] broadcast(c), dimensions={}\n dd = $T[6] broadcast(d), dimensions={}\n"
        "s = $T[6] shift-right-logical(x, cc)\n ROOT r = pred[6] compare(s, dd), direction=NE",
        counterexample="x = u8[] parameter(0)\n c = u8[] constant(6)\n d = u8[] constant(1)\n"
        "s = u8[] shift-right-logical(x, c)\n ROOT r = pred[] compare(s, d), direction=EQ",
        types=("u8",),
    ),
    Rule(
        "compare(-A, -B) => compare(B, A)",
        op("compare", -A, -B),
        _both_negated,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n n = $T[6] negate(x)\n"
        "m = $T[6] negate(y)\n ROOT r = pred[6] compare(n, m), direction=LT",
        counterexample="x = s32[] parameter(0)\n y = s32[] parameter(1)\n n = s32[] negate(x)\n"
        "m = s32[] negate(y)\n ROOT r = pred[] compare(n, m), direction=LT",
        types=("f32", "bf16", "f64"),
    ),
    Rule(
        "compare(-A, C) => compare(A, -C)",
        op("compare", -A, C),
        _negated_constant,
        example="x = $T[6] parameter(0)\n c = $T[] constant(3)\n"
        "cc = $T[6] broadcast(c), dimensions={}\n n = $T[6] negate(x)\n"
        "ROOT r = pred[6] compare(n, cc), direction=GE",
        counterexample="x = s32[] parameter(0)\n c = s32[] constant(3)\n n = s32[] negate(x)\n"
        "ROOT r = pred[] compare(n, c), direction=GE",
        types=("f32", "bf16", "f64"),
    ),
    Rule(
        "compare(not(A), not(B)) => compare(A, B)",
        op("compare", ~A, ~B),
        lambda match: _compare(match, match.B, match.A, _direction(match)),
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n n = $T[6] not(x)\n"
        "m = $T[6] not(y)\n ROOT r = pred[6] compare(n, m), direction=LT",
        counterexample="x = s32[] parameter(0)\n y = s32[] parameter(1)\n n = s32[] not(x)\n"
        "ROOT r = pred[] compare(n, y), direction=EQ",
        types=("s32", "u8", "pred"),
    ),
    Rule(
        "compare(convert(A), C) => compare(A, C)",
        op("compare", op("convert", A), C),
        _narrower,
        example="x = $T[6] parameter(0)\n c = s64[] constant(100)\n"
        "cc = s64[6] broadcast(c), dimensions={}\n n = s64[6] convert(x)\n"
        "ROOT r = pred[6] compare(n, cc), direction=LT",
        counterexample="x = s32[6] parameter(0)\n c = s8[] constant(100)\n"
        "cc = s8[6] broadcast(c), dimensions={}\n n = s8[6] convert(x)\n"
        "ROOT r = pred[6] compare(n, cc), direction=LT",
        types=("s32", "u8", "u32", "s8"),
    ),
    Rule(
        "max(A, B) > A => B > A",
        op("compare", op(("maximum", "minimum"), A, B), A),
        _of_extremum,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n m = $T[6] maximum(x, y)\n"
        "ROOT r = pred[6] compare(m, y), direction=EQ",
        counterexample="x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n"
        "m = f32[6] maximum(x, y)\n ROOT r = pred[6] compare(m, x), direction=GE",
        types=("f32", "s32", "bf16", "pred"),
    ),
    Rule(
        "A < max(A, B) => A < B",
        op("compare", A, op(("maximum", "minimum"), A, B)),
        _of_mirrored_extremum,
        example="x = $T[6] parameter(0)\n y = $T[6] parameter(1)\n m = $T[6] minimum(x, y)\n"
        "ROOT r = pred[6] compare(y, m), direction=GT",
        counterexample="x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n"
        "m = f32[6] maximum(x, y)\n ROOT r = pred[6] compare(x, m), direction=LE",
        types=("f32", "s32", "bf16", "pred"),
    ),
)
