"""Movement ops against their definitions, element by element."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloopt.interpret.movement import broadcast, iota, pad, place, slices
from hloopt.types import PaddingDim, SliceRange, dtype


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


@given(
    dims=st.lists(st.integers(0, 4), min_size=0, max_size=3),
    data=st.data(),
)
def test_pad_puts_interior_first_and_then_the_edges(dims, data):
    """Every result element is an operand element or the padding value, as its index says."""
    padding = [
        PaddingDim(
            data.draw(st.integers(-4, 3)),
            data.draw(st.integers(0, 4)),
            data.draw(st.integers(0, 2)),
        )
        for _ in dims
    ]
    sizes = [
        p.low + p.high + n + max(n - 1, 0) * p.interior for n, p in zip(dims, padding, strict=True)
    ]
    if any(size < 0 for size in sizes):
        return
    x = np.arange(1, np.prod(dims, dtype=int) + 1).reshape(dims)
    expected = np.full(sizes, -1)
    for index in np.ndindex(*dims):
        at = tuple(p.low + i * (p.interior + 1) for i, p in zip(index, padding, strict=True))
        if all(0 <= a < s for a, s in zip(at, sizes, strict=True)):
            expected[at] = x[index]
    np.testing.assert_array_equal(pad(x, np.array(-1), padding), expected)


def test_pad_crops_with_negative_edges():
    """Negative low and high drop elements at the ends, also ones that interior padding made."""
    x = np.arange(5)
    padded = pad(x, np.array(9), [PaddingDim(-1, -2, 0)])
    np.testing.assert_array_equal(padded, [1, 2])
    padded = pad(x, np.array(9), [PaddingDim(-1, -1, 1)])
    np.testing.assert_array_equal(padded, [9, 1, 9, 2, 9, 3, 9])


@pytest.mark.parametrize("dimensions", [(0, 1), (0, 2), (1, 2), (2, 0), (2, 1)])
def test_broadcast_maps_dimensions_in_any_order(dimensions):
    """Operand dimension i is result dimension dimensions[i], also where that is a transposition."""
    dims = (2, 3, 4)
    x = np.arange(dims[dimensions[0]] * dims[dimensions[1]]).reshape(
        dims[dimensions[0]], dims[dimensions[1]]
    )
    result = broadcast(x, dimensions, dims)
    for index in product(*map(range, dims)):
        assert result[index] == x[index[dimensions[0]], index[dimensions[1]]]


def test_slices_take_strides():
    """The limit is exclusive, the stride counts from the start."""
    x = np.arange(24).reshape(4, 6)
    np.testing.assert_array_equal(
        slices(x, [SliceRange(1, 4, 2), SliceRange(0, 6, 5)]), [[6, 11], [18, 23]]
    )


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
