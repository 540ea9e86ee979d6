"""Matrix products by matrix units, with what stands before and behind them."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from types import MappingProxyType

from hloopt.analysis.matrix_factors import MatrixFactors
from hloopt.cost_models.matrix_units import MATRIX_UNITS, SPLIT_UNITS, SPLITS
from hloopt.errors import UsageError
from hloopt.kernel_ir.matrix_steps import MATRIX_STEPS
from hloopt.kernels.families.dot_region import dots_of
from hloopt.kernels.families.dot_tiled import SUM_THREADS, described, result_numbers
from hloopt.kernels.families.dot_tiling import contraction_of
from hloopt.kernels.families.loop import operands_read
from hloopt.kernels.families.matrix_tiling import (
    default_matrix_tile,
    factors_of,
    matrix_tiling_of,
    rights_of,
    shapes_of,
    tile_seconds,
)
from hloopt.kernels.kernel import NO, YES, Efficiency, Kernel, Site, Verdict, overwritable
from hloopt.kernels.spec import (
    Argument,
    KernelSpec,
    Launch,
    LeafPlace,
    ScratchBuffer,
    Tile,
    written,
)

__all__ = ["KERNELS"]

_NAME = MATRIX_UNITS
_MOST_BLOCKS = 2**31 - 1
_MOST_PARTIAL = 2**31 - 2**22


def _fits(site: Site) -> Verdict:
    if problem := dots_of.problem(site.region):
        return NO(problem)
    contraction, product = contraction_of(site), dots_of(site.region)
    if product.second is not None and contraction is not product.contraction:
        return NO(f"results of {product.contraction.hero.name} and its twin are transposed")
    factors = factors_of(site.region, contraction)
    if isinstance(factors, str):
        return NO(factors)
    have, need = site.target.capability, factors.capability
    if have < need:
        words = [".".join(map(str, one)) for one in (need, have)]
        return NO(
            f"products of {MATRIX_STEPS[factors.step].dtype} by matrix units need compute capability "
            f"{words[0]}; {site.target.name} has {words[1]}"
        )
    if not shapes_of(site, factors):
        most = site.target.shared_per_block_optin
        return NO(f"no tile has room in the {most} bytes of shared memory of a block")
    terms = f" {factors.products} times" if factors.products > 1 else ""
    return YES(f"{factors.step}{terms}: {described(contraction)}")


def _wanted(site: Site) -> Verdict:
    contraction = contraction_of(site)
    m, n, k = (contraction.size(group) for group in ("m", "n", "k"))
    work, least = (m + n) * k, site.limits.dot_loop_work
    if work < least:
        return NO(f"(m + n) * k = {work} is below {least}", "dot_loop_work")
    tile = default_matrix_tile(site)
    blocks = contraction.size("b") * -(-m // tile["m"]) * -(-n // tile["n"])
    return YES(
        f"matrix units multiply it, and what is around it is computed with it: {blocks} tiles"
    )


def _tile(site: Site) -> Tile:
    return MappingProxyType(default_matrix_tile(site))


def _fits_split(site: Site) -> Verdict:
    found = _fits(site)
    if not found:
        return found
    if not _splits(site):
        contraction = contraction_of(site)
        return NO(
            f"k={contraction.size('k')} is not cut, of two products at once, or for too many sums"
        )
    return found


def _splits(site: Site) -> tuple[int, ...]:
    """Into how many parts the contracted axis can be cut."""
    contraction = contraction_of(site)
    if rights_of(site.region) > 1:
        return ()
    most = min(contraction.size("k") // 2, _MOST_PARTIAL // contraction.hero_elements)
    return tuple(split for split in SPLITS if split <= most)


def _wanted_split(site: Site) -> Verdict:
    wanted = _wanted(site)
    if not wanted:
        return wanted
    contraction = contraction_of(site)
    factors = factors_of(site.region, contraction)
    assert isinstance(factors, MatrixFactors), factors
    cut, whole = (
        tile_seconds(site, contraction, factors, default_matrix_tile(site, splits))
        for splits in (_splits(site), ())
    )
    if cut >= whole:
        return NO(f"one part costs least with {described(contraction)}")
    parts = default_matrix_tile(site, _splits(site))["split"]
    return YES(f"matrix units multiply it, in {parts} parts of k={contraction.size('k')}")


def _split_tile(site: Site) -> Tile:
    return MappingProxyType(default_matrix_tile(site, _splits(site)))


def _spec(site: Site, tile: Mapping[str, int]) -> KernelSpec:
    return _made(site, tile, _NAME)


def _spec_split(site: Site, tile: Mapping[str, int]) -> KernelSpec:
    return _made(site, tile, SPLIT_UNITS)


def _made(site: Site, tile: Mapping[str, int], name: str) -> KernelSpec:
    """A block for each tile, and part; of parts a thread for each result then.  Raises ``UsageError``."""
    contraction = contraction_of(site)
    tiling = matrix_tiling_of(site.region, contraction, tile, name)
    most = site.target.shared_per_block_optin
    if tiling.shared_bytes > most:
        raise UsageError(
            f"{name}: tiles of {tiling.shared_bytes} bytes; a block has {most}: make m, n, k or stages smaller"
        )
    blocks = tiling.split * contraction.size("b") * tiling.blocks_m * tiling.blocks_n
    if blocks > _MOST_BLOCKS:
        raise UsageError(f"{name}: {blocks} blocks; a grid has at most {_MOST_BLOCKS}")
    read, results = operands_read(site.region), written(result_numbers(site))
    shared, over = tiling.shared_bytes, overwritable(site.region)
    if name != SPLIT_UNITS:
        launch = Launch.linear("", blocks, tiling.threads, (*read, *results), shared=shared)
        return KernelSpec(name, tile, (launch,), overwrites=over)
    elements = contraction.hero_elements
    if tiling.split * elements > _MOST_PARTIAL:
        most = max(1, _MOST_PARTIAL // elements)
        raise UsageError(f"{name}: split={tiling.split}; {most} would do")
    scratch = ScratchBuffer(contraction.accumulator.name, tiling.split * elements)
    partial = LeafPlace("scratch", 0)
    made = (*read, Argument(partial, "out"))
    summed = (*read, Argument(partial, "in"), *results)
    steps = (
        Launch.linear("_partial", blocks, tiling.threads, made, shared=shared),
        Launch.linear("_sum", -(-elements // SUM_THREADS), SUM_THREADS, summed),
    )
    return KernelSpec(name, tile, steps, scratch=(scratch,), overwrites=over)


def _efficiency(site: Site, spec: KernelSpec) -> Efficiency:
    """What the time of the tile makes of the rate of plain multiply-adds."""
    contraction, target = contraction_of(site), site.target
    factors = factors_of(site.region, contraction)
    assert isinstance(factors, MatrixFactors), factors
    seconds = tile_seconds(site, contraction, factors, spec.tile)
    launch = next(one for one in spec.steps if isinstance(one, Launch))
    blocks, threads = prod(launch.grid), prod(launch.block)
    lanes = min(blocks, target.cores) * min(threads, target.fpus_per_core)
    rate = 2 * contraction.multiply_adds / seconds / (target.clock_ghz * 2e9 * lanes)
    shape = f"{spec.tile['m']} by {spec.tile['n']} results a block"
    return Efficiency(compute=max(rate, 1e-6), reason=f"{factors.step}, {shape}")


KERNELS = (
    Kernel(
        SPLIT_UNITS,
        "matrix units multiply parts of the contracted dimensions, a block each; then the parts are added",
        _fits_split,
        _wanted_split,
        _split_tile,
        _spec_split,
        efficiency=_efficiency,
    ),
    Kernel(
        _NAME,
        "matrix units multiply tiles that are copied beside it; operands and results may be computed",
        _fits,
        _wanted,
        _tile,
        _spec,
        efficiency=_efficiency,
    ),
)
