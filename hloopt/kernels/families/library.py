"""Library calls: cuBLAS for large products of matrices, cuFFT for Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable

from hloopt.analysis.gpu_libraries import LibraryProduct, product_of, refusal
from hloopt.kernels.kernel import NO, YES, Efficiency, Kernel, Site, Verdict, always, no_tile
from hloopt.kernels.spec import KernelSpec, Tile

__all__ = ["KERNELS"]

_SHARE = 0.8  # of the peak that a library reaches with large products


def _fits(library: str) -> Callable[[Site], Verdict]:
    def fits(site: Site) -> Verdict:
        if site.region.is_fusion:
            return NO(f"{library} computes a lone instruction, not a fusion")
        reason = refusal(library, site.region.instruction)
        return NO(reason) if reason else YES(f"{library} has a call for it")

    return fits


def _wanted_product(site: Site) -> Verdict:
    flops, least = _flops(site), site.limits.dot_library_flops
    if flops < least:
        return NO(f"{flops} flops are below {least}", "dot_library_flops")
    return YES(f"{flops} flops are {least} or more", "dot_library_flops")


def _flops(site: Site) -> int:
    product = product_of(site.region.instruction)
    assert isinstance(product, LibraryProduct), product
    gemm = product.gemm
    if gemm is None:
        return 0
    return 2 * gemm.rows * gemm.columns * gemm.depth * gemm.batch * len(gemm.offsets)


def _product_efficiency(site: Site, spec: KernelSpec) -> Efficiency:
    """Whether matrix units take a type: narrower than f32, and f64; f32 only where TF32 is allowed."""
    product = product_of(site.region.instruction)
    assert isinstance(product, LibraryProduct), product
    target, dtype = site.target, product.operand
    lanes = target.clock_ghz * 2e9 * target.cores * target.fpus_per_core
    scalar = dtype == "f32" and product.arithmetic == "f32"
    peak = target.peak_flops(dtype, "scalar" if scalar else "matrix") or lanes
    units = "plain units" if scalar else "units for matrices"
    return Efficiency(
        compute=_SHARE * peak / lanes,
        reason=f"{units} for {dtype}, {_SHARE:.0%} of their peak assumed",
    )


def _spec(kernel: str, library: str) -> Callable[[Site, Tile], KernelSpec]:
    def spec(site: Site, tile: Tile) -> KernelSpec:
        return KernelSpec(kernel, tile, library=library)

    return spec


KERNELS = (
    Kernel(
        "dot-library",
        "cuBLAS computes a dot, with tensor cores where the type has them",
        _fits("cublas"),
        _wanted_product,
        no_tile,
        _spec("dot-library", "cublas"),
        efficiency=_product_efficiency,
    ),
    Kernel(
        "fft-library",
        "cuFFT computes an fft",
        _fits("cufft"),
        always("cuFFT takes lines of any length"),
        no_tile,
        _spec("fft-library", "cufft"),
    ),
)
