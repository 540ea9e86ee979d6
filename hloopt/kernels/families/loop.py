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

__all__ = [
    "KERNELS",
    "group_blocks",
    "loop_launches",
    "operands_read",
    "own_threads",
    "result_groups",
]


def operands_read(region: Region) -> tuple[Argument, ...]:
    """Pointers to the operand leaves a region reads."""
    return tuple(Argument(LeafPlace("operand", number), "in") for number in region.read)


def result_groups(region: Region, wanted: Iterable[int]) -> list[tuple[int, ...]]:
    """Result leaves of ``wanted`` that one thread can compute: those with as many elements, in order."""
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
    """The launch that computes some result leaves; none where they have no element.

    Leaves of other numbers of elements have blocks of their own (``group_blocks``).  Where a grid has no room
    for those of all, there is a launch for each number.
    """
    groups = result_groups(site.region, numbers)
    if not groups:
        return ()
    counts = [
        -(-site.region.results[group[0]].shape.elements // tile["unroll"]) for group in groups
    ]
    _, threads = own_threads(site, max(counts), tile)
    blocks = sum(group_blocks(counts, threads))
    if len(groups) == 1 or blocks <= site.target.grid_limit[0]:
        together = min(blocks, site.target.grid_limit[0])
        results = written(number for group in groups for number in group)
        return (Launch.linear(suffix, together, threads, (*arguments, *results)),)
    return tuple(
        Launch.linear(
            f"{suffix}_{at}", *own_threads(site, count, tile), (*arguments, *written(group))
        )
        for at, (count, group) in enumerate(zip(counts, groups, strict=True))
    )


def group_blocks(counts: Sequence[int], threads: int) -> list[int]:
    """Blocks of so many threads for each of several numbers of threads, one after the other in the grid."""
    return [-(-count // threads) for count in counts]


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
