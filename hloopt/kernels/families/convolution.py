"""Convolutions: as products of matrices whose left operand is read window by window, or output by output.

Padding is multiplied as 0 where a convolution is made a product of matrices, as cuDNN does: there an infinite
weight that meets padding gives NaN.  The direct kernel leaves padding out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import gcd
from types import MappingProxyType

from hloopt.errors import UsageError
from hloopt.kernels.families.dot_region import convolution_of
from hloopt.kernels.families.dot_tiled import (
    described,
    result_numbers,
    split_spec,
    splits_that_fit,
    tiled_efficiency,
    tiled_spec,
)
from hloopt.kernels.families.dot_tiling import contraction_of, default_tile
from hloopt.kernels.families.loop import operands_read
from hloopt.kernels.kernel import NO, YES, Kernel, Site, Verdict, always, overwritable
from hloopt.kernels.spec import KernelSpec, Launch, Tile, written

__all__ = ["KERNELS"]

_DIRECT = "convolution-direct"


def _fits(site: Site) -> Verdict:
    problem = convolution_of.problem(site.region)
    return NO(problem) if problem else YES(described(convolution_of(site.region).contraction))


def _fits_pointwise(site: Site) -> Verdict:
    found = _fits(site)
    if not found:
        return found
    contraction = convolution_of(site.region).contraction
    features = [size for size in contraction.axes["k"] if size > 1]
    if len(features) > 1:
        return NO(f"the window of {contraction.hero.name} has more than one element")
    if not contraction.always_inside():
        return NO(f"{contraction.hero.name} has padding or a dilated base")
    return found


def _wanted(site: Site) -> Verdict:
    contraction = contraction_of(site)
    least = site.limits.convolution_matmul_size
    for group in ("m", "n", "k"):
        size = contraction.size(group)
        if size < least:
            return NO(f"{group}={size} is below {least}", "convolution_matmul_size")
    return YES(f"{described(contraction)}, all {least} or more", "convolution_matmul_size")


def _tile(site: Site) -> Tile:
    contraction = contraction_of(site)
    split = splits_that_fit(site, contraction)
    return MappingProxyType({**default_tile(site, contraction, split), "split": split})


def _spec(kernel: str) -> Callable[[Site, Tile], KernelSpec]:
    def spec(site: Site, tile: Tile) -> KernelSpec:
        contraction = contraction_of(site)
        if tile["split"] == 1:
            return tiled_spec(site, tile, contraction, kernel)
        return split_spec(site, tile, contraction, kernel)

    return spec


def _direct_tile(site: Site) -> Tile:
    contraction, target = contraction_of(site), site.target
    outputs = gcd(4, contraction.hero_dims[-1]) if contraction.hero_dims else 1
    # Neighbours are worth less than threads for every core.
    while outputs > 1 and contraction.hero_elements < outputs * 512 * target.cores:
        outputs //= 2
    return MappingProxyType({"threads": 128, "outputs": outputs, "vector": outputs})


def _direct_spec(site: Site, tile: Mapping[str, int]) -> KernelSpec:
    contraction = contraction_of(site)
    threads, outputs = tile["threads"], tile["outputs"]
    if not 1 <= threads <= site.target.threads_per_block:
        most = site.target.threads_per_block
        raise UsageError(f"{_DIRECT}: threads={threads}; a block has 1 to {most}")
    last = contraction.hero_dims[-1] if contraction.hero_dims else 1
    if outputs < 1 or last % outputs:
        would = gcd(4, last)
        raise UsageError(f"{_DIRECT}: outputs={outputs} does not divide {last}; {would} would do")
    if tile["vector"] not in (1, 2, 4, 8, 16):
        raise UsageError(f"{_DIRECT}: vector={tile['vector']}; it is 1, 2, 4, 8 or 16")
    runs = contraction.hero_elements // outputs
    arguments = (
        *operands_read(site.region),
        *written(result_numbers(site)),
    )
    launch = Launch.linear("", -(-runs // threads), threads, arguments)
    return KernelSpec(_DIRECT, tile, (launch,), overwrites=overwritable(site.region))


KERNELS = (
    Kernel(
        "convolution-1x1",
        "a convolution of single elements as a product of matrices over features",
        _fits_pointwise,
        _wanted,
        _tile,
        _spec("convolution-1x1"),
        efficiency=tiled_efficiency,
    ),
    Kernel(
        "convolution-implicit-matmul",
        "tiles of windows and weights in shared memory; no window is ever written to memory",
        _fits,
        _wanted,
        _tile,
        _spec("convolution-implicit-matmul"),
        efficiency=tiled_efficiency,
    ),
    Kernel(
        _DIRECT,
        "a thread for a few neighbouring outputs, each a sum over its window",
        _fits,
        always("too little is multiplied in a group for tiles"),
        _direct_tile,
        _direct_spec,
    ),
)
