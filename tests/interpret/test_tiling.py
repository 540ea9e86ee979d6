"""Tiled layouts: places of elements by XLA's formula, one index at a time; bitcasts between them."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.errors import UnsupportedError
from hloopt.interpret.tiling import elements_in_memory, tiles_of
from hloopt.types import ArrayShape, Layout, dtype
from tests.helpers.rarely import examples
from tests.semantics.statement import check


def place(index: tuple[int, ...], dims: tuple[int, ...], tiles: list[tuple[int, ...]]) -> int:
    """Where an element lies, the dimensions from major to minor: a formula for each tile.

    A tile of sizes t turns the last indices i into i / t (within ceil(d / t)), followed by i mod t (within t).
    """
    for tile in tiles:
        missing = max(0, len(tile) - len(dims))
        index, dims = (0,) * missing + index, (1,) * missing + dims
        kept = len(dims) - len(tile)
        ends = list(zip(index[kept:], dims[kept:], tile, strict=True))
        index = (*index[:kept], *(i // t for i, _, t in ends), *(i % t for i, _, t in ends))
        dims = (*dims[:kept], *(-(-d // t) for _, d, t in ends), *tile)
    at = 0
    for position, size in zip(index, dims, strict=True):
        at = at * size + position
    return at


def tiled(name: str, dims: tuple[int, ...], order: tuple[int, ...], suffix: str) -> ArrayShape:
    return ArrayShape(dtype(name), dims, Layout(order, suffix))


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], list[tuple[int, ...]]]:
    """Dimensions, minor to major, tiles."""
    rank = draw(st.integers(0, 3))
    dims = tuple(draw(st.lists(st.integers(1, 5), min_size=rank, max_size=rank)))
    order = tuple(draw(st.permutations(range(rank))))
    sizes = st.lists(st.integers(1, 4), min_size=1, max_size=2).map(tuple)
    return dims, order, draw(st.lists(sizes, min_size=1, max_size=2))


@settings(max_examples=examples(60))
@given(layouts())
def test_elements_lie_where_the_formula_says(case) -> None:
    """All of them do, and every other place is padding."""
    dims, order, tiles = case
    suffix = "T" + "".join(f"({','.join(map(str, tile))})" for tile in tiles)
    shape = tiled("f32", dims, order, suffix)
    assert tiles_of(shape) == tuple(tiles)
    memory = elements_in_memory(shape)
    physical = tuple(dims[axis] for axis in order[::-1])
    expected = {}
    for number, index in enumerate(product(*map(range, dims))):
        expected[place(tuple(index[axis] for axis in order[::-1]), physical, tiles)] = number
    assert len(expected) == prod(dims)
    assert {at: int(number) for at, number in enumerate(memory) if number >= 0} == expected


def test_a_star_joins_a_dimension_with_the_next() -> None:
    """T(*,2) of three rows of two columns is T(2) of six elements."""
    joined = elements_in_memory(tiled("f32", (3, 3), (1, 0), "T(*,4)"))
    plain = elements_in_memory(tiled("f32", (9,), (0,), "T(4)"))
    assert joined.tolist() == plain.tolist()


def bitcast(source: str, target: str) -> str:
    return f"HloModule m\n\nENTRY e {{\n  p = {source} parameter(0)\n  ROOT r = {target} bitcast(p)\n}}\n"


def test_a_bitcast_follows_the_tiles() -> None:
    """Two rows of a tile beside each other are a row of twice the length."""
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    text = bitcast("f32[2,4]{1,0:T(2,2)}", "f32[8]{0}")
    check(text, [x], np.array([0, 1, 4, 5, 2, 3, 6, 7], np.float32))
    text = bitcast("f32[8]{0}", "f32[2,4]{1,0:T(2,2)}")
    check(text, [x.reshape(-1)], np.array([[0, 1, 4, 5], [2, 3, 6, 7]], np.float32))
    text = bitcast("f32[2,4]{1,0:T(2,2)}", "s32[2,4]{0,1:T(2,2)}")
    check(text, [x], np.array([[0, 4, 2, 6], [1, 5, 3, 7]], np.float32).view(np.int32))


def test_equal_tiles_keep_what_is_where() -> None:
    """Padding and the memory space play no part."""
    x = np.arange(6, dtype=np.int32)
    check(bitcast("s32[6]{0:T(128)}", "s32[6]{0:T(128)S(1)}"), [x], x)
    check(bitcast("s32[]{:T(128)}", "s32[1]{0:T(128)}"), [x[3].reshape(())], x[3:4])


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (
            "f32[8,128]{1,0}",
            "f32[128,8]{1,0:T(8,128)}",
            "lie in the padding of the operand's tiles",
        ),
        ("f32[3,3]{1,0:T(2,2)}", "f32[3,3]{1,0}", "lie in the padding of the operand's tiles"),
        ("f32[4]{0:T(4)}", "u16[8]{0:T(8)}", "tiles of elements of different widths"),
        ("f32[4]{0:T(0)}", "f32[4]{0}", "(0) is not a tile"),
        ("f32[4]{0:T(2)}", "f32[4]{0:T(4)(2,*)}", "(2,*) is not a tile"),
    ],
)
def test_bitcasts_that_read_padding_are_refused(source: str, target: str, reason: str) -> None:
    """Before anything runs, with name and line."""
    with pytest.raises(UnsupportedError) as error:
        hloopt.compile(hloopt.parse(bitcast(source, target)))
    assert error.value.message == f"r: bitcast of {source} to {target}: " + (
        f"elements of the result {reason}" if "padding" in reason else reason
    )
    assert error.value.line == 5
