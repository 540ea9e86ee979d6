"""The loop kernel: a thread computes a few neighbouring elements of the results, whatever the ops.

It runs everything that can be computed element by element, and is what is left where nothing faster fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd
from types import MappingProxyType

from hloopt.analysis.reduction import WARP_SIZE
from hloopt.analysis.region import Region
from hloopt.analysis.written_code import elements_of_thread
from hloopt.kernels.kernel import (
    NO,
    YES,
    Kernel,
    Site,
    Verdict,
    always,
    elemental_problem,
    overwritable,
)
from hloopt.kernels.spec import Argument, KernelPart, KernelSpec, Launch, LeafPlace, Tile, written

__all__ = ["KERNELS", "loop_launches", "operands_read", "own_threads", "result_groups"]


def operands_read(region: Region) -> tuple[Argument, ...]:
    """Pointers to the operand leaves a region reads."""
    return tuple(Argument(LeafPlace("operand", number), "in") for number in region.read)


def result_groups(region: Region, wanted: Iterable[int]) -> list[tuple[int, ...]]:
    """Result leaves of ``wanted`` that one grid can compute: those with as many elements, in order."""
    groups: dict[int, list[int]] = {}
    for number in wanted:
        elements = region.results[number].shape.elements
        if elements:
            groups.setdefault(elements, []).append(number)
    return [tuple(numbers) for numbers in groups.values()]


def _fits(site: Site) -> Verdict:
    problem = elemental_problem(site.region)
    return NO(problem) if problem else YES("every result is computed element by element")


def _tile(site: Site) -> Tile:
    limits, target = site.limits, site.target
    most = max((result.shape.elements for result in site.region.results), default=1)
    unroll = 1
    if most >= target.threads_per_core * target.cores:
        unroll = elements_of_thread(site.region.instruction, gcd(most, limits.loop_unroll))
    narrowest = min((result.shape.dtype.bits for result in site.region.results), default=8)
    # One thread writes all elements of a byte.
    unroll = max(unroll, -(-8 // narrowest))
    return MappingProxyType({"threads": limits.loop_threads, "unroll": unroll, "vector": unroll})


def _spec(site: Site, tile: Tile) -> KernelSpec:
    every = list(range(len(site.region.results)))
    steps = loop_launches(site, tile, every, operands_read(site.region))
    return KernelSpec("loop", tile, steps, overwrites=overwritable(site.region))


def own_threads(site: Site, count: int, tile: Tile) -> tuple[int, int]:
    """Blocks and threads a block for ``count`` threads, by the tile's ``threads``."""
    threads = min(tile["threads"], -(-count // WARP_SIZE) * WARP_SIZE)
    return min(-(-count // threads), site.target.grid_limit[0]), threads


def loop_launches(
    site: Site,
    tile: Tile,
    numbers: Sequence[int],
    arguments: Sequence[Argument],
    suffix: str = "",
) -> tuple[KernelPart, ...]:
    """Launches that compute some result leaves, one for each number of elements there is."""
    groups = result_groups(site.region, numbers)
    steps: list[KernelPart] = []
    for at, group in enumerate(groups):
        elements = site.region.results[group[0]].shape.elements
        blocks, threads = own_threads(site, -(-elements // tile["unroll"]), tile)
        results = written(group)
        steps.append(
            Launch.linear(
                suffix if len(groups) == 1 else f"{suffix}_{at}",
                blocks,
                threads,
                (*arguments, *results),
            )
        )
    return tuple(steps)


KERNELS = (
    Kernel(
        "loop",
        "a thread computes neighbouring elements of the results, one after the other",
        _fits,
        always("no other kernel is wanted"),
        _tile,
        _spec,
    ),
)
