"""Whole rows: softmax, norms and their gradients, read once and written once.

One block, one warp or a part of a warp has a row.  It reduces, broadcasts what it found, and traverses the row
again, with what it has computed before in registers where they suffice.  Longer rows are read again each time,
but a sum of exponentials is made together with the maximum that is taken off.

Where there are sums over the rows, too, as in the gradients of norms, a block has many rows, one after the
other.  Its threads add up the places that they have of each, and leave partial results in scratch memory; a
second launch adds these.

Of a ``topk`` each thread has keys of its elements of the row in registers, in their order.  As many times as
elements are wanted, the threads of the row find the largest key that is left.
"""

from __future__ import annotations

from types import MappingProxyType

from hloopt.analysis.online_sums import merged_with_next
from hloopt.analysis.reduction import WARP_SIZE
from hloopt.cost_models.fused_rows import RESIDENT, row_blocks
from hloopt.errors import UsageError
from hloopt.kernels.families.reductions import accumulator_types, operands_of, plain_reducer
from hloopt.kernels.families.row_phases import RowPhases, whole_rows
from hloopt.kernels.kernel import NO, YES, Efficiency, Kernel, Site, Verdict
from hloopt.kernels.spec import (
    Argument,
    KernelSpec,
    Launch,
    LeafPlace,
    ScratchBuffer,
    Tile,
    written,
)

__all__ = ["COLUMNS", "KERNELS", "groups_of", "merged_phases", "steps_of"]

COLUMNS = "_columns"
"""The launch that adds up what blocks have of the columns."""

_BLOCK = 256
_MOST_THREADS = 1024
_REGISTERS = 65536
_RESERVED = 32
"""Registers a thread has beside those in which it keeps elements."""

_UNROLLED = 32


def steps_of(phases: RowPhases, tile: Tile) -> int:
    """How many vectors each thread of a row reads to traverse it once."""
    return -(-phases.minor // (tile["threads"] * tile["vector"]))


def merged_phases(phases: RowPhases, tile: Tile) -> list[bool]:
    """Whether a pass over the rows makes the next phase, too: where rows are read again in each."""
    return [False] * len(phases.heroes) if tile["keep"] else merged_with_next(phases.heroes)


def groups_of(phases: RowPhases, tile: Tile) -> int:
    """How many rows are computed at once: others follow where there are columns."""
    if not phases.columns:
        return -(-phases.rows // tile["rows"]) * tile["rows"]
    return tile["blocks"] * tile["rows"]


def _fits(site: Site) -> Verdict:
    problem = whole_rows.problem(site.region)
    if problem:
        return NO(problem)
    phases = whole_rows(site.region)
    problem = _problem(site, phases, _tile(site))
    if problem:
        return NO(problem)
    return YES(f"{phases.passes} passes over rows of {phases.minor} elements")


def _wanted(site: Site) -> Verdict:
    phases = whole_rows(site.region)
    heroes = sum(len(phase) for phase in phases.heroes)
    if phases.picks:
        return YES(f"{phases.count} of {phases.minor} elements of a row")
    needs = len(phases.heroes) > 1 or any(phases.per_row)
    if not needs:
        return NO("no element of a row waits for a reduction of it")
    many = f"{heroes} reduction{'s' if heroes != 1 else ''}"
    return YES(f"{many} of rows of {phases.minor} elements, and what follows, in one go")


def _tile(site: Site) -> Tile:
    phases = whole_rows(site.region)
    rows, minor = phases.rows, phases.minor
    shapes = (*site.region.operands, *(result.shape for result in site.region.results))
    several, threads, vector = row_blocks(rows, minor, shapes, site.target.cores)
    tile = {"rows": several, "threads": threads, "vector": vector, "keep": 1}
    if phases.columns:
        at_once = site.target.cores * max(1, RESIDENT // (several * threads))
        tile["blocks"] = max(1, min(-(-rows // several), at_once))
    tile["keep"] = int(_keeps(phases, tile))
    return MappingProxyType(tile)


def _keeps(phases: RowPhases, tile: Tile) -> bool:
    """Whether what later phases read again fits in registers."""
    per_thread = steps_of(phases, tile) * tile["vector"]
    words = per_thread * (phases.kept_bytes + _own_bytes(phases)) // 4
    block = tile["rows"] * tile["threads"]
    room = min(255, _REGISTERS // block) - _RESERVED
    return bool(phases.kept) and words <= room and per_thread <= _UNROLLED


def _own_bytes(phases: RowPhases) -> int:
    """Bytes that a thread has for each of its places whatever it keeps: accumulators of columns, or keys."""
    kinds = (accumulator_types(column)[0] for column in phases.columns)
    keys = _KEY_BYTES if phases.picks else 0
    return sum(max(4, kind.bits // 8) for kind in kinds) + keys


_KEY_BYTES = 8
"""Of an element in its order and its place, by which a ``topk`` picks."""


def _problem(site: Site, phases: RowPhases, tile: Tile) -> str:
    blocks = groups_of(phases, tile) // tile["rows"]
    if phases.columns or phases.picks:
        per_thread = steps_of(phases, tile) * tile["vector"]
        words = per_thread * _own_bytes(phases) // 4
        room = min(255, _REGISTERS // (tile["rows"] * tile["threads"])) - _RESERVED
        if per_thread > _UNROLLED or words > room:
            what = "columns" if phases.columns else "the keys of a row"
            return f"{what} need {words} registers of a thread; it has room for {room}"
    limit = site.target.grid_limit[0]
    if blocks > limit:
        return f"{blocks} blocks; the device's grid has {limit} at most"
    warps = tile["threads"] // WARP_SIZE
    shared = len(phases.picks) * tile["rows"] * phases.count * _KEY_BYTES
    if warps > 1:
        shared += len(phases.picks) * tile["rows"] * warps * _KEY_BYTES
        for phase in phases.heroes:
            for hero in phase:
                size = sum(-(-kind.bits // 8) for kind in accumulator_types(hero))
                shared += tile["rows"] * warps * (size + (not plain_reducer(hero)))
    if shared > site.target.shared_per_block:
        return f"{shared} bytes of shared memory; a block has {site.target.shared_per_block}"
    return ""


def _checked(site: Site, tile: Tile) -> RowPhases:
    phases = whole_rows(site.region)
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
    elif phases.columns and tile.get("blocks", 0) < 1:
        problem = "blocks must be at least 1: rows are added up"
    problem = problem or _problem(site, phases, tile)
    if problem:
        raise UsageError(f"whole-row: {problem}")
    return phases


def _spec(site: Site, tile: Tile) -> KernelSpec:
    phases = _checked(site, tile)
    region = site.region
    own = [*phases.full, *phases.single, *phases.picked]
    groups = groups_of(phases, tile)
    kinds = [accumulator_types(column)[0] for column in phases.columns]
    scratch = tuple(ScratchBuffer(kind.name, groups * phases.minor) for kind in kinds)
    places = [LeafPlace("scratch", number) for number, _ in enumerate(scratch)]
    summed = [part for column in phases.columns for part in column.fold_inputs]
    starts = [*(region.results[number].instruction for number in own), *summed]
    launch = Launch.linear(
        "",
        groups // tile["rows"],
        tile["rows"] * tile["threads"],
        (
            *operands_of(region, starts),
            *written(own),
            *(Argument(place, "out") for place in places),
        ),
    )
    if not phases.columns:
        return KernelSpec("whole-row", tile, (launch,))
    inits = [init for column in phases.columns for init in column.fold_inits]
    roots = [region.results[number].instruction for number in phases.across]
    second = Launch.linear(
        COLUMNS,
        -(-phases.minor // WARP_SIZE),
        _BLOCK,
        (
            *(Argument(place, "in") for place in places),
            *operands_of(region, [*inits, *roots], phases.columns),
            *written(phases.across),
        ),
    )
    return KernelSpec("whole-row", tile, (launch, second), scratch)


def _efficiency(site: Site, spec: KernelSpec) -> Efficiency:
    if spec.tile["keep"]:
        return Efficiency()
    phases = whole_rows(site.region)
    passes = phases.passes - sum(merged_phases(phases, spec.tile))
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
