"""fft: the sum that defines it, for all types, ranks and lengths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloopt
from hloopt.errors import UnsupportedError
from hloopt.interpret.fft import fft

PAIRS = {"f32": "c64", "f64": "c128"}


def dft(array: np.ndarray, axis: int, sign: int) -> np.ndarray:
    """The definition, one dimension."""
    count = array.shape[axis]
    steps = np.arange(count)
    matrix = np.exp(sign * 2j * np.pi * np.outer(steps, steps) / count)
    return np.moveaxis(np.tensordot(matrix, array, axes=([1], [axis])), 0, axis)


def definition(array: np.ndarray, fft_type: str, lengths: tuple[int, ...]) -> np.ndarray:
    axes = range(array.ndim - len(lengths), array.ndim)
    wide = array.astype(np.complex128)
    if fft_type == "IRFFT":
        return real_part_of_inverse(wide, lengths)
    for axis in axes:
        wide = dft(wide, axis, 1 if fft_type == "IFFT" else -1)
    if fft_type == "IFFT":
        wide = wide / np.prod(lengths)
    return wide[..., : lengths[-1] // 2 + 1] if fft_type == "RFFT" else wide


def real_part_of_inverse(half: np.ndarray, lengths: tuple[int, ...]) -> np.ndarray:
    """Inverse of all outer dimensions, then a last one whose missing half is the conjugate."""
    for axis in range(half.ndim - len(lengths), half.ndim - 1):
        half = dft(half, axis, 1)
    count = lengths[-1]
    whole = np.zeros((*half.shape[:-1], count), np.complex128)
    whole[..., : count // 2 + 1] = half
    for place in range(count // 2 + 1, count):
        whole[..., place] = half[..., count - place].conj()
    return dft(whole, half.ndim - 1, 1).real / np.prod(lengths)


@given(
    st.sampled_from(["FFT", "IFFT", "RFFT", "IRFFT"]),
    st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple),
    st.lists(st.integers(1, 3), max_size=2).map(tuple),
    st.integers(0, 2**32 - 1),
)
def test_transforms_are_their_definition(fft_type, lengths, batch, seed) -> None:
    rng = np.random.default_rng(seed)
    dims = (*batch, *lengths)
    if fft_type == "IRFFT":
        dims = (*dims[:-1], lengths[-1] // 2 + 1)
    array = rng.normal(size=dims)
    if fft_type != "RFFT":
        array = array + 1j * rng.normal(size=dims)
    found = fft(array, fft_type, lengths)
    expected = definition(array, fft_type, lengths)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("real", ["f32", "f64"])
@pytest.mark.parametrize(
    ("fft_type", "source", "target", "lengths"),
    [
        ("FFT", "C[2,6]", "C[2,6]", "6"),
        ("IFFT", "C[3,4,5]", "C[3,4,5]", "3,4,5"),
        ("RFFT", "R[2,6]", "R[2,4]", "2,6"),
        ("IRFFT", "C[2,4]", "R[2,7]", "7"),
        ("IRFFT", "C[2,4]", "R[2,6]", "2,6"),
    ],
)
def test_the_op_rounds_to_its_type(real, fft_type, source, target, lengths, rng) -> None:
    def typed(shape: str) -> str:
        return shape.replace("C", PAIRS[real]).replace("R", real)

    target = typed(target).replace(real, PAIRS[real]) if fft_type == "RFFT" else typed(target)
    text = f"""HloModule m

ENTRY e {{
  p = {typed(source)} parameter(0)
  ROOT f = {target} fft(p), fft_type={fft_type}, fft_length={{{lengths}}}
}}
"""
    module = hloopt.parse(text)
    hloopt.verify(module)
    parameter, root = module.entry.parameters[0].array, module.entry.root.array
    array = rng.normal(size=parameter.dims)
    if parameter.dtype.is_complex:
        array = array + 1j * rng.normal(size=parameter.dims)
    array = array.astype(parameter.dtype.numpy)
    (found,) = hloopt.evaluate(module, [array])
    assert found.dtype == root.dtype.numpy
    assert found.shape == root.dims
    expected = definition(array, fft_type, tuple(map(int, lengths.split(","))))
    np.testing.assert_allclose(found, expected, atol=2e-6 if real == "f32" else 1e-13)


def test_an_empty_batch_gives_an_empty_result() -> None:
    text = """HloModule m

ENTRY e {
  p = f32[0,4] parameter(0)
  ROOT f = c64[0,3] fft(p), fft_type=RFFT, fft_length={4}
}
"""
    (found,) = hloopt.evaluate(hloopt.parse(text), [np.zeros((0, 4), np.float32)])
    assert found.shape == (0, 3)
    assert found.dtype == np.complex64


@pytest.mark.parametrize("fft_type", ["FFT", "IFFT"])
@pytest.mark.parametrize("length", [0, 4, 16])
def test_other_lengths_are_refused(fft_type: str, length: int) -> None:
    """Valid text without a defined result: XLA's own contains what memory held before."""
    module = hloopt.parse(
        "HloModule m\nENTRY e {\n  p = c64[8] parameter(0)\n"
        f"  ROOT f = c64[8] fft(p), fft_type={fft_type}, fft_length={{{length}}}\n}}\n"
    )
    hloopt.verify(module)
    message = rf"f: a transform of length \[{length}\] of dimensions \[8\] cannot be evaluated"
    with pytest.raises(UnsupportedError, match=message) as caught:
        hloopt.evaluate(module, [np.zeros(8, np.complex64)])
    assert caught.value.line == 4
    with pytest.raises(UnsupportedError, match=message):
        hloopt.compile(module)
