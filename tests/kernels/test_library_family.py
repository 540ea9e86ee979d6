"""Which instructions are library calls: products that are large enough, and every Fourier transform."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hloopt
from hloopt.analysis.region import region_of
from hloopt.kernels.estimate import estimate
from hloopt.kernels.families.library import KERNELS
from hloopt.kernels.kernel import Kernel, Site
from hloopt.kernels.limits import Limits
from hloopt.runtime import library_numpy
from hloopt.targets import Unit, target
from tests.kernels.selecting import DEVICE

DOT, FFT = KERNELS


def site(text: str, **limits: int) -> Site:
    """The entry's root with the device the tests have."""
    root = hloopt.parse(f"HloModule m\n{text}").entry.root
    return Site(region_of(root), DEVICE, Limits(**limits))


def product(n: int, dtype: str = "f32") -> str:
    """A dot of two square matrices."""
    return f"""ENTRY e {{
  a = {dtype}[{n},{n}] parameter(0)
  b = {dtype}[{n},{n}] parameter(1)
  ROOT r = {dtype}[{n},{n}] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}"""


TRANSFORM = """ENTRY e {
  a = f32[8,16] parameter(0)
  ROOT r = c64[8,9] fft(a), fft_type=RFFT, fft_length={16}
}"""

FUSED = """f {
  a = f32[9,9] parameter(0)
  b = f32[9,9] parameter(1)
  d = f32[9,9] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT n = f32[9,9] negate(d)
}
ENTRY e {
  a = f32[9,9] parameter(0)
  b = f32[9,9] parameter(1)
  ROOT r = f32[9,9] fusion(a, b), kind=kLoop, calls=f
}"""


def test_large_products_are_cublas_s() -> None:
    """The limit is an option; the reason has both figures."""
    large, small = site(product(512)), site(product(511))
    assert DOT.fits(large)
    assert DOT.wanted(large)
    assert DOT.spec(large, DOT.tile(large)).library == "cublas"
    assert DOT.fits(small)
    verdict = DOT.wanted(small)
    assert not verdict
    assert verdict.reason == f"{2 * 511**3} flops are below {1 << 28}"
    assert verdict.option == "dot_library_flops"
    assert DOT.wanted(site(product(4), dot_library_flops=128))
    assert not DOT.wanted(site(product(4), dot_library_flops=129))


@pytest.mark.parametrize(
    ("dtype", "unit"), [("f32", "scalar"), ("bf16", "matrix"), ("f64", "matrix")]
)
def test_estimates_know_the_units_for_matrices(dtype: str, unit: Unit) -> None:
    """f32 stays out of them; a large product takes five quarters of its flops over the peak."""
    where = replace(site(product(8192, dtype)), target=target("h200"))
    spec = DOT.spec(where, DOT.tile(where))
    peak = target("h200").peak_flops(dtype, unit)
    assert peak is not None
    flops = 2 * 8192**3
    assert estimate(where, DOT, spec).seconds == pytest.approx(flops / (0.8 * peak), rel=0.1)


@pytest.mark.parametrize(
    ("kernel", "text", "reason"),
    [
        (DOT, FUSED, "cublas computes a lone instruction, not a fusion"),
        (DOT, product(8, "u8"), "no product of u8 and u8 to u8"),
        (DOT, TRANSFORM, "fft is not a matrix product"),
        (FFT, product(8), "dot is not a Fourier transform"),
    ],
)
def test_what_is_no_library_call_is_said(kernel: Kernel, text: str, reason: str) -> None:
    """In words, for `hloopt explain`."""
    verdict = kernel.fits(site(text))
    assert not verdict
    assert verdict.reason == reason


def test_transforms_are_cufft_s() -> None:
    """Of any length: what comes before in the order of kernels may take the short ones."""
    where = site(TRANSFORM)
    assert FFT.fits(where)
    assert FFT.wanted(where)
    assert FFT.spec(where, FFT.tile(where)).library == "cufft"


def test_empty_products_are_not_worth_a_call() -> None:
    """They have no flops."""
    text = """ENTRY e {
  a = f32[3,0] parameter(0)
  b = f32[0,5] parameter(1)
  ROOT r = f32[3,5] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""
    assert DOT.fits(site(text))
    assert not DOT.wanted(site(text))


def test_the_host_computes_the_same_call() -> None:
    """What the emulator does for it."""
    root = site(product(3)).region.instruction
    a, b = np.eye(3, dtype=np.float32) * 2, np.arange(9, dtype=np.float32).reshape(3, 3)
    (got,) = library_numpy.call(root, [a, b])
    assert got.tolist() == (2 * b).tolist()
