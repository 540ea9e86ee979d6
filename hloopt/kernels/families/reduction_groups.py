"""Which results of a reduction kernel one launch computes: those that share what they read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from hloopt.analysis.region import Region
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, leaves

__all__ = ["ReductionGroup", "groups_of"]


@dataclass(frozen=True)
class ReductionGroup:
    """What one launch computes.

    heroes  the reduces, operands first
    roots   result leaves that are computed from them
    sides   result leaves with an element for each element that is reduced
    """

    heroes: tuple[Instruction, ...]
    roots: tuple[int, ...]
    sides: tuple[int, ...]

    @property
    def results(self) -> tuple[int, ...]:
        """All result leaves."""
        return (*self.roots, *self.sides)

    @property
    def inputs(self) -> tuple[Instruction, ...]:
        """What the heroes reduce."""
        return tuple(part for hero in self.heroes for part in hero.fold_inputs)

    @property
    def inits(self) -> tuple[Instruction, ...]:
        """What the heroes begin with."""
        return tuple(part for hero in self.heroes for part in hero.fold_inits)


def groups_of(
    region: Region,
    every: Iterable[Instruction],
    heroes: Mapping[int, frozenset[Instruction]],
) -> Iterator[ReductionGroup]:
    """Results that share something they read, or their hero, together; side results all in one group.

    ``every`` are the heroes, operands first; ``heroes`` has those of each result leaf, none for a side result.
    """
    masks = _masks(region)
    parts: list[tuple[int, list[int]]] = []
    sides = [number for number, found in heroes.items() if not found]
    seeds = [[number] for number, found in heroes.items() if found]
    for numbers in [*seeds, *([sides] if sides else [])]:
        mask = 0
        for number in numbers:
            mask |= masks.get(region.results[number].instruction, 0)
        joined = list(numbers)
        apart = []
        for other, members in parts:
            if other & mask:
                mask |= other
                joined += members
            else:
                apart.append((other, members))
        parts = [*apart, (mask, joined)]
    for _, members in sorted(parts, key=lambda part: min(part[1])):
        found = frozenset[Instruction]().union(*(heroes[number] for number in members))
        yield ReductionGroup(
            tuple(hero for hero in every if hero in found),
            tuple(sorted(number for number in members if heroes[number])),
            tuple(sorted(number for number in members if not heroes[number])),
        )


def _masks(region: Region) -> dict[Instruction, int]:
    """What each instruction is computed from, a bit each; scalars and constants do not count."""
    masks: dict[Instruction, int] = {}
    bit = 1
    for inner in (*region.inputs, *region.body):
        mask = 0
        if inner not in region.inputs:
            for operand in inner.operands:
                mask |= masks.get(operand, 0)
        first = next(iter(leaves(inner.shape)), None)
        elements = first.elements if isinstance(first, ArrayShape) else 1
        is_input = inner in region.inputs
        if inner.opcode == "reduce" or (
            elements > 1
            and (mask or is_input)
            and not (inner.opcode == "constant" and not is_input)
        ):
            mask |= bit
            bit <<= 1
        masks[inner] = mask
    return masks
