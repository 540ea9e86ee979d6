"""A thread for each unit: does it fit, and what does it take?"""

from __future__ import annotations

from typing import Final

from hloopt.analysis.parallel_loop.find import parallel_loop
from hloopt.analysis.parallel_loop.model import ParallelLoop, Way
from hloopt.analysis.parallel_loop.thread_plan import ThreadPlan
from hloopt.analysis.reduction import WARP_SIZE
from hloopt.ir import Instruction
from hloopt.targets import Target

__all__ = ["MOST_LOCAL_BYTES", "MOST_PART_BYTES", "MOST_REGISTERS", "thread_way"]

MOST_REGISTERS: Final = 240
"""Estimated registers of a thread: it has 255, and what does not fit goes to memory in each trip."""

MOST_LOCAL_BYTES: Final = 4096
"""Of the arrays of a thread that are no registers: 64 threads' fill a core's first-level cache."""

MOST_PART_BYTES: Final = 1 << 30
"""Of what the warps leave of collected reduces until the loop is done."""


def thread_way(loop: Instruction, target: Target) -> Way:
    """How a ``while`` would run by a thread for each unit."""
    parallel = parallel_loop(loop, collect=True)
    if parallel.obstacle is not None:
        return Way("thread", parallel, parallel.obstacle.words)
    plan = ThreadPlan(parallel)
    return Way(
        "thread",
        parallel,
        _problem(plan),
        registers=plan.registers,
        stored=tuple((value, 0) for value in plan.stored),
    )


def _problem(plan: ThreadPlan) -> str:
    parallel = plan.parallel
    for reduce in parallel.collected:
        if any(axis is not None for axis in parallel.owned.get((reduce, 0), ())):
            return f"reduce {reduce.name} is over some of the axes of the units only"
    parts = _part_bytes(parallel)
    if parts > MOST_PART_BYTES:
        return (
            f"its warps leave {parts} bytes of reduces over units, at most {MOST_PART_BYTES} are kept until"
            " the loop is done"
        )
    if plan.local_bytes > MOST_LOCAL_BYTES:
        return (
            f"a unit keeps {plan.local_bytes} bytes in arrays, a thread {MOST_LOCAL_BYTES} at most"
            f"{_because(parallel)}"
        )
    if plan.registers > MOST_REGISTERS:
        return (
            f"a unit takes about {plan.registers} registers, a thread has {MOST_REGISTERS} for it"
            f"{_because(parallel)}"
        )
    return ""


def _because(parallel: ParallelLoop) -> str:
    """What makes a unit that large: the first instruction that mixes what might have been units."""
    return f": {parallel.mixing[0].words}" if parallel.mixing else ""


def _part_bytes(parallel: ParallelLoop) -> int:
    warps = -(-parallel.units // WARP_SIZE)
    trips = parallel.trips.count or 0
    return sum(
        trips * warps * reduce.array.elements * max(reduce.array.dtype.bits // 8, 4)
        for reduce in parallel.collected
    )
