"""Matrix products by tiles in shared memory, each thread with a few results in registers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from hloopt.analysis.contraction import Contraction
from hloopt.errors import UsageError
from hloopt.kernels.families.dot_region import dot_of, product_of
from hloopt.kernels.families.dot_tiling import (
    contraction_of,
    default_tile,
    efficiency_of,
    splits_wanted,
    tiling_of,
)
from hloopt.kernels.families.loop import operands_read
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

__all__ = [
    "KERNELS",
    "SUM_THREADS",
    "described",
    "result_numbers",
    "split_spec",
    "splits_that_fit",
    "tiled_efficiency",
    "tiled_spec",
]

SUM_THREADS = 256
"""Threads of a block that adds the partial sums of a contracted axis that was cut."""

_MOST_BLOCKS = 2**31 - 1
_MOST_PARTIAL = 2**31 - 2**22


def described(contraction: Contraction) -> str:
    """M, N, K and the batch in words."""
    b, m, n, k = (contraction.size(group) for group in ("b", "m", "n", "k"))
    batch = f"{b} products, each " if b > 1 else ""
    return f"{batch}m={m}, n={n}, k={k}"


def _fits(site: Site) -> Verdict:
    problem = dot_of.problem(site.region)
    return NO(problem) if problem else YES(described(dot_of(site.region).contraction))


def _fits_split(site: Site) -> Verdict:
    found = _fits(site)
    if not found:
        return found
    contraction = dot_of(site.region).contraction
    k, partial = contraction.size("k"), 2 * contraction.hero_elements
    if k < 2:
        return NO(f"k={k} cannot be cut")
    if partial > _MOST_PARTIAL:
        return NO(f"two parts have {partial} partial sums; at most {_MOST_PARTIAL} are counted")
    return found


def _wanted(site: Site) -> Verdict:
    contraction = contraction_of(site)
    work = _work(contraction)
    least = site.limits.dot_loop_work
    if work < least:
        return NO(f"(m + n) * k = {work} is below {least}", "dot_loop_work")
    return YES(f"(m + n) * k = {work} is {least} or more", "dot_loop_work")


def _wanted_split(site: Site) -> Verdict:
    contraction = contraction_of(site)
    wanted = _wanted(site)
    if not wanted:
        return wanted
    split = splits_that_fit(site, contraction)
    if split == 1:
        return NO(f"one part costs least with {described(contraction)}")
    return YES(f"{split} parts cost least with {described(contraction)}")


def _work(contraction: Contraction) -> int:
    return (contraction.size("m") + contraction.size("n")) * contraction.size("k")


def splits_that_fit(site: Site, contraction: Contraction) -> int:
    """Into how many parts the contracted axis is best cut, of as many as there is room to count."""
    split = splits_wanted(site, contraction)
    while split > 1 and split * contraction.hero_elements > _MOST_PARTIAL:
        split //= 2
    return split


def _tile(site: Site) -> Tile:
    return MappingProxyType(default_tile(site, contraction_of(site)))


def _split_tile(site: Site) -> Tile:
    contraction = contraction_of(site)
    split = max(2, splits_that_fit(site, contraction))
    return MappingProxyType({**default_tile(site, contraction, split), "split": split})


def tiled_spec(site: Site, tile: Tile, contraction: Contraction, kernel: str) -> KernelSpec:
    """A block for each tile of the results.  Raises ``UsageError`` for a tile that cannot be."""
    tiling = tiling_of(contraction, tile, kernel)
    blocks = contraction.size("b") * tiling.blocks_m * tiling.blocks_n
    if blocks > _MOST_BLOCKS:
        raise UsageError(f"{kernel}: {blocks} blocks; a grid has at most {_MOST_BLOCKS}")
    results = written(result_numbers(site))
    arguments = (*operands_read(site.region), *results)
    launch = Launch.linear("", blocks, tiling.threads, arguments)
    return KernelSpec(kernel, tile, (launch,), overwrites=overwritable(site.region))


def result_numbers(site: Site) -> range:
    """The result leaves that are written: all but the scratch space of a library call."""
    return range(len(product_of(site.region).routes))


def split_spec(site: Site, tile: Tile, contraction: Contraction, kernel: str) -> KernelSpec:
    """A block for each tile and part, then a thread for each result.  Raises ``UsageError``."""
    tiling = tiling_of(contraction, tile, kernel)
    elements = contraction.hero_elements
    if tiling.split * elements > _MOST_PARTIAL:
        most = max(1, _MOST_PARTIAL // elements)
        raise UsageError(f"{kernel}: split={tile['split']}; {most} would do")
    blocks = contraction.size("b") * tiling.split * tiling.blocks_m * tiling.blocks_n
    if blocks > _MOST_BLOCKS:
        raise UsageError(f"{kernel}: {blocks} blocks; a grid has at most {_MOST_BLOCKS}")
    partial = LeafPlace("scratch", 0)
    read = operands_read(site.region)
    results = written(result_numbers(site))
    return KernelSpec(
        kernel,
        tile,
        (
            Launch.linear(
                "_partial",
                blocks,
                tiling.threads,
                (*read, Argument(partial, "out")),
            ),
            Launch.linear(
                "_sum",
                -(-elements // SUM_THREADS),
                SUM_THREADS,
                (*read, Argument(partial, "in"), *results),
            ),
        ),
        scratch=(ScratchBuffer(contraction.accumulator.name, tiling.split * elements),),
        overwrites=overwritable(site.region),
    )


def tiled_efficiency(site: Site, spec: KernelSpec) -> Efficiency:
    """How near the tiles of a spec come to what the target can do."""
    contraction = contraction_of(site)
    return efficiency_of(contraction, tiling_of(contraction, spec.tile, spec.kernel))


def _spec(site: Site, tile: Mapping[str, int]) -> KernelSpec:
    return tiled_spec(site, tile, contraction_of(site), "dot-tiled")


def _spec_split(site: Site, tile: Mapping[str, int]) -> KernelSpec:
    return split_spec(site, tile, contraction_of(site), "dot-split-k")


KERNELS = (
    Kernel(
        "dot-split-k",
        "the contracted dimensions cut into parts, a block for each part of a tile; then the parts added",
        _fits_split,
        _wanted_split,
        _split_tile,
        _spec_split,
        efficiency=tiled_efficiency,
    ),
    Kernel(
        "dot-tiled",
        "tiles of both operands in shared memory, a few results a thread in registers",
        _fits,
        _wanted,
        _tile,
        _spec,
        efficiency=tiled_efficiency,
    ),
)
