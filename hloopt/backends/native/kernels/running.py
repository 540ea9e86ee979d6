"""Running sums, products and extrema on the native device: each element is read once and written once.

Lines that lie side by side run together, a vector of them at a time.  A line whose elements are neighbours is
taken by blocks of ``CHAINS`` pieces, which run at once, since an addition takes several cycles while others
begin; then what precedes a piece is folded into all of it.
"""

from __future__ import annotations

from types import MappingProxyType

from hloopt.errors import UsageError
from hloopt.kernels.families.reductions import accumulator_types, operands_of
from hloopt.kernels.families.running_reduction import running_lines
from hloopt.kernels.kernel import NO, YES, Kernel, Site, Verdict
from hloopt.kernels.spec import KernelSpec, Launch, Tile, written

__all__ = ["CHAINS", "KERNELS", "STEPS", "columns_of"]

CHAINS = 8
"""Pieces of a block."""
STEPS = 32
"""Elements of each."""

_SHORT = 8
"""Elements of a line that are as well folded from the first one on, in vectors of results."""
_COLUMN_BYTES = 1024
"""Of accumulators that lie side by side: a few rows of operands stay in the first-level cache."""
_TASK_ELEMENTS = 1 << 14


def columns_of(site: Site) -> int:
    """How many lines side by side a task has; 1 where the elements of a line are neighbours."""
    lines = running_lines(site.region)
    (kind,) = accumulator_types(lines.hero)
    return min(lines.inner, _COLUMN_BYTES * 8 // max(kind.bits, 8))


def _fits(site: Site) -> Verdict:
    problem = running_lines.problem(site.region)
    if problem:
        return NO(problem)
    return YES(f"runs along lines of {running_lines(site.region).length} elements")


def _wanted(site: Site) -> Verdict:
    lines = running_lines(site.region)
    if lines.length <= _SHORT:
        return NO(f"lines of {lines.length} elements are as well folded from the first one on")
    return YES(f"each element of {lines.hero.name} is read once")


def _tile(site: Site) -> Tile:
    lines = running_lines(site.region)
    return MappingProxyType({"groups": max(1, _TASK_ELEMENTS // (lines.length * columns_of(site)))})


def _spec(site: Site, tile: Tile) -> KernelSpec:
    lines, region = running_lines(site.region), site.region
    if tile["groups"] < 1:
        raise UsageError(f"native-running: groups={tile['groups']} must be above 0")
    groups = lines.outer * -(-lines.inner // columns_of(site))
    results = range(len(region.results))
    read = operands_of(region, [region.results[at].instruction for at in results])
    launch = Launch.linear("", -(-groups // tile["groups"]), 1, (*read, *written(results)))
    return KernelSpec("native-running", tile, (launch,))


KERNELS = (
    Kernel(
        "native-running",
        "along lines: each element goes on from what is folded before it",
        _fits,
        _wanted,
        _tile,
        _spec,
        device="native",
    ),
)
