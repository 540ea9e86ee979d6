"""A thread for each unit: does it fit, and what does it take?"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hloopt.analysis.elemental import first_not_elemental
from hloopt.analysis.parallel_loop.find import parallel_loop
from hloopt.analysis.parallel_loop.model import ParallelLoop, Way
from hloopt.analysis.parallel_loop.thread_code import code_problem, thread_plan
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
        return Way("thread", parallel, parallel.obstacle.words, code="op")
    unable = first_not_elemental((loop,), loops=True)
    if unable is not None:
        words = f"{unable.opcode} {unable.name} is nothing that a thread computes alone"
        return Way("thread", parallel, words, code="op")
    if not parallel.units:
        words = "it has no units: a dimension along its axes is empty"
        return Way("thread", parallel, words, code="op")
    plan = thread_plan(parallel)
    way = Way(
        "thread",
        parallel,
        registers=plan.registers,
        stored=tuple((value, 0) for value in plan.stored),
    )
    if parallel.trips.kind == "gathered" and parallel.units > 1:
        words = f"the condition of {loop.name} reads all {parallel.units} units, a thread has one"
        return replace(way, problem=words, code="gathered-condition")
    limits = (
        (plan.local_bytes, MOST_LOCAL_BYTES, "bytes in arrays of its own"),
        (plan.registers, MOST_REGISTERS, "registers, as estimated"),
    )
    for actual, limit, what in limits:
        if actual > limit:
            words = (
                f"a unit takes {actual} {what}, a thread has {limit} at most{_because(parallel)}"
            )
            code = "mixes" if parallel.mixing else "state-too-large"
            return replace(way, problem=words, code=code, limit=limit, actual=actual)
    too_long = code_problem(plan)
    if too_long:
        return replace(way, **too_long)
    parts = _part_bytes(parallel)
    if parts > MOST_PART_BYTES:
        words = f"its warps leave {parts} bytes of reduces over units, {MOST_PART_BYTES} at most"
        return replace(
            way, problem=words, code="state-too-large", limit=MOST_PART_BYTES, actual=parts
        )
    return way


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
