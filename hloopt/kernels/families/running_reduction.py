"""Running sums, products and extrema along rows: read once and written once.

A block has a row.  Its threads fold neighbouring elements each, the threads of a warp and the warps of the
block exchange what they have, and what precedes a thread's elements is folded into all of them; the next
elements of the row go on from there.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from types import MappingProxyType

from hloopt.analysis.layout import is_row_major
from hloopt.analysis.reduction import WARP_SIZE
from hloopt.analysis.region import Region
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Instruction
from hloopt.kernels.families.reductions import (
    accumulator_types,
    operands_of,
    passes_on,
    plain_reducer,
)
from hloopt.kernels.kernel import NO, YES, Kernel, Recognizer, Site, Verdict, elemental_problem
from hloopt.kernels.spec import KernelSpec, Launch, Tile, written
from hloopt.types import ArrayShape

__all__ = [
    "KERNELS",
    "RunningLines",
    "RunningRows",
    "running_along",
    "running_lines",
    "running_of",
    "running_rows",
]

_LEAST = 64
"""Elements of a row that a thread folds as fast by itself, from the first one on."""

_THREADS = (256, 1024)
_LONG = 1 << 14


@dataclass(frozen=True)
class RunningRows:
    """A running reduction of ``rows`` rows of ``minor`` elements, from the last one on where ``reverse``."""

    hero: Instruction
    rows: int
    minor: int
    reverse: bool


@dataclass(frozen=True)
class RunningLines:
    """A running reduction of ``outer * inner`` lines of ``length`` elements, which lie ``inner`` apart.

    From the last element on where ``reverse``.
    """

    hero: Instruction
    outer: int
    length: int
    inner: int
    reverse: bool


def running_along(window: Instruction) -> RunningLines | str:
    """The lines along which a reduce-window runs, or why it does not."""
    if not isinstance(window.shape, ArrayShape):
        return f"{window.name} makes a tuple"
    source = window.operands[0].array
    found = window.window.running(source.dims)
    if found is None or window.array.dims != source.dims:
        return f"{window.name} does not run along a dimension"
    if not source.elements:
        return f"{window.name} has no element"
    if not (is_row_major(source) and is_row_major(window.array)):
        return f"{window.name} reads or makes an array that is not row-major"
    if not plain_reducer(window) or accumulator_types(window)[0].is_complex:
        return f"the reducer of {window.name} has no identity"
    before, after = source.dims[: found.axis], source.dims[found.axis + 1 :]
    length = source.dims[found.axis]
    return RunningLines(window, prod(before), length, prod(after), found.reverse)


def running_of(window: Instruction) -> RunningRows | str:
    """The rows along which a reduce-window runs, or why it does not."""
    found = running_along(window)
    if isinstance(found, str):
        return found
    if window.array.dims[-1] != found.length or found.inner > 1:
        return f"{window.name} does not run along rows"
    minor = found.length
    if minor <= _LEAST:
        return f"rows of {minor} elements: at most {_LEAST} are folded from the first one on"
    return RunningRows(window, found.outer, minor, found.reverse)


@Recognizer
def running_rows(region: Region) -> RunningRows | str:
    """The running reduction along rows that a region's results are computed from, place by place."""
    return running_lines.problem(region) or running_of(running_lines(region).hero)


@Recognizer
def running_lines(region: Region) -> RunningLines | str:
    """The running reduction that a region's results are computed from, place by place."""
    windows = [inner for inner in region.body if inner.opcode == "reduce-window"]
    if len(windows) != 1:
        return "there is no one reduction by windows"
    (window,) = windows
    found = running_along(window)
    if isinstance(found, str):
        return found
    problem = elemental_problem(region, (window,)) or _places_problem(region, window)
    return problem or found


def _places_problem(region: Region, window: Instruction) -> str:
    """Why what follows the reduction is not of the same places."""
    after: Collection[Instruction] = {window: None}
    for inner in region.body:
        above = [part for part in inner.operands if part in after]
        if not above:
            continue
        if not set(above) <= set(passes_on(inner)):
            return f"{inner.name} needs more of {above[0].name} than its own place"
        after = {**dict.fromkeys(after), inner: None}
    for number, result in enumerate(region.results):
        if result.shape.elements != window.array.elements or result.shape.dtype.bits < 8:
            return f"result {number} is {result.shape}: not an element a place"
    return ""


def _fits(site: Site) -> Verdict:
    problem = running_rows.problem(site.region)
    if problem:
        return NO(problem)
    found = running_rows(site.region)
    limit = site.target.grid_limit[0]
    if found.rows > limit:
        return NO(f"{found.rows} rows; the device's grid has {limit} blocks at most")
    return YES(f"runs along rows of {found.minor} elements")


def _wanted(site: Site) -> Verdict:
    return YES(f"each element of {running_rows(site.region).hero.name} is read once")


def _tile(site: Site) -> Tile:
    found = running_rows(site.region)
    vector = 4 if found.minor % 4 == 0 and not found.reverse else 1
    most = _THREADS[found.minor > _LONG]
    threads = min(most, -(-found.minor // (vector * WARP_SIZE)) * WARP_SIZE)
    return MappingProxyType({"threads": threads, "vector": vector})


def _spec(site: Site, tile: Tile) -> KernelSpec:
    found = running_rows(site.region)
    threads, vector = tile["threads"], tile["vector"]
    problem = ""
    if threads < WARP_SIZE or threads % WARP_SIZE or threads > _THREADS[1]:
        problem = f"threads={threads} must be whole warps, {_THREADS[1]} threads at most"
    elif vector not in (1, 2, 4, 8) or found.minor % vector or (found.reverse and vector > 1):
        problem = f"vector={vector} must be a power of two that divides {found.minor} elements"
    if problem:
        raise UsageError(f"running-reduction: {problem}")
    results = range(len(site.region.results))
    read = operands_of(site.region, [site.region.results[at].instruction for at in results])
    launch = Launch.linear("", found.rows, threads, (*read, *written(results)))
    return KernelSpec("running-reduction", tile, (launch,))


KERNELS = (
    Kernel(
        "running-reduction",
        "a block goes along a row: threads exchange what they have folded",
        _fits,
        _wanted,
        _tile,
        _spec,
    ),
)
