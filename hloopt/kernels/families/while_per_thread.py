"""A loop with a thread for each work item: carries in registers, streams written as they come."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Final

from hloopt.analysis.parallel_loop import (
    FusedLoop,
    LoopMapping,
    ParallelLoop,
    fused_loop,
    gpu_mappings,
    parallel_loop,
)
from hloopt.analysis.parallel_loop.state import LoopState
from hloopt.analysis.parallel_loop.thread_lanes import LANES, LaneValues
from hloopt.analysis.parallel_loop.thread_mapping import thread_mapping
from hloopt.analysis.reduction import WARP_SIZE
from hloopt.analysis.region import Region
from hloopt.cost_models.loop_time import best_lanes, better_mapping, loop_time
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Instruction
from hloopt.kernels.families.loop import operands_read, own_threads
from hloopt.kernels.families.reductions import accumulator_types
from hloopt.kernels.kernel import NO, YES, Kernel, Site, Verdict, elemental_problem
from hloopt.kernels.spec import (
    Argument,
    KernelSpec,
    Launch,
    LeafPlace,
    ScratchBuffer,
    Tile,
    written,
)

__all__ = [
    "FINISH",
    "KERNELS",
    "ThreadLoop",
    "lanes_of",
    "loop_launches",
    "needs_whole_warps",
    "runs_alone",
    "thread_loop",
]

FINISH: Final = "_finish"
"""The name of the launch that adds up what was collected."""

FINISH_THREADS: Final = 128
"""Threads of that launch's blocks; a warp for each iteration."""


@dataclass(frozen=True)
class ThreadLoop:
    """The parts of a fusion that is a loop."""

    fused: FusedLoop
    parallel: ParallelLoop

    def covers(self, number: int) -> bool:
        """Whether the iterations write every element of what is streamed."""
        update = self.parallel.carried[number].update
        return update is not None and LoopState(self.parallel.loop).covers(update)

    @property
    def collected(self) -> tuple[Instruction, ...]:
        """The reduces of which parts are put together after the loop."""
        return self.parallel.collected if self.parallel.iterations.count else ()


def thread_loop(region: Region) -> ThreadLoop:
    """The loop that a region is."""
    fused = fused_loop(region.instruction)
    assert fused is not None, "a fusion of one loop"
    return ThreadLoop(fused, parallel_loop(fused.loop, collect=True))


def runs_alone(site: Site, mapping_of: Callable[[Instruction], LoopMapping]) -> Verdict:
    """Whether a region is a loop that fits, and each element of it can be computed by itself."""
    fused = fused_loop(site.region.instruction)
    if fused is None:
        return NO("it is not the fusion of one loop")
    mapping = mapping_of(fused.loop)
    problem = mapping.problem or elemental_problem(site.region, loops=True)
    return (
        NO(problem)
        if problem
        else YES(f"{mapping.parallel.work_items} work items run by themselves")
    )


def loop_launches(
    site: Site, loop: ThreadLoop, parts: int, run: tuple[int, int], finish: tuple[int, int]
) -> tuple[tuple[Launch, ...], tuple[ScratchBuffer, ...]]:
    """The launch of a loop, and where reduces are collected one that puts together the parts, with their room.

    ``parts`` are left of each reduce in an iteration; ``run`` and ``finish`` are their blocks and threads.
    """
    iterations = loop.parallel.iterations.count or 0
    scratch = []
    for reduce in loop.collected:
        (kind,) = accumulator_types(reduce)
        scratch.append(ScratchBuffer(kind.name, iterations * reduce.array.elements * parts))
    later: list[int] = []
    now: list[int] = []
    for number, result in enumerate(site.region.results):
        if result.shape.elements:
            update = loop.parallel.carried[loop.fused.results[number]].update
            (later if scratch and update in loop.parallel.after else now).append(number)
    # What no iteration writes of a result of the second launch, the first one does.
    left = [number for number in later if not loop.covers(loop.fused.results[number])]
    read = operands_read(site.region)
    places = [LeafPlace("scratch", number) for number in range(len(scratch))]
    given = [Argument(place, "out") for place in places]
    first = Launch.linear("", *run, (*read, *written(now), *written(left, partial=True), *given))
    if not scratch:
        return (first,), ()
    given = [Argument(place, "in") for place in places]
    given += [Argument(LeafPlace("result", one), "out", partial=one in left) for one in later]
    return (first, Launch.linear(FINISH, *finish, (*read, *given))), tuple(scratch)


def lanes_of(tile: Tile) -> int:
    """Threads that run a work item together."""
    return tile.get("lanes", 1)


def needs_whole_warps(loop: ThreadLoop, lanes: int) -> bool:
    """Whether lanes exchange values, so that no thread may leave before the others of its warp."""
    return bool(
        loop.parallel.collected or lanes > 1 or LaneValues(loop.parallel).exchangeable(lanes)
    )


def _fits(site: Site) -> Verdict:
    return runs_alone(site, lambda loop: thread_mapping(loop, site.target))


def _wanted(site: Site) -> Verdict:
    found = gpu_mappings(thread_loop(site.region).parallel.loop, site.target)
    best = better_mapping(found, site.target) if site.target.has_threads else None
    if best is None or best[0].kind == "thread":
        return YES("no work item waits for another one")
    mine = loop_time(found[0], site.target)
    return NO(
        f"a block for each work item takes {best[1].ns:.0f} ns by estimate, a thread {mine.ns:.0f} ns"
    )


def _tile(site: Site) -> Tile:
    loop = thread_loop(site.region)
    lanes = best_lanes(thread_mapping(loop.parallel.loop, site.target), site.target)
    # Few work items are spread over all cores: warps on one core would share what it can do.
    spread = -(-loop.parallel.work_items * lanes // max(site.target.cores, 1))
    threads = min(-(-spread // WARP_SIZE) * WARP_SIZE, site.limits.loop_threads)
    return MappingProxyType({"threads": max(threads, WARP_SIZE), "vector": 1, "lanes": lanes})


def _spec(site: Site, tile: Tile) -> KernelSpec:
    loop = thread_loop(site.region)
    lanes = lanes_of(tile)
    _check_lanes(loop, lanes)
    if tile["vector"] != 1:
        raise UsageError(
            f"while-per-thread: vector={tile['vector']}; a thread has one work item at a time, 1"
        )
    work_items = loop.parallel.work_items * lanes
    blocks, threads = own_threads(site, work_items, tile)
    if needs_whole_warps(loop, lanes):
        blocks = _whole_warps(work_items, threads)
    finish = (
        -(-(loop.parallel.iterations.count or 0) // (FINISH_THREADS // WARP_SIZE)),
        FINISH_THREADS,
    )
    warps = -(-loop.parallel.work_items // WARP_SIZE)
    return KernelSpec(
        "while-per-thread", tile, *loop_launches(site, loop, warps, (blocks, threads), finish)
    )


def _check_lanes(loop: ThreadLoop, lanes: int) -> None:
    if lanes not in LANES:
        raise UsageError(
            f"while-per-thread: {lanes} lanes for a work item do not divide a warp:"
            f" {', '.join(map(str, LANES))}"
        )
    if lanes > 1 and loop.parallel.collected:
        raise UsageError(
            f"while-per-thread: {lanes} lanes for a work item would add it {lanes} times to"
            f" {loop.parallel.collected[0].name}, which warps fold"
        )


def _whole_warps(work_items: int, threads: int) -> int:
    if threads % WARP_SIZE:
        raise UsageError(
            f"while-per-thread: {threads} threads are not whole warps of {WARP_SIZE}, whose lanes exchange"
            " values"
        )
    return -(-work_items // threads)


KERNELS = (
    Kernel(
        "while-per-thread",
        "a thread runs its part of a loop from the first iteration to the last, carries in registers",
        _fits,
        _wanted,
        _tile,
        _spec,
    ),
)
