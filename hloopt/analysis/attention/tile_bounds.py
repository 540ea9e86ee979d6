"""What a kernel computes to find whether a tile of scores matters: bounds of its numbers, and limits.

Bounds are made of values that have an element a row, or a column: what these are the same along is read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from hloopt.analysis.attention.axes import Along, AxisNumber, known_along
from hloopt.analysis.attention.form import Attention
from hloopt.analysis.attention.places import along_operand, viewed
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction

__all__ = [
    "UNDERFLOW",
    "Limit",
    "TileBound",
    "differing",
    "heroes_above",
    "is_low",
    "made_bound",
    "reducer_of",
    "rises",
    "root_of",
]

UNDERFLOW: Final = -110.0
"""Exponentials below are zero in f32, and in all narrower types: the least number is exp(-103.3)."""
_MOST_SEEN: Final = 256
_MOST_PARTS: Final = 64
"""Of a bound: what is longer takes longer than the tile."""


@dataclass(frozen=True)
class TileBound:
    """What a number is at most.

    op     constant, value (an element a row or a column), size (the greatest of an operand), or of ``parts``
           add, multiply, divide, maximum, negate, abs
    along  of a value; ``axes`` are those along which it differs: any place will do along the others
    """

    op: str
    parts: tuple[TileBound, ...] = ()
    number: float = 0.0
    value: Instruction | None = None
    along: Along = ()
    axes: frozenset[AxisNumber] = frozenset()

    def walk(self) -> Iterator[TileBound]:
        """All of it: never much, see ``_MOST_PARTS``."""
        yield self
        for part in self.parts:
            yield from part.walk()


@dataclass(frozen=True)
class Limit:
    """A tile may be left out where ``bound`` is at most ``most`` in each row or column, and is not NaN."""

    bound: TileBound
    most: float


def made_bound(op: str, parts: Iterable[TileBound | None]) -> TileBound | None:
    found = [part for part in parts if part is not None]
    if len(found) < 2 or sum(sum(1 for _ in part.walk()) for part in found) > _MOST_PARTS:
        return None
    return TileBound(op, tuple(found))


def is_low(upper: TileBound) -> bool:
    """Whether something is there that takes a score so far down that its exponential may vanish."""
    return any(one.op == "constant" and one.number <= UNDERFLOW for one in upper.walk())


def root_of(form: Attention, one: Instruction, along: Along) -> tuple[Instruction, Along]:
    """What views are of, and what it lies along."""
    while viewed(one):
        own = along_operand(form, one, along, 0)
        if own is None:
            break
        one, along = one.operands[0], own
    return one, along


def reducer_of(one: Instruction) -> str:
    return one.attributes["to_apply"].root.opcode if one.opcode == "reduce" else ""


def heroes_above(form: Attention, value: Instruction) -> set[Instruction]:
    """The nearest heroes, or contexts, that a value is computed from."""
    pending, seen = [value], {value}
    found = set()
    while pending:
        one = pending.pop()
        if one not in form.along:
            continue
        if one.opcode in ("reduce", "dot"):
            found.add(one)
            continue
        new = [part for part in one.operands if part not in seen]
        seen.update(new)
        pending += new
    return found


def differing(form: Attention, one: Instruction, along: Along) -> frozenset[AxisNumber]:
    """The axes along which the elements of a value may differ."""
    pending, seen = [(one, along)], {(one, along)}
    found: set[AxisNumber] = set()
    while pending:
        at, own = pending.pop()
        if at.literal is not None and at.literal.splat is not None:
            continue
        parts = [along_operand(form, at, own, number) for number in range(len(at.operands))]
        descends = at not in form.along and (viewed(at) or at.op.is_elementwise)
        if not descends or None in parts or len(seen) > _MOST_SEEN:
            found.update(known_along(own))
            continue
        for operand, part in zip(at.operands, parts, strict=True):
            if part is not None and (operand, part) not in seen:
                seen.add((operand, part))
                pending.append((operand, part))
    return frozenset(found)


def rises(one: Instruction, greatest: Instruction) -> bool:
    """Whether a value is the greatest score, moved and rounded, or the greater one of that and a constant."""
    while one is not greatest:
        parts = list(one.operands)
        if one.opcode in ("maximum", "minimum"):
            parts = [part for part in parts if _constant(part) is None]
        elif not viewed(one) and one.opcode != "convert":
            return False
        if len(parts) != 1:
            return False
        (one,) = parts
    return True


def _constant(one: Instruction) -> Any:
    while viewed(one):
        one = one.operands[0]
    return None if one.literal is None else one.literal.splat
