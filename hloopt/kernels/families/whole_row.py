"""Whole rows: softmax, norms and their gradients, read once and written once.

One block, one warp or a part of a warp has a row.  It reduces, broadcasts what it found, and traverses the row
again, with what it has computed before in registers where they suffice.
"""

from __future__ import annotations

from types import MappingProxyType

from hloopt.analysis.reduction import WARP_SIZE
from hloopt.errors import UsageError
from hloopt.kernels.families.reductions import accumulator_types, operands_of, plain_reducer
from hloopt.kernels.families.row_phases import RowPhases, row_phases
from hloopt.kernels.kernel import NO, YES, Efficiency, Kernel, Site, Verdict
from hloopt.kernels.spec import KernelSpec, Launch, Tile, written

__all__ = ["KERNELS", "steps_of"]

_BLOCK = 256
_MOST_THREADS = 1024
_VECTOR_BITS = 128
_REGISTERS = 65536
_RESERVED = 32
"""Registers a thread has beside those in which it keeps elements."""

_UNROLLED = 32


def steps_of(phases: RowPhases, tile: Tile) -> int:
    """How many vectors each thread of a row reads to traverse it once."""
    return -(-phases.minor // (tile["threads"] * tile["vector"]))


def _fits(site: Site) -> Verdict:
    problem = row_phases.problem(site.region)
    if problem:
        return NO(problem)
    phases = row_phases(site.region)
    problem = _problem(site, phases, _tile(site))
    if problem:
        return NO(problem)
    return YES(f"{phases.passes} passes over rows of {phases.minor} elements")


def _wanted(site: Site) -> Verdict:
    phases = row_phases(site.region)
    heroes = sum(len(phase) for phase in phases.heroes)
    needs = len(phases.heroes) > 1 or any(phases.per_row)
    if not needs:
        return NO("no element of a row waits for a reduction of it")
    many = f"{heroes} reduction{'s' if heroes != 1 else ''}"
    return YES(f"{many} of rows of {phases.minor} elements, and what follows, in one go")


def _tile(site: Site) -> Tile:
    phases = row_phases(site.region)
    rows, minor = phases.rows, phases.minor
    vector = _vector(site, phases)
    vectors = minor // vector
    elements = 16 if rows >= site.target.cores else 4
    if vectors <= WARP_SIZE // 2:
        threads = 1 << (vectors - 1).bit_length()
    else:
        threads = min(_MOST_THREADS, -(-minor // (elements * WARP_SIZE)) * WARP_SIZE)
    several = max(1, _BLOCK // threads)
    several = min(several, -(-rows * threads // WARP_SIZE) * WARP_SIZE // threads)
    while several * threads > WARP_SIZE and several > 1 and -(-rows // several) < site.target.cores:
        several = max(several // 2, WARP_SIZE // threads, 1)
    several = max(1, -(-several * threads // WARP_SIZE) * WARP_SIZE // threads)
    tile = {"rows": several, "threads": threads, "vector": vector, "keep": 1}
    tile["keep"] = int(_keeps(phases, tile))
    return MappingProxyType(tile)


def _vector(site: Site, phases: RowPhases) -> int:
    """As many neighbours as 16 bytes hold of the widest array that is traversed."""
    region = site.region
    elements = phases.rows * phases.minor
    bits = [
        shape.dtype.bits
        for shape in (*region.operands, *(result.shape for result in region.results))
        if shape.elements == elements
    ]
    vector = max(1, _VECTOR_BITS // max(bits, default=32))
    while phases.minor % vector:
        vector //= 2
    return min(vector, 8)


def _keeps(phases: RowPhases, tile: Tile) -> bool:
    """Whether what later phases read again fits in registers."""
    per_thread = steps_of(phases, tile) * tile["vector"]
    words = per_thread * phases.kept_bytes // 4
    block = tile["rows"] * tile["threads"]
    room = min(255, _REGISTERS // block) - _RESERVED
    return bool(phases.kept) and words <= room and per_thread <= _UNROLLED


def _problem(site: Site, phases: RowPhases, tile: Tile) -> str:
    blocks = -(-phases.rows // tile["rows"])
    limit = site.target.grid_limit[0]
    if blocks > limit:
        return f"{blocks} blocks; the device's grid has {limit} at most"
    warps = tile["threads"] // WARP_SIZE
    shared = 0
    if warps > 1:
        for phase in phases.heroes:
            for hero in phase:
                size = sum(-(-kind.bits // 8) for kind in accumulator_types(hero))
                shared += tile["rows"] * warps * (size + (not plain_reducer(hero)))
    if shared > site.target.shared_per_block:
        return f"{shared} bytes of shared memory; a block has {site.target.shared_per_block}"
    return ""


def _checked(site: Site, tile: Tile) -> RowPhases:
    phases = row_phases(site.region)
    rows, threads, vector, keep = (tile[key] for key in ("rows", "threads", "vector", "keep"))
    block = rows * threads
    problem = ""
    if vector not in (1, 2, 4, 8, 16) or phases.minor % vector:
        problem = f"vector={vector} must be a power of two that divides {phases.minor} elements"
    elif threads < 1 or (threads % WARP_SIZE and (threads > WARP_SIZE or threads & (threads - 1))):
        problem = f"threads={threads} must be a power of two below 32, or whole warps"
    elif rows < 1 or block > _MOST_THREADS or block % WARP_SIZE:
        problem = f"a block of {block} threads; it has whole warps, {_MOST_THREADS} threads at most"
    elif keep not in (0, 1):
        problem = f"keep={keep} must be 0 or 1"
    elif keep and steps_of(phases, tile) * vector > _UNROLLED:
        kept = steps_of(phases, tile) * vector
        problem = f"keep=1 of {kept} elements a thread; at most {_UNROLLED}"
    problem = problem or _problem(site, phases, tile)
    if problem:
        raise UsageError(f"whole-row: {problem}")
    return phases


def _spec(site: Site, tile: Tile) -> KernelSpec:
    phases = _checked(site, tile)
    region = site.region
    results = range(len(region.results))
    launch = Launch.linear(
        "",
        -(-phases.rows // tile["rows"]),
        tile["rows"] * tile["threads"],
        (
            *operands_of(region, [region.results[number].instruction for number in results]),
            *written(results),
        ),
    )
    return KernelSpec("whole-row", tile, (launch,))


def _efficiency(site: Site, spec: KernelSpec) -> Efficiency:
    if spec.tile["keep"]:
        return Efficiency()
    passes = row_phases(site.region).passes
    return Efficiency(repeats=passes, reason=f"rows are read again in each of {passes} passes")


KERNELS = (
    Kernel(
        "whole-row",
        "a block has a row: it reduces, broadcasts and goes on, with the row in registers",
        _fits,
        _wanted,
        _tile,
        _spec,
        efficiency=_efficiency,
    ),
)
