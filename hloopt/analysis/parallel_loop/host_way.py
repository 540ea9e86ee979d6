"""A block of units for each task of a processor's thread: does it fit, and what does it take?

Units lie side by side in vectors, a lane each; what a block keeps of its units is in the caches of a core from
the first trip to the last.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hloopt.analysis.elemental import first_not_elemental
from hloopt.analysis.parallel_loop.find import parallel_loop
from hloopt.analysis.parallel_loop.model import ParallelLoop, Way
from hloopt.analysis.parallel_loop.thread_code import code_problem, thread_plan
from hloopt.ir import Instruction

__all__ = ["LANES", "MOST_BLOCK_BYTES", "block_units", "host_way", "unit_bytes"]

LANES: Final = 16
"""Units of the smallest block that fills a vector: 64 bytes of f32."""

MOST_BLOCK_BYTES: Final = 512 << 10
"""Of what a block keeps: half of the second-level cache, which also holds what trips read."""

_BLOCK_BYTES: Final = 16 << 10
"""Of a block where more units would do: half of the first-level cache."""

_MOST_UNITS: Final = 256
"""Of a block: beyond that, beginning a loop over lanes takes no part of the time that could be seen."""

_TASKS: Final = 16
"""Tasks that a loop should have at least, so that a few threads can share them evenly ..."""

_ENOUGH_UNITS: Final = 64
"""... unless blocks get smaller than that: with fewer vectors a core waits for one result after the other."""

MOST_PART_BYTES: Final = 1 << 28
"""Of what blocks leave of collected reduces until the loop is done."""


def host_way(loop: Instruction) -> Way:
    """How a ``while`` would run by blocks of units."""
    parallel = parallel_loop(loop, collect=True)
    way = Way("thread", parallel)
    if parallel.obstacle is not None:
        return replace(way, problem=parallel.obstacle.words, code="op")
    unable = first_not_elemental((loop,), loops=True)
    if unable is not None:
        words = f"{unable.opcode} {unable.name} is nothing that a thread computes alone"
        return replace(way, problem=words, code="op")
    if not parallel.units:
        words = "it has no units: a dimension along its axes is empty"
        return replace(way, problem=words, code="op")
    for carried in parallel.carried:
        if carried.role != "invariant" and carried.shape.dtype.bits < 8:
            words = f"elements of {carried.shape.dtype.name} share bytes with their neighbours"
            return replace(way, problem=words, code="op")
    if parallel.trips.kind == "gathered" and parallel.units > 1:
        words = f"the condition of {loop.name} reads all {parallel.units} units"
        return replace(way, problem=words, code="gathered-condition")
    for reduce in parallel.collected:
        if reduce.array.dtype.is_complex:
            words = f"parts of {reduce.name} are complex numbers, which nothing puts together"
            return replace(way, problem=words, code="op")
    too_long = code_problem(thread_plan(parallel))
    if too_long:
        return replace(way, **too_long)
    sizes = (
        (unit_bytes(parallel) * block_units(parallel), MOST_BLOCK_BYTES, "a block takes"),
        (_part_bytes(parallel), MOST_PART_BYTES, "its blocks leave of reduces over units"),
    )
    for actual, limit, what in sizes:
        if actual > limit:
            because = f": {parallel.mixing[0].words}" if parallel.mixing else ""
            words = f"{what} {actual} bytes, {limit} at most{because}"
            code = "mixes" if parallel.mixing else "state-too-large"
            return replace(way, problem=words, code=code, limit=limit, actual=actual)
    return way


def unit_bytes(parallel: ParallelLoop) -> int:
    """What a unit keeps from one loop over lanes to the next, about."""
    plan = thread_plan(parallel)
    return plan.local_bytes + 4 * plan.kept_words


def block_units(parallel: ParallelLoop) -> int:
    """Units of a block: whole vectors that fit the cache, some blocks; a divisor of all where one is near."""
    units = parallel.units
    if unit_bytes(parallel) * min(units, LANES) > MOST_BLOCK_BYTES:
        # Vectors then lie along what a unit has.
        return 1
    if units <= LANES:
        return units
    wanted = max(units // _TASKS, _ENOUGH_UNITS)
    most = min(_BLOCK_BYTES // max(unit_bytes(parallel), 1), _MOST_UNITS, wanted)
    most = max(most // LANES * LANES, LANES)
    for size in range(most, max(most // 2, LANES) - 1, -LANES):
        if units % size == 0:
            return size
    return most


def _part_bytes(parallel: ParallelLoop) -> int:
    blocks = -(-parallel.units // block_units(parallel))
    trips = parallel.trips.count or 0
    return sum(
        trips * blocks * reduce.array.elements * max(reduce.array.dtype.bits // 8, 4)
        for reduce in parallel.collected
    )
