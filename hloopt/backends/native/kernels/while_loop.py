"""A whole loop of the native device: a task runs a block of units from the first trip to the last.

The state of a block's units lies in arrays in the cache, a lane each, and each trip goes through them by
vectors.  A reduce over units that nobody waits for leaves a part a trip and block; a second launch puts the
parts together, in the order of the blocks, however many threads there are.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from hloopt.analysis.parallel_loop import fused_loop
from hloopt.analysis.parallel_loop.host_way import block_units, host_way
from hloopt.analysis.region import Region
from hloopt.kernels.families.loop import operands_read
from hloopt.kernels.families.reductions import accumulator_types
from hloopt.kernels.families.while_per_thread import ThreadLoop, thread_loop
from hloopt.kernels.kernel import NO, YES, Efficiency, Kernel, Site, Verdict, elemental_problem
from hloopt.kernels.spec import Argument, KernelSpec, Launch, Place, Scratch, Tile, written

__all__ = ["FINISH", "KERNELS", "blocks_of", "part_place"]

FINISH: Final = "_finish"
"""The launch that puts together what was collected."""

FINISH_TRIPS: Final = 64
"""Trips of a task of it."""


def blocks_of(loop: ThreadLoop, tile: Tile) -> int:
    """How many blocks the units are."""
    return -(-loop.parallel.units // tile["units"])


def part_place(loop: ThreadLoop, elements: int) -> tuple[int, int]:
    """Where parts of a result of ``elements`` lie: how far blocks and trips are apart.

    Neighbouring trips of a block are neighbours, so that no two threads write to the same line of a cache.
    """
    return elements * (loop.parallel.trips.count or 0), elements


def _fits(site: Site) -> Verdict:
    fused = fused_loop(site.region.instruction)
    if fused is None:
        return NO("it is not the fusion of one loop")
    way = host_way(fused.loop)
    if way.problem:
        return NO(way.problem)
    problem = elemental_problem(site.region, loops=True)
    return NO(problem) if problem else YES(f"{way.parallel.units} units run by themselves")


def _tile(site: Site) -> Tile:
    loop = thread_loop(site.region)
    assert loop is not None
    return MappingProxyType({"units": block_units(loop.parallel)})


def _spec(site: Site, tile: Tile) -> KernelSpec:
    loop = thread_loop(site.region)
    assert loop is not None
    collected = loop.parallel.collected if loop.parallel.trips.count else ()
    now, later = _results(site.region, loop, bool(collected))
    left = [number for number in later if not loop.covers(loop.fused.results[number])]
    read = operands_read(site.region)
    scratch = []
    for reduce in collected:
        (kind,) = accumulator_types(reduce)
        apart, _ = part_place(loop, reduce.array.elements)
        scratch.append(Scratch(kind.name, apart * blocks_of(loop, tile)))
    places = [Place("scratch", number) for number in range(len(scratch))]
    first = Launch.linear(
        "",
        blocks_of(loop, tile),
        1,
        (
            *read,
            *written(now),
            *written(left, partial=True),
            *(Argument(place, "out") for place in places),
        ),
    )
    if not collected:
        return KernelSpec("native-while", tile, (first,))
    second = Launch.linear(
        FINISH,
        -(-(loop.parallel.trips.count or 0) // FINISH_TRIPS),
        1,
        (
            *read,
            *(Argument(place, "in") for place in places),
            *(Argument(Place("result", number), "out", partial=number in left) for number in later),
        ),
    )
    return KernelSpec("native-while", tile, (first, second), tuple(scratch))


def _results(region: Region, loop: ThreadLoop, collects: bool) -> tuple[list[int], list[int]]:
    """The leaves of the result that the first launch writes, and those that follow from collected reduces."""
    now: list[int] = []
    later: list[int] = []
    for number, result in enumerate(region.results):
        if result.shape.elements:
            update = loop.parallel.carried[loop.fused.results[number]].update
            (later if collects and update in loop.parallel.after else now).append(number)
    return now, later


KERNELS = (
    Kernel(
        "native-while",
        "a task runs a block of a loop's units from the first trip to the last, in the cache",
        _fits,
        lambda _: YES("no block waits for another one"),
        _tile,
        _spec,
        device="native",
        efficiency=lambda *_: Efficiency(),
    ),
)
