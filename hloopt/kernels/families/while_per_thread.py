"""A loop by a thread for each unit: carries in registers, streams written as they come."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from hloopt.analysis.parallel_loop import FusedLoop, ParallelLoop, Way, fused_loop, parallel_loop
from hloopt.analysis.parallel_loop.thread_way import thread_way
from hloopt.analysis.reduction import WARP_SIZE
from hloopt.analysis.region import Region
from hloopt.kernels.elemental import elemental_problem
from hloopt.kernels.families.loop import operands_read, own_threads
from hloopt.kernels.kernel import NO, YES, Kernel, Site, Verdict
from hloopt.kernels.spec import Argument, KernelSpec, Launch, Place, Tile

__all__ = ["KERNELS", "ThreadLoop", "thread_loop"]


@dataclass(frozen=True)
class ThreadLoop:
    """A fusion that is a loop, taken apart."""

    fused: FusedLoop
    parallel: ParallelLoop

    def results(self, number: int) -> tuple[int, ...]:
        """The leaves of the fusion's result that are element ``number`` of the state."""
        return tuple(leaf for leaf, found in enumerate(self.fused.results) if found == number)


def thread_loop(region: Region) -> ThreadLoop | None:
    """The loop that a region is; None where it is none."""
    fused = fused_loop(region.instruction)
    return ThreadLoop(fused, parallel_loop(fused.loop, collect=True)) if fused is not None else None


def _way(site: Site) -> Way | None:
    fused = fused_loop(site.region.instruction)
    return thread_way(fused.loop, site.target) if fused is not None else None


def _fits(site: Site) -> Verdict:
    way = _way(site)
    if way is None:
        return NO("it is not the fusion of one loop")
    if way.problem:
        return NO(way.problem)
    for result in site.region.results:
        if result.shape.dtype.bits < 8:
            return NO(f"elements of {result.shape.dtype.name} share bytes with their neighbours")
    problem = elemental_problem(site.region, loops=True)
    return NO(problem) if problem else YES(f"{way.parallel.units} units run by themselves")


def _wanted(site: Site) -> Verdict:
    return YES("no unit waits for another one")


def _tile(site: Site) -> Tile:
    loop = thread_loop(site.region)
    assert loop is not None
    # Few units are spread over all cores: warps on one core would share what it can do.
    spread = -(-loop.parallel.units // max(site.target.cores, 1))
    threads = min(-(-spread // WARP_SIZE) * WARP_SIZE, site.limits.loop_threads)
    return MappingProxyType({"threads": max(threads, WARP_SIZE), "vector": 1})


def _spec(site: Site, tile: Tile) -> KernelSpec:
    loop = thread_loop(site.region)
    assert loop is not None
    units = loop.parallel.units
    if not units:
        return KernelSpec("while-per-thread", tile)
    blocks, threads = own_threads(site, units, tile)
    results = (
        Argument(Place("result", number), "out")
        for number, result in enumerate(site.region.results)
        if result.shape.elements
    )
    launch = Launch("", (blocks, 1, 1), (threads, 1, 1), (*operands_read(site.region), *results))
    return KernelSpec("while-per-thread", tile, (launch,))


KERNELS = (
    Kernel(
        "while-per-thread",
        "a thread runs its part of a loop from the first trip to the last, carries in registers",
        _fits,
        _wanted,
        _tile,
        _spec,
    ),
)
