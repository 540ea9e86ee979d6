"""fft: the sums that define the four transforms, one output element after the other."""

from __future__ import annotations

import cmath
from fractions import Fraction
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.errors import UnsupportedError
from tests.helpers.rarely import examples
from tests.semantics.elements import entry, seeds, shape_of
from tests.semantics.statement import check

OPCODES = ("fft",)

COMPLEX = {"f32": "c64", "f64": "c128"}
LOOSE = {"f32": 2e-6, "f64": 1e-13}


def turn(frequency, place, length, sign):
    """exp(sign 2 pi i frequency place / length); the angle is reduced before it is rounded."""
    angle = Fraction(frequency * place % length, length)
    return cmath.exp(sign * 2j * cmath.pi * float(angle))


def transformed(line, lengths, kind):
    """One block of numbers by index; the result by index."""
    sign = 1 if kind in ("IFFT", "IRFFT") else -1
    last = lengths[-1]
    if kind == "IRFFT":
        line = {index: whole(line, index, lengths) for index in product(*map(range, lengths))}
    kept = (*lengths[:-1], last // 2 + 1) if kind == "RFFT" else lengths
    found = {}
    for frequencies in product(*map(range, kept)):
        total = 0j
        for places in product(*map(range, lengths)):
            factor = 1
            for k, n, length in zip(frequencies, places, lengths, strict=True):
                factor *= turn(k, n, length, sign)
            total += line[places] * factor
        found[frequencies] = total / prod(lengths) if sign > 0 else total
    return found


def whole(half, index, lengths):
    """A spectrum of real numbers: beyond the half that is kept each element is a conjugate."""
    if index[-1] <= lengths[-1] // 2:
        return half[index]
    opposite = tuple(-at % length for at, length in zip(index, lengths, strict=True))
    return half[opposite].conjugate()


@given(
    st.sampled_from(["FFT", "IFFT", "RFFT", "IRFFT"]),
    st.sampled_from(["f32", "f64"]),
    st.one_of(
        st.lists(st.integers(1, 4), min_size=1, max_size=3),
        st.sampled_from([[5], [7], [11], [12], [13], [16], [17], [2, 7], [9, 2]]),
    ).map(tuple),
    st.lists(st.integers(1, 2), max_size=2).map(tuple),
    seeds,
)
@settings(max_examples=examples(60))
def test_transforms_are_their_sums(kind, real, lengths, batch, chooser):
    """Any length, odd and prime ones too, of the last one to three dimensions; inverse ones are divided by it."""
    taken = (*lengths[:-1], lengths[-1] // 2 + 1) if kind == "IRFFT" else lengths
    given_ = (*lengths[:-1], lengths[-1] // 2 + 1) if kind == "RFFT" else lengths
    source = real if kind == "RFFT" else COMPLEX[real]
    target = real if kind == "IRFFT" else COMPLEX[real]

    def number():
        part = chooser.randint(-8, 8) / 4
        return part if kind == "RFFT" else complex(part, chooser.randint(-8, 8) / 4)

    want = np.zeros((*batch, *given_), np.float64 if kind == "IRFFT" else np.complex128)
    array = np.zeros((*batch, *taken), np.float64 if kind == "RFFT" else np.complex128)
    for at in product(*map(range, batch)):
        line = {index: number() for index in product(*map(range, taken))}
        for index, value in line.items():
            array[at + index] = value
        if kind == "IRFFT":
            line = hermitian(line, lengths)
        for index, value in transformed(line, lengths, kind).items():
            want[at + index] = value.real if kind == "IRFFT" else value
    carriers = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}
    listed = ",".join(map(str, lengths))
    text = entry(
        f"{shape_of(target, want.shape)} fft(p0), fft_type={kind}, fft_length={{{listed}}}",
        [shape_of(source, array.shape)],
    )
    scale = 4.0 * prod(lengths) if kind in ("FFT", "RFFT") else 4.0
    array, want = array.astype(carriers[source]), want.astype(carriers[target])
    check(text, [array], want, atol=LOOSE[real] * scale)


def hermitian(half, lengths):
    """Where both an element and its opposite are given, what a real signal would have there: an IRFFT transforms
    the outer dimensions first and takes the real parts then, so that the two share their difference.
    """
    found = dict(half)
    for index in half:
        if index[-1] in (0, lengths[-1] / 2):
            opposite = tuple(-at % length for at, length in zip(index, lengths, strict=True))
            found[index] = (half[index] + half[opposite].conjugate()) / 2
    return found


@pytest.mark.parametrize("real", ["f32", "f64"])
def test_imaginary_parts_that_a_real_signal_has_not_are_ignored(real):
    """Those of the first element, and of the middle one of an even length."""
    half = np.array([1 + 5j, 2j, 3 + 7j], {"f32": np.complex64, "f64": np.complex128}[real])
    attributes = "fft_type=IRFFT, fft_length={4}"
    text = entry(f"{real}[4] fft(p0), {attributes}", [f"{COMPLEX[real]}[3]"])
    want = np.array(
        [(1 + 3) / 4, (1 - 3) / 4 - 1, (1 + 3) / 4, (1 - 3) / 4 + 1],
        {"f32": np.float32, "f64": np.float64}[real],
    )
    check(text, [half], want, atol=LOOSE[real])


def test_an_infinite_element_reaches_its_whole_block_and_no_other():
    """NaN and infinities meet every output of their transform."""
    array = np.zeros((2, 4), np.complex64)
    array[0, 1] = complex(np.nan, np.nan)
    text = entry("c64[2,4] fft(p0), fft_type=FFT, fft_length={4}", ["c64[2,4]"])
    want = np.zeros((2, 4), np.complex64)
    want[0] = complex(np.nan, np.nan)
    check(text, [array], want, signed_zeros=False)


@pytest.mark.parametrize(
    ("kind", "source", "target", "length"),
    [("RFFT", "f32[0,4]", "c64[0,3]", 4), ("FFT", "c64[2,0]", "c64[2,0]", 0), ("IRFFT", "c64[0,3]", "f32[0,5]", 5)],
)  # fmt: skip
def test_what_is_empty_gives_what_is_empty(kind, source, target, length):
    """An empty batch, and a length of 0."""
    module = hloopt.parse(
        entry(f"{target} fft(p0), fft_type={kind}, fft_length={{{length}}}", [source])
    )
    given_, wanted = module.entry.parameters[0].array, module.entry.root.array
    array, want = (np.zeros(shape.dims, shape.dtype.numpy) for shape in (given_, wanted))
    check(module.to_text(), [array], want)


@pytest.mark.parametrize("kind", ["FFT", "IFFT"])
@pytest.mark.parametrize("length", [0, 4, 16])
def test_other_lengths_are_refused(kind, length):
    """Valid text without a defined result: XLA's own contains what memory held before."""
    module = hloopt.parse(
        entry(f"c64[8] fft(p0), fft_type={kind}, fft_length={{{length}}}", ["c64[8]"])
    )
    hloopt.verify(module)
    message = rf"r: a transform of length \[{length}\] of dimensions \[8\] cannot be evaluated"
    with pytest.raises(UnsupportedError, match=message) as caught:
        hloopt.evaluate(module, [np.zeros(8, np.complex64)])
    assert caught.value.line == 5
    with pytest.raises(UnsupportedError, match=message):
        hloopt.compile(module)
