"""How many kernels a sort is on a GPU: XLA sorts by a bitonic network, of which a block runs what fits a tile.

A row of n elements takes S = ceil(log2(n)) stages, and stage s compares elements at s + 1 distances.  A tile
has T of the stages: as many elements as fit 48 KiB of shared memory, and at most 4096.  One kernel runs the
first T stages; of each later one, distances as long as a tile are a kernel each, and the others are one::

    kernels = 1 + (2 + 3 + ... + (S - T + 1))

Each reads and writes all operands.  So counted in what XLA of JAX 0.10.2 compiles for an H200 without having
one: 10 kernels for rows of 32,000 f32 with their places, 45 for 1,048,576, 15 for rows of 32,000 with four
values, 21 with eight.  There it calls no sort of CUB; where it does, a sort takes less.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log2
from typing import Final

from hloopt.cost_models.model import RunTime
from hloopt.ir import Instruction

__all__ = ["in_passes", "sort_of", "sort_passes"]

_SHARED: Final = 48 << 10
"""Bytes of shared memory for a tile of all operands."""
_LONGEST: Final = 4096
"""Elements of a tile at most: 1,024 threads with four each."""
_EACH: Final = 4


def sort_of(kernel: Instruction) -> Instruction | None:
    """The sort that a kernel is, or that ends its fusion."""
    root = kernel.calls.root if kernel.opcode == "fusion" else kernel
    return root if root.opcode == "sort" else None


def sort_passes(sort: Instruction) -> int:
    """How many kernels sort the rows of the operands."""
    return 1 + sum(range(2, _stages(sort) - _tile(sort) + 2))


def _stages(sort: Instruction) -> int:
    return ceil(log2(max(1, sort.operands[0].array.dims[sort.dimensions[0]])))


def _tile(sort: Instruction) -> int:
    """How many stages one kernel runs."""
    shapes = [operand.array for operand in sort.operands]
    widest = sum(shape.byte_size / max(1, shape.elements) for shape in shapes)
    return int(log2(min(_LONGEST, _SHARED / max(1.0, widest))))


def in_passes(kernel: Instruction, one: RunTime, launch_ns: float) -> RunTime:
    """The time of a kernel, where it is a sort that of all of its passes; ``one`` is that of a single pass.

    Blocks and threads are those of the first.
    """
    sort = sort_of(kernel)
    if sort is None:
        return one
    passes, stages = sort_passes(sort), _stages(sort)
    tile = min(_tile(sort), stages)
    shape = sort.operands[0].array
    rows = shape.elements // max(1, shape.dims[sort.dimensions[0]])
    return replace(
        one,
        bytes_read=one.bytes_read * passes,
        bytes_written=one.bytes_written * passes,
        read_ns=one.read_ns * passes,
        write_ns=one.write_ns * passes,
        exec_ns=one.exec_ns * passes + launch_ns * (passes - 1),
        blocks=rows << (stages - tile),
        threads=max(1, (1 << tile) // _EACH),
        launches=passes,
    )
