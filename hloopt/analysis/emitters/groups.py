"""Which roots of a reduction kernel are computed by the same blocks."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.analysis.hero import is_real_reduction_hero
from hloopt.analysis.region import Region
from hloopt.graphs import UnionFind
from hloopt.ir import Instruction

__all__ = ["reduction_groups"]


def reduction_groups(
    region: Region, roots: Sequence[Instruction], heroes: Sequence[Instruction]
) -> tuple[tuple[int, ...], ...]:
    """The numbers of the roots, grouped; each group has its own z in the grid.

    Roots that are computed from a common value are one group.  Values of one element, constants and their
    broadcasts do not join reductions, as every group can have its own; all roots that are no reductions are in
    one group.
    """
    classes = UnionFind[int]()
    reductions = {
        number
        for number, pair in enumerate(zip(roots, heroes, strict=True))
        if is_real_reduction_hero(*pair)
    }
    classes.join(*(number for number in range(len(roots)) if number not in reductions))
    for instruction, reached in _reached(region, roots).items():
        numbers = sorted(reached)
        if _is_cheap(instruction):
            first = [number for number in numbers if number in reductions][:1]
            numbers = sorted([*first, *(number for number in numbers if number not in reductions)])
        classes.join(*numbers)
    groups: dict[int, list[int]] = {}
    for number in range(len(roots)):
        groups.setdefault(classes.find(number), []).append(number)
    return tuple(map(tuple, groups.values()))


def _reached(region: Region, roots: Sequence[Instruction]) -> dict[Instruction, set[int]]:
    """For each value in the kernel, inputs too, the numbers of the roots computed from it."""
    reached: dict[Instruction, set[int]] = {}
    for number, root in enumerate(roots):
        reached.setdefault(root, set()).add(number)
    for instruction in reversed(region.body):
        for operand in instruction.operands:
            reached.setdefault(operand, set()).update(reached.get(instruction, ()))
    return reached


def _is_cheap(instruction: Instruction) -> bool:
    """A constant, a value of rank 0, or a broadcast of either."""
    if instruction.opcode == "broadcast":
        instruction = instruction.operands[0]
    return instruction.opcode == "constant" or getattr(instruction.shape, "dims", None) == ()
