"""A whole loop of the native device: a task runs a block of work items for all iterations.

The state of a block's work items is in arrays in the cache, a lane each, and each iteration processes them by
vectors.  A reduce over work items whose result the loop does not read leaves a part per iteration and block; a
second launch combines the parts, in the order of the blocks, whatever the number of threads.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from hloopt.analysis.parallel_loop.host_mapping import block_items, host_mapping
from hloopt.kernels.families.while_per_thread import (
    ThreadLoop,
    loop_launches,
    runs_alone,
    thread_loop,
)
from hloopt.kernels.kernel import Kernel, Site, always
from hloopt.kernels.spec import KernelSpec, Tile

__all__ = ["KERNELS", "blocks_of", "part_place"]

FINISH_ITERATIONS: Final = 64
"""Iterations per task of the launch that combines collected parts."""


def blocks_of(loop: ThreadLoop, tile: Tile) -> int:
    """How many blocks the work items are."""
    return -(-loop.parallel.work_items // tile["units"])


def part_place(loop: ThreadLoop, elements: int) -> tuple[int, int]:
    """Where parts of a result of ``elements`` lie: the strides of blocks and iterations.

    Iterations of a block are contiguous, so that no two threads write to the same cache line.
    """
    return elements * (loop.parallel.iterations.count or 0), elements


def _tile(site: Site) -> Tile:
    return MappingProxyType({"units": block_items(thread_loop(site.region).parallel)})


def _spec(site: Site, tile: Tile) -> KernelSpec:
    loop = thread_loop(site.region)
    blocks = blocks_of(loop, tile)
    finish = -(-(loop.parallel.iterations.count or 0) // FINISH_ITERATIONS), 1
    return KernelSpec("native-while", tile, *loop_launches(site, loop, blocks, (blocks, 1), finish))


KERNELS = (
    Kernel(
        "native-while",
        "a task runs a block of a loop's work items for all iterations, in the cache",
        lambda site: runs_alone(site, host_mapping),
        always("no block waits for another one"),
        _tile,
        _spec,
        device="native",
    ),
)
