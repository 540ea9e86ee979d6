"""Fourier transforms in shared memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import hloopt
from hloopt.analysis.region import region_of
from hloopt.errors import UsageError
from hloopt.kernels.families.fft import radices, rows_of
from hloopt.kernels.kernel import Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.registry import find_kernel
from hloopt.targets import find_target
from tests.codegen.harness import check_kernel, planned
from tests.codegen.products import module_of, shape

KINDS = ("FFT", "IFFT", "RFFT", "IRFFT")


def _fft(
    kind: str, lengths: Sequence[int], batch: Sequence[int] = (), *, wide: bool = False
) -> tuple[str, list[str]]:
    complex_, real = ("c128", "f64") if wide else ("c64", "f32")
    half = [*lengths[:-1], lengths[-1] // 2 + 1]
    source = (real, lengths) if kind == "RFFT" else (complex_, half if kind == "IRFFT" else lengths)
    result = (real, lengths) if kind == "IRFFT" else (complex_, half if kind == "RFFT" else lengths)
    text = f"fft(%0), fft_type={kind}, fft_length={{{','.join(map(str, lengths))}}}"
    return f"{shape(result[0], [*batch, *result[1]])} {text}", [
        shape(source[0], [*batch, *source[1]])
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_every_radix(kind: str) -> None:
    """Lengths of fours, twos, small and large primes; odd and even ones; one element."""
    sizes = [((1,), (3,)), ((8,), (600,)), ((105,), (3,)), ((97,), (2,)), ((1024,), ())]
    text, first = module_of([_fft(kind, *size) for size in sizes]), kind == "FFT"
    check_kernel(text, "fft-shared", twice=first, everywhere=first)


def test_several_dimensions() -> None:
    """A dimension after the other, in single and double precision."""
    sizes = [((6, 8), (3,)), ((4, 3, 10), ()), ((5, 1), (2, 3))]
    transforms = [
        _fft(kind, *size, wide=number % 2 == 1)
        for kind in KINDS
        for number, size in enumerate(sizes)
    ]
    check_kernel(module_of(transforms), "fft-shared", twice=False, everywhere=False)


def test_radices_multiply_to_the_length() -> None:
    """Factors are fours, a two, and primes."""
    assert radices(1) == []
    assert radices(8 * 9 * 35) == [4, 2, 3, 3, 5, 7]
    assert radices(2 * 509) == [2, 509]
    for length in range(1, 400):
        product = 1
        for radix in radices(length):
            product *= radix
        assert product == length


def test_long_lines() -> None:
    """A line too long for shared memory is put as a matrix; so it is in several dimensions."""
    transforms = [
        _fft("FFT", (4096,)),
        _fft("IFFT", (3000, 2), (2,)),
        _fft("RFFT", (4098,), (3,)),
        _fft("RFFT", (3, 1050), wide=True),
        _fft("IRFFT", (4098,), (2,)),
        _fft("IRFFT", (1050, 4), (2,), wide=True),
    ]
    text = module_of(transforms)
    check_kernel(text, "fft-shared", twice=False, everywhere=False)


@pytest.mark.parametrize(
    ("length", "rows"), [(4096, 64), (2 * 2039, 2), (4099, 0), (2048 * 2048, 2048)]
)
def test_rows_of_long_lines(length: int, rows: int) -> None:
    """The matrix of a line is as square as its divisors allow; a large prime has none."""
    assert rows_of(length, 2048) == rows


def test_long_primes_are_refused() -> None:
    """A line that is no matrix of shorter ones is refused with the figures."""
    module = hloopt.parse(module_of([_fft("FFT", (4099,))]))
    instruction = next(found for found in module.entry if found.opcode == "fft")
    site = Site(region_of(instruction), find_target("h200"), Limits())
    verdict = find_kernel("fft-shared").fits(site)
    assert not verdict
    assert verdict.reason == "a line of 4099 elements, which form no matrix of at most 2048 by 2048"


def test_tiles_that_cannot_be() -> None:
    """More lines than shared memory holds are a usage error."""
    with pytest.raises(UsageError, match="lines=9; a block has room for 1 to 2"):
        planned(
            module_of([_fft("FFT", (1024,), (20,))]), "fft-shared", {"lines": 9, "threads": 256}
        )
