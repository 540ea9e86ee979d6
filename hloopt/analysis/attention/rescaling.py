"""Sums and contexts of exponentials, kept in step with the greatest score while it is not yet known.

    e = exp(x - max x)      sum = sum(g e)      context = (h e / r(sum)) . values

With a smaller maximum ``e`` is larger by one factor a row: all that is linear in ``e`` is scaled by it, and a
factor a row that waits for the sums is applied at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from typing import Final

import ml_dtypes

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops.traits import REARRANGING
from hloopt.types import ArrayShape, DType

__all__ = ["LateFactor", "Rescaling", "of_a_row", "rescaling_of"]

_VIEWS: Final = REARRANGING - {"reverse", "slice"}
_LINEAR: Final = _VIEWS | {"convert", "negate"}
_WIDE: Final = 1e30
"""What types hold that have the exponents of f32."""
_LEAST: Final = 2.0**-4
"""Of the greatest weights in other types: smaller ones would lose bits."""


@dataclass(frozen=True)
class LateFactor:
    """What a context is multiplied or divided by when all columns are known: ``value`` has an element a row."""

    opcode: str
    value: Instruction


@dataclass
class Rescaling:
    """How a sweep goes on without knowing the greatest score.

    greatest  the reduction that finds it
    linear    what is proportional to the exponentials, with the factors a row that it waits for
    kept      the sums and contexts that are scaled, with the late factor of each
    """

    greatest: Instruction
    linear: Mapping[Instruction, LateFactor | None]
    kept: dict[Instruction, LateFactor | None] = field(default_factory=dict)

    def follow(
        self,
        pending: Iterable[Instruction],
        needs: Mapping[Instruction, AbstractSet[Instruction]],
        known: AbstractSet[Instruction],
    ) -> list[Instruction]:
        """Those of ``pending`` that can be computed in the same sweep: ``kept`` from now on."""
        allowed = {*known, self.greatest}
        for one in pending:
            if one.opcode == "reduce" and needs[one] <= allowed and self.greatest in needs[one]:
                source = one.operands[0]
                is_sum = one.attributes["to_apply"].root.opcode == "add"
                if is_sum and source in self.linear:
                    self.kept[one] = self.linear[source]
                    allowed.add(one)
        for one in pending:
            if one.opcode == "dot" and needs[one] <= allowed and self.greatest in needs[one]:
                weights = [part for part in one.operands if part in self.linear]
                if len(weights) == 1:
                    self.kept[one] = self.linear[weights[0]]
        return list(self.kept)


def rescaling_of(
    body: Sequence[Instruction], greatest: Instruction, depends: Mapping[Instruction, object]
) -> Rescaling:
    """What is proportional to the exponentials of what lies below the greatest score.

    ``depends`` has what is computed from scores.
    """
    after: set[Instruction] = {greatest}
    linear: dict[Instruction, LateFactor | None] = {}
    sizes: dict[Instruction, float] = {}
    for inner in body:
        if not any(part in after for part in inner.operands):
            continue
        after.add(inner)
        if _is_exponential(inner, greatest):
            linear[inner] = None
            sizes[inner] = 1.0
            continue
        above = [part for part in inner.operands if part in after]
        found = _proportional(inner, above, after, linear, depends, greatest)
        if found is not None:
            sizes[inner] = _size(inner, linear, sizes, is_late=found[0] is not None)
            if _holds(inner.array.dtype, sizes[inner]):
                linear[inner] = found[0]
    return Rescaling(greatest, linear)


def _is_exponential(one: Instruction, greatest: Instruction) -> bool:
    """Whether it is ``exp(x - max x)``."""
    if one.opcode != "exponential" or one.operands[0].opcode != "subtract":
        return False
    score, most = one.operands[0].operands
    return _seen(most) is greatest and _seen(score) is _seen(greatest.operands[0])


def _seen(one: Instruction) -> Instruction:
    """What views, one behind the other, are of; the greatest of wider numbers is the same number."""
    while one.operands and (one.opcode in _VIEWS or _widens(one)):
        one = one.operands[0]
    return one


def _widens(one: Instruction) -> bool:
    if one.opcode != "convert":
        return False
    source, kind = one.operands[0].array.dtype, one.array.dtype
    return source.is_narrow_float and kind.is_float and kind.bits >= 32


def _proportional(
    one: Instruction,
    above: Sequence[Instruction],
    after: AbstractSet[Instruction],
    linear: Mapping[Instruction, LateFactor | None],
    depends: Mapping[Instruction, object],
    greatest: Instruction,
) -> tuple[LateFactor | None] | None:
    """The late factor of what is proportional to exponentials, in a tuple; None where it is not."""
    if not isinstance(one.shape, ArrayShape) or not one.shape.dtype.is_float:
        return None
    ours = [part for part in above if part in linear]
    if len(ours) != 1:
        return None
    (own,) = ours
    if one.opcode in _LINEAR:
        return (linear[own],)
    if one.opcode in ("multiply", "divide"):
        if one.opcode == "divide" and one.operands[1] is own:
            return None
        other = one.operands[1] if one.operands[0] is own else one.operands[0]
        if other not in above:
            return (linear[own],)
        late = _late_factor(one.opcode, other, after, depends)
        if late is None or linear[own] is not None or _seen(late.value) is greatest:
            return None  # exponentials wait for the greatest, too
        return (late,)
    if one.opcode == "select" and above == [own] and one.operands[0] is not own:
        other = one.operands[2] if one.operands[1] is own else one.operands[1]
        seen = _seen(other).constant_array
        if seen is not None and seen.size == 1 and not seen.reshape(-1)[0]:
            return (linear[own],)
    return None


def _late_factor(
    opcode: str,
    other: Instruction,
    after: AbstractSet[Instruction],
    depends: Mapping[Instruction, object],
) -> LateFactor | None:
    """The value a row in what exponentials are multiplied with or divided by: all of it, or a factor."""
    row = of_a_row(other)
    if row is not None:
        return LateFactor(opcode, row) if row in depends else None
    if opcode != "multiply" or other.opcode not in ("multiply", "divide"):
        return None
    rows = [part for part in other.operands if part in after]
    if len(rows) != 1 or (other.opcode == "divide" and rows[0] is not other.operands[1]):
        return None
    row = of_a_row(rows[0])
    return LateFactor(other.opcode, row) if row is not None and row in depends else None


def _size(
    one: Instruction,
    linear: Mapping[Instruction, LateFactor | None],
    sizes: Mapping[Instruction, float],
    *,
    is_late: bool,
) -> float:
    """The greatest size of what is proportional to exponentials, without its late factor; inf where unknown."""
    (own,) = (part for part in one.operands if part in linear)
    if one.opcode not in ("multiply", "divide") or (is_late and linear[own] is None):
        return sizes[own]
    other = one.operands[1] if one.operands[0] is own else one.operands[0]
    seen = _seen(other).constant_array
    if seen is None or seen.size != 1:
        return math.inf
    factor = abs(float(seen.reshape(-1)[0]))
    if one.opcode == "divide":
        factor = 1 / factor if factor else math.inf
    return sizes[own] * factor


def _holds(kind: DType, size: float) -> bool:
    """Whether a type holds numbers of a size which are to be scaled later: f16 and f8 have few exponents.

    What f16 has as 0 only once it is divided by the sum stays a small weight here.  Times an infinite value it
    gives that infinity, as the exact weight does, where the text has NaN.
    """
    greatest = float(ml_dtypes.finfo(kind.numpy).max)  # type: ignore[no-untyped-call]
    return greatest > _WIDE or _LEAST <= size <= greatest


def of_a_row(one: Instruction) -> Instruction | None:
    """The value that a broadcast, perhaps behind other views, gives every column of a row."""
    spread = False
    while one.opcode in _VIEWS and one.operands:
        spread = spread or one.array.elements > one.operands[0].array.elements
        one = one.operands[0]
        if spread:
            return one
    return None
