"""Matrix products by matrix units, with what stands before and behind them."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from types import MappingProxyType

from hloopt.analysis.matrix_factors import MatrixFactors
from hloopt.errors import UsageError
from hloopt.kernel_ir.matrix_steps import MATRIX_STEPS
from hloopt.kernels.families.dot_region import dot_of
from hloopt.kernels.families.dot_tiled import described, result_numbers, splits_that_fit
from hloopt.kernels.families.dot_tiling import contraction_of
from hloopt.kernels.families.loop import operands_read
from hloopt.kernels.families.matrix_tiling import (
    default_matrix_tile,
    factors_of,
    matrix_tiling_of,
    shapes_of,
    tile_seconds,
)
from hloopt.kernels.kernel import NO, YES, Efficiency, Kernel, Site, Verdict, overwritable
from hloopt.kernels.spec import KernelSpec, Launch, Tile, written

__all__ = ["KERNELS"]

_NAME = "dot-mma"
_MOST_BLOCKS = 2**31 - 1
_DEEP = 1024  # of the contracted axis, from which on parts of it are worth a second launch


def _fits(site: Site) -> Verdict:
    if problem := dot_of.problem(site.region):
        return NO(problem)
    contraction = contraction_of(site)
    factors = factors_of(site.region, contraction)
    if isinstance(factors, str):
        return NO(factors)
    step = MATRIX_STEPS[factors.step]
    have, need = site.target.capability, step.capability
    if have < need:
        words = [".".join(map(str, one)) for one in (need, have)]
        return NO(
            f"products of {step.dtype} by matrix units need compute capability {words[0]}; "
            f"{site.target.name} has {words[1]}"
        )
    if not shapes_of(site, factors):
        most = site.target.shared_per_block_optin
        return NO(f"no tile has room in the {most} bytes of shared memory of a block")
    terms = f" {factors.products} times" if factors.products > 1 else ""
    return YES(f"{step.name}{terms}: {described(contraction)}")


def _wanted(site: Site) -> Verdict:
    contraction = contraction_of(site)
    m, n, k = (contraction.size(group) for group in ("m", "n", "k"))
    work, least = (m + n) * k, site.limits.dot_loop_work
    if work < least:
        return NO(f"(m + n) * k = {work} is below {least}", "dot_loop_work")
    tile = default_matrix_tile(site)
    blocks = contraction.size("b") * -(-m // tile["m"]) * -(-n // tile["n"])
    cores = site.target.cores
    if k >= _DEEP and 8 * blocks <= cores and splits_that_fit(site, contraction) > 1:
        return NO(f"{blocks} tiles leave most of {cores} cores idle, and k={k} can be cut")
    return YES(
        f"matrix units multiply it, and what is around it is computed with it: {blocks} tiles"
    )


def _tile(site: Site) -> Tile:
    return MappingProxyType(default_matrix_tile(site))


def _spec(site: Site, tile: Mapping[str, int]) -> KernelSpec:
    contraction = contraction_of(site)
    tiling = matrix_tiling_of(site.region, contraction, tile, _NAME)
    most = site.target.shared_per_block_optin
    if tiling.shared_bytes > most:
        raise UsageError(
            f"{_NAME}: tiles of {tiling.shared_bytes} bytes; a block has {most}: make m, n, k or stages smaller"
        )
    blocks = contraction.size("b") * tiling.blocks_m * tiling.blocks_n
    if blocks > _MOST_BLOCKS:
        raise UsageError(f"{_NAME}: {blocks} blocks; a grid has at most {_MOST_BLOCKS}")
    arguments = (*operands_read(site.region), *written(result_numbers(site)))
    launch = Launch.linear("", blocks, tiling.threads, arguments, shared=tiling.shared_bytes)
    return KernelSpec(_NAME, tile, (launch,), overwrites=overwritable(site.region))


def _efficiency(site: Site, spec: KernelSpec) -> Efficiency:
    """What the time of the tile makes of the rate of plain multiply-adds."""
    contraction, target = contraction_of(site), site.target
    factors = factors_of(site.region, contraction)
    assert isinstance(factors, MatrixFactors), factors
    seconds = tile_seconds(site, contraction, factors, spec.tile)
    (launch,) = (one for one in spec.steps if isinstance(one, Launch))
    blocks, threads = prod(launch.grid), prod(launch.block)
    lanes = min(blocks, target.cores) * min(threads, target.fpus_per_core)
    rate = 2 * contraction.multiply_adds / seconds / (target.clock_ghz * 2e9 * lanes)
    shape = f"{spec.tile['m']} by {spec.tile['n']} results a block"
    return Efficiency(compute=max(rate, 1e-6), reason=f"{factors.step}, {shape}")


KERNELS = (
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
