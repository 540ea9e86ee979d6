"""Grids and blocks: how many threads run, how wide their indices are, and the registers they need."""

from __future__ import annotations

from math import prod
from typing import Final

from hloopt.analysis.region import Region
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.targets import Target
from hloopt.types import ArrayShape, BufferShape, leaves

__all__ = [
    "LaunchDimensions",
    "index_bits",
    "loop_launch",
    "register_estimate",
    "split_grid",
    "tiled_launch",
]


_INT32_MAX = 2**31 - 1


_LOOP_THREADS: Final = 128
"""Of a loop kernel's block: 4 warp schedulers times 32 lanes."""


@dataclass(frozen=True, slots=True)
class LaunchDimensions:
    """Blocks and threads of a block, each in x, y, z.

    A grid that was split over x and y may have blocks after the last one needed: kernels count blocks as
    ``x + y * grid_x`` and compare.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]

    @property
    def blocks(self) -> int:
        """Blocks of the whole grid."""
        return prod(self.grid)

    @property
    def threads_per_block(self) -> int:
        """Threads of one block."""
        return prod(self.block)

    @property
    def threads(self) -> int:
        """Threads of the whole grid."""
        return self.blocks * self.threads_per_block


def loop_launch(elements: int, unroll: int, target: Target) -> LaunchDimensions:
    """The launch of a kernel whose threads compute ``unroll`` of ``elements`` elements each."""
    if elements <= 1:
        return LaunchDimensions((1, 1, 1), (1, 1, 1))
    chunks = -(-elements // unroll)
    threads = min(_LOOP_THREADS, chunks)
    return tiled_launch(-(-chunks // threads), threads, target)


def tiled_launch(blocks: int, threads: int, target: Target, groups: int = 1) -> LaunchDimensions:
    """A launch of ``blocks`` blocks, once for each of ``groups`` in z."""
    x, y = split_grid(blocks, target)
    return LaunchDimensions((x, y, groups), (threads, 1, 1))


def split_grid(blocks: int, target: Target) -> tuple[int, int]:
    """``(x, y)`` with ``x * y >= blocks``, x within the device's limit and y as small as that allows."""
    y = max(1, -(-blocks // target.grid_limit[0]))
    return -(-blocks // y), y


def index_bits(region: Region, launch_size: int) -> int:
    """32 where the launch (threads times elements of each) and every array's elements fit into an int32.

    Counts operands, results, and all values inside a fusion; 64 otherwise.
    """
    counts = [launch_size, *(shape.elements for shape in region.operands)]
    for instruction in (*region.body, region.instruction):
        counts.extend(_elements(leaf) for leaf in leaves(instruction.shape))
    return 32 if max(counts) <= _INT32_MAX else 64


def _elements(leaf: ArrayShape | BufferShape) -> int:
    return (leaf.element if isinstance(leaf, BufferShape) else leaf).elements


# Thread and block numbers, the linear index and the two halves of an address in flight.
_OVERHEAD = 10
_POINTER = 2


def register_estimate(region: Region, copies: int = 1, index_bits: int = 32) -> int:
    """Registers of 32 bits a thread holds at most: an estimate; the compiler's figure may differ.

    Each value is alive from where it is computed to its last use, and has ``copies`` elements in a thread (the
    unroll factor, or the vector of a tiling).  Constants and what has one element are held once; a pointer to
    each array and an index of ``index_bits`` come on top.  Linear in the region's size.
    """
    body = region.body
    last: dict[Instruction, int] = {}
    for position, instruction in enumerate(body):
        for operand in instruction.operands:
            last[operand] = position
    for result in region.results:
        last[result.instruction] = len(body)
    ends: dict[int, int] = {}
    alive = most = 0
    first_use: set[Instruction] = set()
    for position, instruction in enumerate(body):
        for operand in instruction.operands:
            if operand in region.inputs and operand not in first_use:
                first_use.add(operand)
                alive += _words(operand, copies)
                ends[last[operand]] = ends.get(last[operand], 0) + _words(operand, copies)
        words = _words(instruction, copies)
        alive += words
        end = last.get(instruction, position)
        ends[end] = ends.get(end, 0) + words
        most = max(most, alive)
        alive -= ends.pop(position, 0)
    pointers = _POINTER * (len(region.read) + len(region.results))
    return _OVERHEAD + pointers + index_bits // 32 + most


def _words(instruction: Instruction, copies: int) -> int:
    if not isinstance(instruction.shape, ArrayShape) or instruction.opcode == "constant":
        return 0
    words = -(-instruction.shape.dtype.bits // 32)
    return words if instruction.shape.elements == 1 else words * copies
