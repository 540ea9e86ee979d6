"""Row reductions: the reduced elements are neighbours.  Warps share a row, or rows share a warp."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType

from hloopt.analysis.emitters.reductions import multi_row_tiling, row_tiling
from hloopt.errors import UsageError
from hloopt.kernels.families.reductions import (
    Reductions,
    operands_of,
    reductions_of,
    wanted_by_rule,
)
from hloopt.kernels.families.sweeps import (
    WARP,
    Sweep,
    SweepForm,
    fitted,
    shared_bytes,
    sweep_of,
    widths_of,
)
from hloopt.kernels.kernel import NO, YES, Kernel, Site, Verdict
from hloopt.kernels.spec import KernelSpec, Launch, Tile, written

__all__ = [
    "KERNELS",
    "alone_wanted",
    "fits_form",
    "idle_cores",
    "row_sweep",
    "swept_spec",
    "unfit_sweep",
]

_BLOCK = 256


def fits_form(site: Site, is_row: bool, sweep: Callable[[Site], Sweep]) -> Verdict:
    """Whether a region's reductions have a form, and a kernel of the default sweep has room for them."""
    problem = reductions_of.problem(site.region)
    if problem:
        return NO(problem)
    reductions = reductions_of(site.region)
    if reductions.form.is_row != is_row:
        kinds = ("columns", "rows") if is_row else ("rows", "columns")
        return NO(f"it reduces {kinds[0]}, not {kinds[1]}")
    problem = unfit_sweep(site, reductions, sweep(site))
    return NO(problem) if problem else YES(f"{len(reductions.heroes)} reductions in one form")


def unfit_sweep(site: Site, reductions: Reductions, sweep: Sweep) -> str:
    """Why a sweep does not fit the device, empty where it does."""
    limit = site.target.grid_limit[0]
    if sweep.blocks > limit:
        return f"{sweep.blocks} blocks; the device's grid has {limit} at most"
    for group in reductions.groups:
        shared = shared_bytes(sweep, group)
        if shared > site.target.shared_per_block:
            return f"{shared} bytes of shared memory; a block has {site.target.shared_per_block}"
    return ""


def idle_cores(site: Site, sweep: Sweep) -> str:
    """Why blocks had better share results: they are few, and each takes long; empty where they do well."""
    cores, steps = site.target.cores, sweep.steps
    if 2 * sweep.blocks > cores or steps < site.limits.reduction_split_steps:
        return ""
    idle = cores - sweep.blocks
    return f"{sweep.blocks} blocks take {steps} steps each, {idle} of {cores} cores none"


def alone_wanted(sweep: Callable[[Site], Sweep], site: Site) -> Verdict:
    """XLA's rule, where blocks that share no results keep the device busy."""
    rule = wanted_by_rule(site)
    idle = idle_cores(site, sweep(site)) if rule else ""
    return NO(idle, "reduction_split_steps") if idle else rule


def row_sweep(site: Site) -> Sweep:
    """XLA's row reduction; rows longer than its blocks take more steps."""
    reductions = reductions_of(site.region)
    dims = reductions.form.dims
    tiling = row_tiling(dims, widths_of(site, reductions))
    rows, threads = tiling.threads
    sweep = Sweep("row", dims, rows, threads, tiling.vector)
    return fitted(sweep, reductions.groups, site.target.shared_per_block)


def _multi_row_sweep(site: Site) -> Sweep:
    """XLA's multi-row reduction; rows not a power of two long take several steps."""
    reductions = reductions_of(site.region)
    dims = reductions.form.dims
    tiling = multi_row_tiling(dims, widths_of(site, reductions), site.target)
    if tiling is not None:
        threads, vector = tiling.threads[1], tiling.vector
    else:
        threads, vector = 1, 1
        while threads < dims[2] and threads < WARP // 2:
            threads *= 2
    rows = min(_BLOCK // threads, -(-dims[1] * threads // WARP) * WARP // threads)
    return Sweep("row", dims, rows, threads, vector)


def _multi_row_wanted(site: Site) -> Verdict:
    reductions = reductions_of(site.region)
    dims = reductions.form.dims
    if multi_row_tiling(dims, widths_of(site, reductions), site.target) is None:
        return NO(f"rows of {dims[2]} elements: no power of two that a warp holds several of")
    return wanted_by_rule(site)


def _row_tile(sweep: Callable[[Site], Sweep], site: Site) -> Tile:
    found = sweep(site)
    return MappingProxyType({"rows": found.rows, "threads": found.threads, "vector": found.vector})


def swept_spec(name: str, form: SweepForm, site: Site, tile: Tile) -> KernelSpec:
    """A launch for each group of reductions.  Raises ``UsageError`` for a tile that cannot be."""
    reductions = reductions_of(site.region)
    sweep = sweep_of(form, reductions.form.dims, tile, name)
    problem = unfit_sweep(site, reductions, sweep)
    if problem:
        raise UsageError(f"{name}: {problem}")
    launches = tuple(
        Launch.linear(
            f"_{number}" if len(reductions.groups) > 1 else "",
            sweep.blocks,
            sweep.block,
            (
                *operands_of(
                    site.region,
                    [site.region.results[leaf].instruction for leaf in group.results],
                ),
                *written(group.results),
            ),
            part=number,
        )
        for number, group in enumerate(reductions.groups)
    )
    return KernelSpec(name, tile, launches)


KERNELS = (
    Kernel(
        "multi-row-reduction",
        "several short rows share a warp, which exchanges its sums by shuffles",
        lambda site: fits_form(site, True, _multi_row_sweep),
        _multi_row_wanted,
        partial(_row_tile, _multi_row_sweep),
        partial(swept_spec, "multi-row-reduction", "row"),
    ),
    Kernel(
        "row-reduction",
        "one warp or several share a row; sums meet by shuffles, then in shared memory",
        lambda site: fits_form(site, True, row_sweep),
        partial(alone_wanted, row_sweep),
        partial(_row_tile, row_sweep),
        partial(swept_spec, "row-reduction", "row"),
    ),
)
