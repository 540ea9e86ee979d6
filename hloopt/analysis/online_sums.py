"""Sums of exponentials that are less a row's maximum, which one pass over the row can make together with it.

    m = max(x); s = sum(exp(x - g(m)))

As far as the row is known, a thread has the maximum m' of it and s' = sum(exp(x - g(m'))); where the maximum
grows to m'', s' exp(g(m') - g(m'')) is the sum so far.  (M. Milakov, N. Gimelshein, "Online normalizer
calculation for softmax", 2018)
"""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.analysis.elementwise import plain_opcode
from hloopt.analysis.reduction import reduction_dims
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.types import ArrayShape

__all__ = ["OnlineSum", "merged_with_next", "online_sum"]

_MOST_LOOKED_AT = 64
_TYPES = ("f32", "f64")


@dataclass(frozen=True)
class OnlineSum:
    """A sum of ``exp(x - g(m))`` over rows.

    total    the reduction
    largest  that of ``m``, of the same rows of the same ``x``
    shift    what has ``g(m)`` for each row
    """

    total: Instruction
    largest: Instruction
    shift: Instruction


def online_sum(total: Instruction) -> OnlineSum | None:
    """What a reduction is as such a sum; None where it is none."""
    power = total.operands[0]
    if _plain(total) != "add" or power.opcode != "exponential" or not _has_type(power):
        return None
    difference = power.operands[0]
    if difference.opcode != "subtract" or difference.operands[1].opcode != "broadcast":
        return None
    source, wide = difference.operands
    shift = wide.operands[0]
    largest = _only_reduction(shift)
    if largest is None or _plain(largest) != "maximum":
        return None
    if _unconverted(largest.operands[0]) is not _unconverted(source):
        return None
    form, other = reduction_dims(total), reduction_dims(largest)
    if form is None or other is None or not (form.is_row and form == other):
        return None
    return OnlineSum(total, largest, shift)


def merged_with_next(heroes: Sequence[Sequence[Instruction]]) -> list[bool]:
    """Of the reductions of each pass over a row: whether the next pass is made with this one."""
    found = [False] * len(heroes)
    for number in range(1, len(heroes)):
        sums = [online_sum(hero) for hero in heroes[number]]
        before = heroes[number - 1]
        if not (number > 1 and found[number - 2]):
            found[number - 1] = all(one is not None and one.largest in before for one in sums)
    return found


def _plain(reduce: Instruction) -> str:
    """The opcode that reduces one operand; else empty."""
    is_one = reduce.opcode == "reduce" and len(reduce.operands) == 2
    return plain_opcode(reduce.attributes["to_apply"]) if is_one else ""


def _has_type(one: Instruction) -> bool:
    return isinstance(one.shape, ArrayShape) and one.shape.dtype.name in _TYPES


def _only_reduction(shift: Instruction) -> Instruction | None:
    """The one reduction that a value a row is computed from."""
    found: set[Instruction] = set()
    pending, seen = [shift], {shift}
    while pending:
        one = pending.pop()
        if one.opcode == "reduce":
            found.add(one)
            continue
        if len(seen) > _MOST_LOOKED_AT:
            return None
        for operand in one.operands:
            if operand not in seen:
                seen.add(operand)
                pending.append(operand)
    return found.pop() if len(found) == 1 else None


def _unconverted(one: Instruction) -> Instruction:
    """What casts to wider types are made of: they keep the order and every value."""
    while one.opcode == "convert" and one.operands[0].array.dtype.is_float:
        kind, source = one.array.dtype, one.operands[0].array.dtype
        if kind is not source and kind.bits <= source.bits:
            break
        one = one.operands[0]
    return one
