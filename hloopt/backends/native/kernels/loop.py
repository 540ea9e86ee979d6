"""The loop kernel of the native device: every element of the results, range by range of tasks.

It runs everything that can be computed element by element.  A launch's grid counts tasks: ``tile["elements"]``
neighbouring elements each, so that threads share the work and results never depend on how many there are.
"""

from __future__ import annotations

from types import MappingProxyType

from hloopt.kernels.families.loop import operands_read, result_groups
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
from hloopt.kernels.spec import KernelSpec, Launch, Tile, written

__all__ = ["KERNELS"]

# Starting a thread's share costs some microseconds; so many elements of a cheap op take longer.
_TASK_ELEMENTS = 1 << 14


def _fits(site: Site) -> Verdict:
    problem = elemental_problem(site.region)
    return NO(problem) if problem else YES("every result is computed element by element")


def _tile(site: Site) -> Tile:
    """A task has whole rows of the results where it can: their loops then have a constant length."""
    results = site.region.results
    each = _TASK_ELEMENTS
    if all(result.shape.dtype.bits >= 8 for result in results):
        rows = 1
        for size in reversed(results[0].shape.dims if results else ()):
            if not size or rows * size > _TASK_ELEMENTS:
                break
            rows *= size
        each = _TASK_ELEMENTS // rows * rows
    return MappingProxyType({"elements": each})


def _spec(site: Site, tile: Tile) -> KernelSpec:
    region = site.region
    groups = result_groups(region, range(len(region.results)))
    launches = []
    for at, group in enumerate(groups):
        elements = region.results[group[0]].shape.elements
        results = written(group)
        launches.append(
            Launch.linear(
                "" if len(groups) == 1 else f"_{at}",
                -(-elements // tile["elements"]),
                1,
                (*operands_read(region), *results),
            )
        )
    return KernelSpec("native-loop", tile, tuple(launches), overwrites=overwritable(region))


KERNELS = (
    Kernel(
        "native-loop",
        "loops over the elements of the results",
        _fits,
        always("no other kernel is wanted"),
        _tile,
        _spec,
        device="native",
    ),
)
