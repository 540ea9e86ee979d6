"""Column reductions: the reduced elements lie apart, those that are kept are neighbours."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType

from hloopt.analysis.emitters.reductions import column_tiling, small_column_tiling
from hloopt.kernels.families.reductions import reductions_of
from hloopt.kernels.families.row_reduction import alone_wanted, fits_form, swept_spec
from hloopt.kernels.families.sweeps import WARP, Sweep, fitted, widths_of
from hloopt.kernels.kernel import NO, Kernel, Site, Verdict
from hloopt.kernels.spec import Tile

__all__ = ["KERNELS", "column_sweep", "small_column_problem", "small_column_sweep"]


def column_sweep(site: Site) -> Sweep:
    """XLA's column reduction: 32 warps."""
    reductions = reductions_of(site.region)
    dims = reductions.form.dims
    tiling = column_tiling(dims, widths_of(site, reductions))
    sweep = Sweep("column", dims, tiling.threads[0], WARP, tiling.vector)
    return fitted(sweep, reductions.groups, site.target.shared_per_block)


def small_column_sweep(site: Site) -> Sweep:
    """XLA's small column reduction: 128 threads or less."""
    reductions = reductions_of(site.region)
    dims = reductions.form.dims
    tiling = small_column_tiling(dims, widths_of(site, reductions))
    sweep = Sweep("small-column", dims, 1, tiling.threads[1], tiling.vector)
    return fitted(sweep, reductions.groups, site.target.shared_per_block)


def small_column_problem(site: Site) -> str:
    """Why columns are too many for the small-column kernel; empty where they are not."""
    minor = reductions_of(site.region).form.dims[2]
    return f"{minor} columns do not divide a warp of {WARP}" if WARP % minor else ""


def _small_fits(site: Site) -> Verdict:
    problem = reductions_of.problem(site.region)
    if problem:
        return NO(problem)
    if not reductions_of(site.region).form.is_row and (problem := small_column_problem(site)):
        return NO(problem)
    return fits_form(site, False, small_column_sweep)


def _tile(site: Site) -> Tile:
    sweep = column_sweep(site)
    return MappingProxyType({"warps": sweep.rows, "vector": sweep.vector})


def _small_tile(site: Site) -> Tile:
    sweep = small_column_sweep(site)
    return MappingProxyType({"threads": sweep.threads, "vector": sweep.vector})


KERNELS = (
    Kernel(
        "small-column-reduction",
        "a block reads a few whole columns in order; a thread always sees the same ones",
        _small_fits,
        partial(alone_wanted, small_column_sweep),
        _small_tile,
        partial(swept_spec, "small-column-reduction", "small-column"),
    ),
    Kernel(
        "column-reduction",
        "lanes stand on neighbouring columns, warps on rows; sums turn in shared memory",
        lambda site: fits_form(site, False, column_sweep),
        partial(alone_wanted, column_sweep),
        _tile,
        partial(swept_spec, "column-reduction", "column"),
    ),
)
