"""Movement ops against their definitions, element by element."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloopt.interpret.movement import iota, pad, place
from hloopt.types import PaddingDim, dtype


@given(
    size=st.integers(0, 6),
    low=st.integers(-12, 12),
    interior=st.integers(0, 4),
    result=st.integers(0, 20),
    stride=st.integers(1, 5),
)
def test_place_maps_each_element_to_its_position(size, low, interior, result, stride):
    """Element i is at low + i * (interior + 1), kept if inside and divisible by the stride."""
    source, target = place(size, low, interior, result, stride)
    positions = {i: low + i * (interior + 1) for i in range(size)}
    expected = [
        (i, position // stride)
        for i, position in positions.items()
        if 0 <= position < result and position % stride == 0
    ]
    got = list(zip(np.arange(100)[source].tolist(), np.arange(100)[target].tolist(), strict=True))
    assert got == expected


def test_pad_crops_with_negative_edges():
    """Negative low and high drop elements at the ends, also ones that interior padding made."""
    x = np.arange(5)
    padded = pad(x, np.array(9), [PaddingDim(-1, -2, 0)])
    np.testing.assert_array_equal(padded, [1, 2])
    padded = pad(x, np.array(9), [PaddingDim(-1, -1, 1)])
    np.testing.assert_array_equal(padded, [9, 1, 9, 2, 9, 3, 9])


@pytest.mark.parametrize(
    ("name", "size", "last"),
    [("s4", 20, 19 - 16), ("u4", 20, 3), ("s8", 130, 129 - 256), ("u8", 260, 3), ("s2", 7, -2)],
)
def test_iota_of_integers_wraps(name, size, last):
    """Indexes beyond the type's range wrap modulo 2^bits."""
    values = iota((2, size), 1, dtype(name))
    assert values.dtype == dtype(name).numpy
    assert int(values[1, size - 1]) == last


def test_iota_of_bf16_rounds():
    """257 has no bf16: the nearest even one is 256."""
    assert float(iota((300,), 0, dtype("bf16"))[257]) == 256.0
