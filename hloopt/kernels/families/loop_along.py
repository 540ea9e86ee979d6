"""Loops along a dimension that some values do not have: rotary embeddings, whatever reads small tables.

A thread has neighbouring elements of the last dimension, at several places of another one, of the results.
What does not depend on that one it computes before it goes along.  Where halves of the last dimension (or more
parts) are concatenated, it has the same places of each: what they share is read and computed once, too.
"""

from __future__ import annotations

from math import prod
from types import MappingProxyType

from hloopt.analysis.along import LoopAlong, loop_along_of
from hloopt.analysis.region import Region
from hloopt.cost_models.fused_along import LOOP_ALONG
from hloopt.errors import UsageError
from hloopt.kernels.families.loop import operands_read
from hloopt.kernels.kernel import NO, YES, Kernel, Recognizer, Site, Verdict, elemental_problem
from hloopt.kernels.spec import KernelSpec, Launch, Tile, written

__all__ = ["KERNELS", "loop_along", "thread_sizes"]

_THREADS = 128


@Recognizer
def loop_along(region: Region) -> LoopAlong | str:
    """How a region's results go along a dimension, or why no such kernel has them."""
    return elemental_problem(region) or loop_along_of(region)


def thread_sizes(found: LoopAlong, tile: Tile) -> tuple[int, ...]:
    """How many threads there are for each dimension."""
    sizes = list(found.dims)
    sizes[found.along] //= tile["steps"]
    sizes[-1] //= found.parts * tile["vector"]
    return tuple(sizes)


def _fits(site: Site) -> Verdict:
    if problem := loop_along.problem(site.region):
        return NO(problem)
    found = loop_along(site.region)
    blocks = -(-prod(thread_sizes(found, _tile(site))) // _THREADS)
    if blocks > site.target.grid_limit[0]:
        return NO(f"{blocks} blocks; the device's grid has {site.target.grid_limit[0]} at most")
    return YES(f"goes along {found.dims[found.along]} places of dimension {found.along}")


def _wanted(site: Site) -> Verdict:
    return NO("it is for fusions that were made for it")


def _tile(site: Site) -> Tile:
    found = loop_along(site.region)
    steps = found.steps(site.target.cores)
    return MappingProxyType({"threads": _THREADS, "steps": steps, "vector": found.vector})


def _spec(site: Site, tile: Tile) -> KernelSpec:
    found = loop_along(site.region)
    threads, steps, vector = tile["threads"], tile["steps"], tile["vector"]
    part, size = found.dims[-1] // found.parts, found.dims[found.along]
    problem = ""
    if vector not in (1, 2, 4, 8, 16) or part % vector:
        problem = f"vector={vector} must be a power of two that divides {part} elements"
    elif steps < 1 or size % steps:
        problem = f"steps={steps} must divide the {size} places of dimension {found.along}"
    elif not 1 <= threads <= 1024:
        problem = f"threads={threads} must be 1 to 1024"
    if problem:
        raise UsageError(f"{LOOP_ALONG}: {problem}")
    blocks = -(-prod(thread_sizes(found, tile)) // threads)
    results = written(range(len(site.region.results)))
    launch = Launch.linear("", blocks, threads, (*operands_read(site.region), *results))
    return KernelSpec(LOOP_ALONG, tile, (launch,))


KERNELS = (
    Kernel(
        LOOP_ALONG,
        "a thread goes along a dimension, and computes before it what does not have it",
        _fits,
        _wanted,
        _tile,
        _spec,
    ),
)
