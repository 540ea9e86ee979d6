"""The concatenate kernel: a grid over the largest operand, every thread visits all of them."""

from __future__ import annotations

from math import gcd

from hloopt.analysis.emitters.launch import LaunchDimensions, loop_launch
from hloopt.analysis.emitters.unroll import unroll_factor
from hloopt.analysis.region import Region
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.targets import Target

__all__ = ["ConcatenateTiling", "concatenate_tiling"]


@dataclass(frozen=True, slots=True)
class ConcatenateTiling:
    """How threads share a concatenate.

    dimension  the one along which operands are put together
    offsets    where each operand begins along it
    elements   of the largest operand: the grid is over it, each operand guards its own bounds
    unroll     neighbouring elements a thread has; divides every operand's size along the dimension
    launch     grid and block
    """

    dimension: int
    offsets: tuple[int, ...]
    elements: int
    unroll: int
    launch: LaunchDimensions


def concatenate_tiling(
    hero: Instruction,
    region: Region,
    target: Target,
) -> ConcatenateTiling:
    """The tiling of the kernel of a concatenate."""
    (dimension,) = hero.dimensions
    sizes = [operand.array.dims[dimension] for operand in hero.operands]
    elements = max(operand.array.elements for operand in hero.operands)
    most = unroll_factor(region, target, elements, kind="concatenate").factor
    factor = gcd(most, *sizes)
    grid = loop_launch(elements, factor, target)
    offsets = tuple(sum(sizes[:number]) for number in range(len(sizes)))
    return ConcatenateTiling(dimension, offsets, elements, factor, grid)
