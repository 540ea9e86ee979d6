"""Dots as products of matrices: every arrangement of dimensions and layouts that has one, by plain addresses."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from hloopt.analysis.gemm import Gemm, Matrix, gemm_of
from hloopt.types import ArrayShape, DotDims, Layout, dtype

F64 = dtype("f64")


def shaped(dims: list[int], order: list[int]) -> ArrayShape:
    """An array whose dimensions lie in memory in an order, fastest first."""
    return ArrayShape(F64, tuple(dims), Layout(tuple(order)))


def memory(array: np.ndarray, shape: ArrayShape) -> np.ndarray:
    """The elements in the order in which they lie."""
    assert shape.layout is not None
    return array.transpose(tuple(reversed(shape.layout.minor_to_major))).reshape(-1).copy()


def matrix(flat: np.ndarray, start: int, rows: int, columns: int, what: Matrix) -> np.ndarray:
    """What BLAS reads: columns ``leading`` apart, or rows where it is transposed."""
    height, width = (columns, rows) if what.transposed else (rows, columns)
    assert what.leading >= max(1, height), "BLAS refuses such a leading dimension"
    last = start + (width - 1) * what.leading + height
    assert last <= len(flat), "read or written behind the end"
    places = start + np.arange(height)[:, None] + what.leading * np.arange(width)[None, :]
    return places.T if what.transposed else places


def multiplied(gemm: Gemm, lhs: np.ndarray, rhs: np.ndarray, size: int) -> np.ndarray:
    """The result's memory; every element is written exactly once."""
    left, right = (rhs, lhs) if gemm.swapped else (lhs, rhs)
    out, written = np.full(size, np.nan), np.zeros(size, int)
    for first, second, third in gemm.offsets:
        for number in range(gemm.batch):
            a = matrix(left, first + number * gemm.left.batch, gemm.rows, gemm.depth, gemm.left)
            b = matrix(
                right, second + number * gemm.right.batch, gemm.depth, gemm.columns, gemm.right
            )
            c = matrix(out, third + number * gemm.out.batch, gemm.rows, gemm.columns, gemm.out)
            out[c] = left[a] @ right[b]
            written[c] += 1
    assert (written == 1).all()
    return out


def arrangement(draw: random.Random) -> tuple[ArrayShape, ArrayShape, ArrayShape, DotDims, str]:
    """A dot with up to two dimensions of each kind, in any order, in any layout; and its einsum."""
    letters = iter("abcdefghij")
    kinds = {kind: [next(letters) for _ in range(draw.choice([0, 1, 1, 2]))] for kind in "bmnk"}
    sizes = {name: draw.choice([1, 2, 3, 4]) for group in kinds.values() for name in group}
    left, right = kinds["b"] + kinds["m"] + kinds["k"], kinds["b"] + kinds["n"] + kinds["k"]
    draw.shuffle(left)
    draw.shuffle(right)
    rows = [name for name in left if name in kinds["m"]]
    columns = [name for name in right if name in kinds["n"]]
    result = [*kinds["b"], *rows, *columns]
    dims = DotDims(
        tuple(left.index(name) for name in kinds["k"]),
        tuple(right.index(name) for name in kinds["k"]),
        tuple(left.index(name) for name in kinds["b"]),
        tuple(right.index(name) for name in kinds["b"]),
    )
    shapes = []
    for names in (left, right, result):
        order = list(reversed(range(len(names))))
        if draw.random() < 0.5:
            draw.shuffle(order)
        shapes.append(shaped([sizes[name] for name in names], order))
    text = f"{''.join(left)},{''.join(right)}->{''.join(result)}"
    return shapes[0], shapes[1], shapes[2], dims, text


def test_what_is_a_product_is_the_right_one(rng: np.random.Generator) -> None:
    """Two thousand dots against einsum; most of them are products, and some are refused with a reason."""
    draw, seen = random.Random(7), Counter[str]()
    for _ in range(2000):
        lhs, rhs, out, dims, text = arrangement(draw)
        found = gemm_of(lhs, rhs, out, dims)
        if isinstance(found, str):
            seen[found.lstrip("the 0123456789")] += 1
            continue
        seen["made"] += 1
        seen["swapped" if found.swapped else "not swapped"] += 1
        seen["several calls"] += len(found.offsets) > 1
        seen["batched"] += found.batch > 1
        a, b = rng.integers(-4, 5, lhs.dims), rng.integers(-4, 5, rhs.dims)
        wanted = np.einsum(text, a.astype(float), b.astype(float))
        got = multiplied(
            found, memory(a.astype(float), lhs), memory(b.astype(float), rhs), out.elements
        )
        np.testing.assert_array_equal(got, memory(wanted, out))
    assert seen["made"] > 1000
    refusals = ("contiguous dimension", "contracted dimensions do not lie")
    assert all(any(part in text for text in seen) for part in refusals)
    assert min(seen[kind] for kind in ("swapped", "not swapped", "several calls", "batched")) > 100


@pytest.mark.parametrize(
    ("lhs", "rhs", "out", "calls"),
    [
        ((64, 5, 7, 4), (64, 5, 4, 6), (64, 5, 7, 6), 1),
        ((8, 65, 4), (4, 6), (8, 65, 6), 1),
    ],
)
def test_row_major_dots_are_one_call(
    lhs: tuple[int, ...], rhs: tuple[int, ...], out: tuple[int, ...], calls: int
) -> None:
    """Batch dimensions side by side are one, and so are rows."""
    batch = tuple(range(len(rhs) - 2))
    dims = DotDims((len(lhs) - 1,), (len(rhs) - 2,), batch, batch)
    shapes = [shaped(list(sizes), list(reversed(range(len(sizes))))) for sizes in (lhs, rhs, out)]
    found = gemm_of(shapes[0], shapes[1], shapes[2], dims)
    assert isinstance(found, Gemm)
    assert len(found.offsets) == calls


def test_many_separate_products_are_refused() -> None:
    """Two batch dimensions that do not lie one within the other: one is the call's, the other is too long."""
    lhs = shaped([65, 66, 3, 4], [3, 2, 1, 0])
    rhs = shaped([66, 65, 4, 5], [3, 2, 1, 0])
    out = shaped([65, 66, 3, 5], [3, 2, 1, 0])
    found = gemm_of(lhs, rhs, out, DotDims((3,), (2,), (0, 1), (1, 0)))
    assert found == "65 separate products, at most 64"


def test_sizes_a_library_cannot_count_are_refused() -> None:
    """They are numbers of 32 bits."""
    size = 1 << 31
    found = gemm_of(
        shaped([size, 2], [1, 0]),
        shaped([2, 3], [1, 0]),
        shaped([size, 3], [1, 0]),
        DotDims((1,), (0,), (), ()),
    )
    assert found == "a dimension has 2^31 elements or more"
