"""Rules for two comparisons of the same value with constants, or of the same pair.

The constants cut the numbers into places: below both, the lesser one, between, the greater one, above both,
and NaN.  In each place both comparisons are known; what they say together may be what one says.
"""

from __future__ import annotations

from operator import and_, or_, xor
from typing import Final

from hloopt.ir import Instruction
from hloopt.ops.traits import MIRRORED
from hloopt.rewrite import Match, Rule, op, splat, var
from hloopt.simplify.predicates import (
    FLOAT,
    has_known_arithmetic,
    is_plain,
    is_used_here,
    known_value,
)

__all__ = ["RULES"]

A = var("A", has_known_arithmetic)
B = var("B")
C1, C2 = splat(name="C1"), splat(name="C2")

_LOGIC: Final = {"and": and_, "or": or_, "xor": xor}
_DIRECTIONS: Final = ("EQ", "NE", "LT", "LE", "GT", "GE")
_WHEN: Final = {"LT": "<", "LE": "<=", "EQ": "=", "NE": "<>?", "GE": ">=", "GT": ">"}
"""By direction: which of less, equal, greater and unordered it holds of."""
_NAN: Final = "NaN"


def _number(instruction: Instruction) -> float | None:
    """The number that a splat repeats, an int for integers; None for a NaN."""
    value = known_value(instruction)
    number = float(value) if instruction.array.dtype.is_float else int(value)
    return None if number != number else number  # noqa: PLR0124 - a NaN


def _places(match: Match, low: float, high: float) -> list[tuple[int, int] | str]:
    """Places where values of A may be: on which side of the lesser and of the greater constant."""
    known = match.range_of(match.A)
    whole = not match.A.array.dtype.is_float
    found: list[tuple[int, int] | str] = []
    if known.low < low:
        found.append((-1, -1))
    if known.low <= low <= known.high:
        found.append((0, 0 if low == high else -1))
    if high - low > whole and known.high > low and known.low < high:
        found.append((1, -1))
    if low != high and known.low <= high <= known.high:
        found.append((1, 0))
    if known.high > high:
        found.append((1, 1))
    if known.nan:
        found.append(_NAN)
    return found


def _says(direction: str, side: int, place: tuple[int, int] | str) -> bool:
    case = "?" if isinstance(place, str) else "<=>"[place[side] + 1]
    return case in _WHEN[direction]


def _comparisons(match: Match) -> tuple[Instruction, Instruction]:
    """The one with C1 and the one with C2."""
    first, second = match.root.operands
    return (first, second) if first.operands[1] is match.C1 else (second, first)


def _as_one_place(match: Match, first: Instruction, second: Instruction) -> Instruction | None:
    """One comparison, or a constant, that says the same in all places."""
    one, other = _number(match.C1), _number(match.C2)
    if one is None or other is None or not (is_plain(first) and is_plain(second)):
        return None
    sides = (int(one > other), int(one <= other))
    places = _places(match, min(one, other), max(one, other))
    combine = _LOGIC[match.root.opcode]
    asked, asked_second = (compare.direction for compare in (first, second))
    wanted = [
        combine(_says(asked, sides[0], place), _says(asked_second, sides[1], place))
        for place in places
    ]
    if len(set(wanted)) < 2:
        return match.full(bool(wanted and wanted[0]))
    for compare, side in zip((first, second), sides, strict=True):
        for direction in (compare.direction, *_DIRECTIONS):
            if wanted == [_says(direction, side, place) for place in places]:
                return _as_one(match, compare, direction)
    return None


def _as_one(match: Match, compare: Instruction, direction: str) -> Instruction:
    if compare.direction == direction:
        return compare
    attributes = {**compare.attributes, "direction": direction}
    return match.result("compare", *compare.operands, **attributes)


def _is_one_pair(match: Match) -> bool:
    first, second = match.root.operands
    return second.operands in (first.operands, first.operands[::-1])


def _of_one_pair(match: Match) -> Instruction | None:
    """``A < B`` and ``A == B``, also as ``B == A``: one comparison or a constant."""
    root = match.root
    first, second = root.operands
    if not (is_plain(first) and is_plain(second)):
        return None
    one, other = first.direction, second.direction
    if second.operands != first.operands:
        other = MIRRORED[other]
    unordered = any(match.range_of(entry).nan for entry in (match.A, match.B))
    combine = _LOGIC[root.opcode]
    cases = "<=>?" if unordered else "<=>"
    wanted = [combine(case in _WHEN[one], case in _WHEN[other]) for case in cases]
    if len(set(wanted)) < 2:
        return match.splat(root.array, wanted[0])
    for direction, when in _WHEN.items():
        if wanted == [case in when for case in cases]:
            return _as_one(match, first, direction)
    return None


_SIZE: Final = {("or", "LT", "GT"): "GT", ("or", "LE", "GE"): "GE",
                ("and", "GT", "LT"): "LT", ("and", "GE", "LE"): "LE"}  # fmt: skip


def _as_one_size(match: Match, first: Instruction, second: Instruction) -> Instruction | None:
    """Two bounds as far from zero as each other are one of the size."""
    if match.A.array.dtype.kind != FLOAT or not (is_plain(first) and is_plain(second)):
        return None
    if first.direction in {"or": ("GT", "GE"), "and": ("LT", "LE")}[match.root.opcode]:
        first, second = second, first
    low, high = (_number(compare.operands[1]) for compare in (first, second))
    directions = (first.direction, second.direction)
    direction = _SIZE.get((match.root.opcode, *directions))
    if direction is None or low is None or high is None or low != -high or high < 0:
        return None
    size = match.make("abs", match.A, shape=match.A.shape)
    attributes = {**second.attributes, "direction": direction}
    return match.result("compare", size, second.operands[1], **attributes)


def _within_chain(match: Match) -> Instruction | None:
    """``(P | A < C1) | A > C2``: the two comparisons first, where they are one."""
    chain, second = match.Q, match.R
    if chain.opcode != match.root.opcode:
        return None
    first = chain.operands[1] if chain.operands[0] is match.P else chain.operands[0]
    found = _as_one_place(match, first, second)
    if found is None and is_used_here(second):
        found = _as_one_size(match, first, second)
    if found is None:
        return None
    return match.result(match.root.opcode, match.P, found)


RULES = (
    Rule(
        "A < C1 & A < C2 => A < min(C1, C2)",
        op(tuple(_LOGIC), op("compare", A, C1), op("compare", A, C2)),
        lambda match: _as_one_place(match, *_comparisons(match)),
    ),
    Rule(
        "A < B | A == B => A <= B",
        op(tuple(_LOGIC), op("compare", A, B), op("compare")),
        _of_one_pair,
        when=_is_one_pair,
    ),
    Rule(
        "A < -C | A > C => abs(A) > C",
        op(("and", "or"), op("compare", A, C1).one_use, op("compare", A, C2).one_use),
        lambda match: _as_one_size(match, *_comparisons(match)),
    ),
    Rule(
        "(P | A < C1) | A > C2 => P | (A < C1 | A > C2)",
        op(
            ("and", "or"),
            op(("and", "or"), var("P"), op("compare", A, C1).one_use).one_use.bind("Q"),
            op("compare", A, C2).bind("R"),
        ),
        _within_chain,
    ),
)
