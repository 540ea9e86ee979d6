"""Shortest decimals of whole arrays: the same as one by one, for every value that is hard."""

from __future__ import annotations

import time

import numpy as np
import pytest

from hloopt.text.decimals import decimals
from hloopt.types import DTYPES

NARROW = [name for name, row in DTYPES.items() if row.is_float and row.bits <= 16]


def assert_shortest(name: str, values: np.ndarray, texts: list[str]) -> None:
    """Each text reads back as its value, and none with a digit less does."""
    kind = DTYPES[name].numpy
    doubles = np.array([float(text) for text in texts])
    with np.errstate(over="ignore"):
        assert np.array_equal(doubles.astype(kind), values, equal_nan=True)
    digits = [
        len(text.partition("e")[0].replace(".0", "").strip("-0.").replace(".", ""))
        for text in texts
    ]
    shorter = np.array(
        [
            float(f"{value:.{max(n - 2, 0)}e}")
            for value, n in zip(values.astype(np.float64), digits, strict=True)
        ]
    )
    with np.errstate(over="ignore", invalid="ignore"):
        same = shorter.astype(kind) == values
    # Above the largest value NumPy may give the largest one, where a reader of HLO text says no.
    most = np.abs(values[np.isfinite(values.astype(np.float64))].astype(np.float64)).max()
    same &= (np.array(digits) > 1) & (np.abs(shorter) <= most)
    assert not same.any(), [texts[index] for index in np.flatnonzero(same)[:5]]


@pytest.mark.parametrize("name", NARROW)
def test_all_values_of_narrow_types(name: str) -> None:
    """Every finite value of every type of up to 16 bits."""
    row = DTYPES[name]
    storage = np.uint8 if row.numpy.itemsize == 1 else np.uint16
    values = np.arange(1 << row.bits, dtype=storage).view(row.numpy)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        values = values[np.isfinite(values.astype(np.float64))]
    assert_shortest(name, values, decimals(row, values))


def test_f32_of_all_sizes() -> None:
    """Random bits, powers of two and of ten and their neighbours, the smallest and the largest."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 20_000, dtype=np.uint32)
    tens = np.float32(10.0) ** np.arange(-38, 39, dtype=np.float32)
    twos = np.ldexp(np.float32(1), np.arange(-149, 128)).astype(np.float32)
    edges = np.concatenate([tens, twos, np.float32([3.4028235e38, 1e-45, 16777216, 0.1, 1 / 3])])
    edges = np.concatenate(
        [edges, np.nextafter(edges, np.float32(0)), np.nextafter(edges, np.float32(1))]
    )
    values = np.concatenate([bits.view(np.float32), edges, -edges])
    values = values[np.isfinite(values) & (values != 0)]
    texts = decimals(DTYPES["f32"], values)
    assert texts == [repr(float(str(value))) for value in values]


def test_special_values() -> None:
    """Zeros keep their sign, infinities are words, and so is a NaN."""
    for name in ("f32", "f64", "bf16"):
        values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan] * 10).astype(DTYPES[name].numpy)
        for part in (values, values[:5]):
            assert decimals(DTYPES[name], part)[:5] == ["0.0", "-0.0", "inf", "-inf", "nan"]


def test_many_are_quick() -> None:
    """A million f32 take a few seconds at most: no slow call per element."""
    values = np.random.default_rng(0).standard_normal(1_000_000).astype(np.float32)
    start = time.process_time()
    decimals(DTYPES["f32"], values)
    assert time.process_time() - start < 4
