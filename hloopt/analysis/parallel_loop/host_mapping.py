"""A block of work items for each task of a processor's thread: does it fit, and what does it need?

Work items lie side by side in vectors, a lane each; what a block keeps of its work items is in the caches of a
core from the first iteration to the last.
"""

from __future__ import annotations

from typing import Final

from hloopt.analysis.parallel_loop.find import parallel_loop
from hloopt.analysis.parallel_loop.model import LoopMapping, ParallelLoop
from hloopt.analysis.parallel_loop.thread_code import (
    code_problem,
    kernel_problem,
    not_elemental,
    part_bytes,
    size_problem,
    thread_plan,
)
from hloopt.ir import Instruction

__all__ = ["LANES", "MOST_BLOCK_BYTES", "block_items", "host_mapping", "item_bytes"]

LANES: Final = 16
"""Work items of the smallest block that fills a vector: 64 bytes of f32."""

MOST_BLOCK_BYTES: Final = 512 << 10
"""Of what a block keeps: half of the second-level cache, which also holds what iterations read."""

_BLOCK_BYTES: Final = 16 << 10
"""Of a block where more work items would do: half of the first-level cache."""

_MOST_ITEMS: Final = 256
"""Of a block: above that, starting a loop over lanes takes no measurable part of the time."""

_TASKS: Final = 16
"""Tasks that a loop should have at least, so that a few threads can share them evenly ..."""

_ENOUGH_ITEMS: Final = 64
"""... unless blocks get smaller than that: with fewer vectors a core waits for one result after the other."""

MOST_PART_BYTES: Final = 1 << 28
"""Of what blocks leave of collected reduces until the loop is done."""


def host_mapping(loop: Instruction) -> LoopMapping:
    """How a ``while`` would run by blocks of work items."""
    parallel = parallel_loop(loop, collect=True)
    problem = kernel_problem(parallel, not_elemental)
    mixed = next((one for one in parallel.collected if one.array.dtype.is_complex), None)
    if not problem and mixed is not None:
        words = f"parts of {mixed.name} are complex numbers, which nothing puts together"
        problem = {"problem": words, "code": "op"}
    if not problem:
        size = block_items(parallel)
        block = item_bytes(parallel) * size, MOST_BLOCK_BYTES, "a block takes {} bytes, {} at most"
        words = "its blocks leave of reduces over work items {} bytes, {} at most"
        left = part_bytes(parallel, -(-parallel.work_items // size)), MOST_PART_BYTES, words
        problem = code_problem(thread_plan(parallel)) or size_problem(parallel, block, left)
    return LoopMapping("thread", parallel, **problem)


def item_bytes(parallel: ParallelLoop) -> int:
    """What a work item keeps from one loop over lanes to the next, about."""
    plan = thread_plan(parallel)
    return plan.local_bytes + 4 * plan.kept_words


def block_items(parallel: ParallelLoop) -> int:
    """Work items of a block: whole vectors that fit the cache, some blocks; a divisor of all if one is near."""
    work_items = parallel.work_items
    if item_bytes(parallel) * min(work_items, LANES) > MOST_BLOCK_BYTES:
        # Vectors then lie along what a work item has.
        return 1
    if work_items <= LANES:
        return work_items
    wanted = max(work_items // _TASKS, _ENOUGH_ITEMS)
    most = min(_BLOCK_BYTES // max(item_bytes(parallel), 1), _MOST_ITEMS, wanted)
    most = max(most // LANES * LANES, LANES)
    for size in range(most, max(most // 2, LANES) - 1, -LANES):
        if work_items % size == 0:
            return size
    return most
