"""Reduction kernels: the sizes of XLA's rules, and threads that together read every element once."""

from __future__ import annotations

from itertools import product
from math import isqrt

import numpy as np
import pytest

from hloopt.analysis.emitters.reductions import (
    ReductionTiling,
    Widths,
    column_tiling,
    multi_row_tiling,
    reduction_tiling,
    row_tiling,
    small_column_tiling,
    vector_size,
)
from hloopt.analysis.emitters.tree_split import (
    TreeOptions,
    TreeSplit,
    race_free_bound,
    tree_split,
)
from hloopt.analysis.reduction import ReductionDims
from hloopt.targets import Target

F32 = Widths(32, 32)
BF16 = Widths(16, 16)
S8 = Widths(8, 8)


@pytest.mark.parametrize(
    ("minor", "threads", "widths", "expected"),
    [
        (63, 8, F32, 1),  # odd
        (63, 8, S8, 1),
        (62, 32, F32, 1),  # 64 lanes' worth of pairs, 62 elements
        (64, 32, F32, 2),
        (64, 32, Widths(64, 32), 1),
        (64, 32, Widths(63, 32), 2),
        (64, 32, Widths(32, 64), 2),  # only inputs count
        (64, 32, Widths(32, 32, is_complex=True), 1),
        (64, 32, Widths(None, 32), 1),
        (126, 32, BF16, 2),  # 4 * 32 > 126
        (128, 32, BF16, 4),
        (130, 32, BF16, 2),  # no multiple of 4
        (128, 32, Widths(31, 32), 4),
    ],
)
def test_vector_size(minor: int, threads: int, widths: Widths, expected: int) -> None:
    """Vectors need even sizes, work for every thread, and narrow elements."""
    assert vector_size(minor, threads, widths) == expected


@pytest.mark.parametrize(
    ("dims", "widths", "threads", "blocks", "per_thread", "shared"),
    [
        # 1000 elements: ceil(1000/16) = 63 -> 64 threads; 4 rows a block; pairs; 500/64 -> 8 of them
        ((1, 1000, 1000), F32, (4, 64), (250, 1), (1, 8, 2), (4, 2, 0)),
        # one warp a row: no shared memory
        ((1, 100, 512), F32, (8, 32), (13, 1), (1, 8, 2), (0, 0, 0)),
        ((1, 100, 513), F32, (4, 64), (25, 1), (1, 9, 1), (4, 2, 0)),
        # few rows: all in one block
        ((1, 3, 512), F32, (3, 32), (1, 1), (1, 8, 2), (0, 0, 0)),
        # 2 * 128 threads reach the aim of 256, 2 * 160 pass it
        ((1, 100, 2048), F32, (2, 128), (50, 1), (1, 8, 2), (2, 4, 0)),
        ((1, 100, 2049), F32, (1, 160), (100, 1), (1, 13, 1), (1, 5, 0)),
        # the longest race-free row: 1024 threads of 16 elements, padded shared row
        ((8, 2, 16384), F32, (1, 1024), (2, 1), (8, 8, 2), (1, 32, 1)),
        ((1, 2, 16384), BF16, (1, 1024), (2, 1), (1, 4, 4), (1, 32, 1)),
        ((1, 2, 16384), Widths(64, 64), (1, 1024), (2, 1), (1, 16, 1), (1, 32, 1)),
    ],
)
def test_row_tiling(
    dims: tuple[int, int, int],
    widths: Widths,
    threads: tuple[int, int],
    blocks: tuple[int, int],
    per_thread: tuple[int, int, int],
    shared: tuple[int, int, int],
) -> None:
    """Up to 16 elements a thread; short rows share a block of 256 threads."""
    tiling = row_tiling(dims, widths)
    assert tiling.form == "row"
    assert (tiling.threads, tiling.blocks) == (threads, blocks)
    assert (tiling.per_thread, tiling.shared) == (per_thread, shared)
    assert tiling.distance == 16


@pytest.mark.parametrize(
    ("dims", "widths", "threads", "blocks", "vector"),
    [
        ((1, 100_000, 32), F32, (16, 16), 6250, 2),
        ((1, 100_000, 64), F32, (8, 32), 12500, 2),
        ((1, 100_000, 128), BF16, (8, 32), 12500, 4),
        ((1, 100_000, 2), F32, (256, 1), 391, 2),
        ((1, 100_000, 1), F32, (256, 1), 391, 1),
        ((4, 100_000, 8), F32, (64, 4), 1563, 2),
        ((1, 100_000, 32), Widths(8, 64), (16, 16), 6250, 2),  # 64/8 = 8, but 128/64 = 2
        ((1, 100_000, 32), Widths(8, 8), (64, 4), 1563, 8),
        ((1, 100_000, 32), Widths(8, 32), (32, 8), 3125, 4),  # 128/32
        ((1, 100_000, 32), Widths(8, 16), (64, 4), 1563, 8),
        ((1, 100_000, 32), Widths(None, 16), (32, 8), 3125, 4),
        # 132 cores want 132 blocks: 132 * 16 rows of 16 threads have them, one row less has not
        ((1, 131 * 16 + 1, 32), F32, (16, 16), 132, 2),
        ((1, 131 * 16, 32), F32, (8, 32), 262, 1),
        ((1, 8, 4), F32, (8, 4), 1, 1),
    ],
)
def test_multi_row_tiling(
    h200: Target,
    dims: tuple[int, int, int],
    widths: Widths,
    threads: tuple[int, int],
    blocks: int,
    vector: int,
) -> None:
    """Several rows a warp; vectors shrink while cores would have no block."""
    tiling = multi_row_tiling(dims, widths, h200)
    assert tiling is not None
    assert (tiling.threads, tiling.block_count, tiling.vector) == (threads, blocks, vector)
    assert tiling.distance == threads[1] // 2
    assert tiling.shared_elements == 0


@pytest.mark.parametrize(
    ("dims", "widths"),
    [
        ((1, 100_000, 24), F32),  # no power of two
        ((1, 100_000, 128), F32),  # more than 32 pairs
        ((1, 100, 64), F32),  # pairs are given up for blocks, and then 64 lanes are too many
        ((1, 100_000, 0), F32),
    ],
)
def test_rows_that_do_not_fit_into_a_warp(
    h200: Target, dims: tuple[int, int, int], widths: Widths
) -> None:
    """Such rows get a kernel of whole warps."""
    assert multi_row_tiling(dims, widths, h200) is None


@pytest.mark.parametrize(
    ("dims", "widths", "blocks", "per_thread", "shared"),
    [
        ((1, 1000, 1000), F32, (1, 16), (1, 32, 2), (32, 64, 1)),
        ((1, 1024, 1001), F32, (1, 32), (1, 32, 1), (32, 32, 1)),
        ((3, 1025, 128), BF16, (3, 1), (1, 33, 4), (32, 128, 1)),
        ((3, 4096, 33), F32, (3, 2), (1, 128, 1), (32, 32, 1)),
    ],
)
def test_column_tiling(
    dims: tuple[int, int, int],
    widths: Widths,
    blocks: tuple[int, int],
    per_thread: tuple[int, int, int],
    shared: tuple[int, int, int],
) -> None:
    """32 warps of 32 lanes; the tile in shared memory has a column of padding."""
    tiling = column_tiling(dims, widths)
    assert tiling.threads_per_block == 1024
    assert (tiling.blocks, tiling.per_thread, tiling.shared) == (blocks, per_thread, shared)
    assert tiling.distance == 16
    assert tiling.shared_bytes([32]) == 32 * (shared[1] + 1) * 4
    assert tiling.shared_bytes([32, 8]) == 32 * (shared[1] + 1) * 5


@pytest.mark.parametrize(
    ("minor", "widths", "threads", "vector", "shared"),
    [
        (32, F32, 128, 2, (8, 32, 1)),
        (16, F32, 128, 2, (16, 16, 1)),
        (8, F32, 128, 2, (32, 8, 1)),
        (4, F32, 128, 1, (32, 4, 1)),  # 64 rows: single elements instead of pairs
        (2, F32, 64, 1, (32, 2, 1)),  # then fewer threads
        (1, F32, 32, 1, (32, 1, 0)),  # one warp of single elements needs no padding
        (32, BF16, 128, 4, (16, 32, 1)),
        (16, BF16, 128, 4, (32, 16, 1)),
        (8, BF16, 128, 2, (32, 8, 1)),
    ],
)
def test_small_column_tiling(
    minor: int, widths: Widths, threads: int, vector: int, shared: tuple[int, int, int]
) -> None:
    """At most 32 rows of shared memory, one shuffle tree for each column."""
    tiling = small_column_tiling((5, 1024, minor), widths)
    assert tiling.blocks == (5, 1)
    assert (tiling.threads, tiling.vector, tiling.shared) == ((1, threads), vector, shared)
    assert tiling.distance == shared[0] // 2
    assert tiling.per_thread[1] == -(-1024 * minor // (threads * vector))


@pytest.mark.parametrize("minor", [0, 3, 33, 64])
def test_a_minor_dimension_that_does_not_divide_a_warp_is_refused(minor: int) -> None:
    """Threads would not keep their columns."""
    with pytest.raises(ValueError, match="does not divide a warp"):
        small_column_tiling((1, 1024, minor), F32)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (ReductionDims(True, (1, 100_000, 32)), "multi-row"),
        (ReductionDims(True, (1, 100_000, 33)), "row"),
        (ReductionDims(False, (1, 1000, 32)), "small-column"),
        (ReductionDims(False, (1, 1000, 31)), "column"),
        (ReductionDims(False, (1, 1000, 33)), "column"),
        (ReductionDims(False, (1, 1000, 1)), "small-column"),
    ],
)
def test_which_kernel(h200: Target, form: ReductionDims, expected: str) -> None:
    """Several rows a warp before one; small columns where they divide a warp."""
    assert reduction_tiling(form, F32, h200).form == expected


def test_nothing_to_reduce_is_refused(h200: Target) -> None:
    """A dimension of size 0 has no tiling."""
    with pytest.raises(ValueError, match="no elements"):
        reduction_tiling(ReductionDims(False, (4, 0, 32)), F32, h200)


def test_a_group_has_its_own_z(h200: Target) -> None:
    """Blocks of a group are those of one reduction; z counts groups."""
    launch = row_tiling((1, 1000, 1000), F32).launch(h200, groups=3)
    assert (launch.grid, launch.block) == ((250, 1, 3), (256, 1, 1))
    assert row_tiling((1, 1000, 1000), F32).launch(h200).grid == (250, 1, 1)


# What the threads of each form read, as the docstring of ReductionTiling says it.


def _reads(tiling: ReductionTiling) -> np.ndarray:
    """How often each element of ``dims`` is read."""
    counts = np.zeros(tiling.dims, int)
    threads = np.arange(tiling.threads_per_block)
    high, low = threads // tiling.threads[1], threads % tiling.threads[1]
    steps = [range(size) for size in tiling.per_thread]
    vector = tiling.vector
    for b0, b1 in product(*map(range, tiling.blocks)):
        for s0, s1, v in product(*steps):
            if tiling.form == "row":
                minor = ((b1 * tiling.per_thread[1] + s1) * tiling.threads[1] + low) * vector + v
                place = (s0, b0 * tiling.threads[0] + high, minor)
            elif tiling.form == "multi-row":
                place = (s0, b0 * tiling.threads[0] + high, low * vector + v)
            elif tiling.form == "column":
                minor = (b1 * tiling.threads[1] + low) * vector + v
                place = (b0, high + tiling.threads[0] * s1, minor)
            else:
                linear = (s1 * tiling.threads[1] + threads) * vector + v
                place = (b0, linear // tiling.dims[2], linear % tiling.dims[2])
            indices = [np.broadcast_to(part, threads.shape) for part in place]
            inside = np.all(
                [i < size for i, size in zip(indices, tiling.dims, strict=True)], axis=0
            )
            np.add.at(counts, tuple(part[inside] for part in indices), 1)
    return counts


_SIZES = [1, 2, 3, 8, 31, 32, 33, 64, 100]


@pytest.mark.parametrize("widths", [F32, BF16, Widths(64, 64), S8])
def test_every_element_is_read_once(h200: Target, widths: Widths) -> None:
    """In all four kernels, for sizes on both sides of the warp's."""
    seen = set()
    for is_row, major, middle, minor in product([True, False], [1, 3], _SIZES, _SIZES):
        form = ReductionDims(is_row, (major, middle, minor))
        tiling = reduction_tiling(form, widths, h200)
        seen.add(tiling.form)
        assert (_reads(tiling) == 1).all(), tiling
    assert seen == {"row", "multi-row", "column", "small-column"}


def test_vectors_are_aligned() -> None:
    """A vector never crosses the end of its row, so no guard is needed inside one."""
    for minor in range(1, 600):
        for widths in (F32, BF16, S8):
            assert minor % row_tiling((1, 7, minor), widths).vector == 0
            assert minor % column_tiling((1, 7, minor), widths).vector == 0
            if 32 % minor == 0:
                tiling = small_column_tiling((1, 7, minor), widths)
                assert 7 * minor % tiling.vector == 0


def _column_sums(tiling: ReductionTiling, values: np.ndarray) -> np.ndarray:
    """A column kernel with its turn through shared memory and its tree of shuffles."""
    lanes, vector = tiling.threads[1], tiling.vector
    result = np.zeros((tiling.dims[0], tiling.dims[2]))
    for b0, b1 in product(*map(range, tiling.blocks)):
        shared = np.zeros((lanes, lanes * vector + 1))
        for warp, lane, v in product(range(lanes), range(lanes), range(vector)):
            column = (b1 * lanes + lane) * vector + v
            if column < tiling.dims[2]:
                shared[lane, warp * vector + v] = values[b0, warp::lanes, column].sum()
        for warp, v in product(range(lanes), range(vector)):
            held = shared[warp, np.arange(lanes) * vector + v]
            column = (b1 * lanes + warp) * vector + v
            if column < tiling.dims[2]:
                result[b0, column] = held.sum()
    return result


@pytest.mark.parametrize("dims", [(2, 70, 40), (1, 32, 128), (1, 100, 33)])
def test_columns_turn_in_shared_memory(dims: tuple[int, int, int]) -> None:
    """Written by lane, read by warp: each warp then holds all partial sums of its columns."""
    values = np.random.default_rng(0).standard_normal(dims)
    got = _column_sums(column_tiling(dims, F32), values)
    np.testing.assert_allclose(got, values.sum(1))


@pytest.mark.parametrize("minor", [1, 2, 4, 8, 16, 32])
def test_small_columns_turn_in_shared_memory(minor: int) -> None:
    """Rows of shared memory hold each thread's columns; reading goes down them, ``rows`` lanes a column."""
    dims = (1, 77, minor)
    tiling = small_column_tiling(dims, F32)
    values = np.random.default_rng(0).standard_normal(dims)
    flat = values.ravel()
    count, vector, (rows, columns, padding) = tiling.threads[1], tiling.vector, tiling.shared
    shared = np.full((rows, columns + padding), np.nan)
    for t, v in product(range(count), range(vector)):
        places = (np.arange(tiling.per_thread[1]) * count + t) * vector + v
        at = t * vector + v
        shared[at // columns, at % columns] = flat[places[places < flat.size]].sum()
    got = np.full(minor, np.nan)
    for v in range(vector):
        for first in range(0, count, rows):  # lanes first .. first + rows - 1 share a column
            column = (first + v * count) // rows
            got[column] = shared[np.arange(rows), column].sum()
    assert rows <= 32
    np.testing.assert_allclose(got, values[0].sum(0))


# Trees.


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (ReductionDims(True, (1, 5, 16384)), None),
        (ReductionDims(True, (8, 5, 16384)), None),
        (ReductionDims(True, (9, 5, 64)), TreeSplit(9, 64, is_batch=True)),
        (ReductionDims(True, (9, 5, 99_999)), TreeSplit(9, 99_999, is_batch=True)),
        (ReductionDims(False, (1, 4096, 64)), None),
    ],
)
def test_tree_split_boundaries(form: ReductionDims, expected: TreeSplit | None) -> None:
    """16384 elements of a row, 8 rows of a batch and 4096 of a column need no second pass."""
    assert tree_split(form) == expected


@pytest.mark.parametrize(
    "form", [ReductionDims(True, (1, 5, 16385)), ReductionDims(False, (1, 4097, 64))]
)
def test_one_element_more_is_split(form: ReductionDims) -> None:
    """The bounds are the last sizes that are left whole."""
    split = tree_split(form)
    assert split is not None
    assert not split.is_batch


def _by_definition(form: ReductionDims) -> tuple[int, int, int]:
    """(inner before a swap, outer, padding): the least padding, then the last power of two, then the largest."""
    size = form.dims[2] if form.is_row else form.dims[1]
    start = min(isqrt(size), race_free_bound(form))
    candidates = range(start // 2 + 1, start + 1)
    least = min(-size % inner for inner in candidates)
    best = [inner for inner in candidates if -size % inner == least]
    powers = [inner for inner in best if inner & (inner - 1) == 0 and inner < start]
    inner = powers[-1] if powers else best[-1]
    return inner, (size + least) // inner, least


@pytest.mark.parametrize("is_row", [True, False])
def test_tree_sizes(is_row: bool) -> None:
    """Near the square root with the least padding, a power of two preferred; nothing is lost."""
    for size in [*range(16385, 16500), 65536, 99_991, 1_000_000, 1 << 24, (1 << 24) + 1, 1 << 30]:
        form = ReductionDims(is_row, (1, 3, size) if is_row else (1, size, 3))
        split = tree_split(form)
        assert split is not None
        assert split.inner * split.outer == size + split.padding
        inner, outer, padding = _by_definition(form)
        assert split.padding == padding
        assert {split.inner, split.outer} == {inner, outer}


@pytest.mark.parametrize(
    ("form", "inner", "outer"),
    [
        # columns: the longer part first whenever it fits
        (ReductionDims(False, (1, 1 << 15, 8)), 256, 128),
        # 2^25 = 8192 * 4096 with both at most isqrt = 5792: 4096; 8192 > 4096 stays outside
        (ReductionDims(False, (1, 1 << 25, 8)), 4096, 8192),
        # rows: both even, the longer even as well
        (ReductionDims(True, (1, 3, 1 << 15)), 256, 128),
        # 18432 = 2^11 * 9: isqrt 135, 128 * 144: even
        (ReductionDims(True, (1, 3, 18432)), 144, 128),
        # 16512 = 128 * 129: pairs fit into the shorter part only
        (ReductionDims(True, (1, 3, 16512)), 128, 129),
        # 16510 = 127 * 130: they fit into neither row of 127
        (ReductionDims(True, (1, 3, 16510)), 130, 127),
        # odd size: 16641 = 129 * 129; the outer part is odd
        (ReductionDims(True, (1, 3, 16641)), 129, 129),
    ],
)
def test_which_part_is_reduced_first(form: ReductionDims, inner: int, outer: int) -> None:
    """The longer one, where it fits into a block and a row keeps its vectors."""
    assert tree_split(form) == TreeSplit(outer, inner)


def test_an_odd_row_is_not_turned_over_to_an_even_part() -> None:
    """size and the shorter part not both even, size odd: swapped only where the longer part is odd."""
    kept = []
    for size in range(16385, 20000, 2):
        split = tree_split(ReductionDims(True, (1, 1, size)))
        assert split is not None
        longer = max(split.inner, split.outer)
        if split.inner != split.outer:
            assert (split.inner == longer) == (longer % 2 == 1)
            kept.append(longer % 2)
    assert set(kept) == {0, 1}


def test_tree_options() -> None:
    """A lower bound splits sooner."""
    form = ReductionDims(False, (1, 100, 8))
    assert tree_split(form) is None
    assert tree_split(form, TreeOptions(column_elements=64)) == TreeSplit(10, 10)
