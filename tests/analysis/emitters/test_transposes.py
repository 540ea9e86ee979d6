"""Transpose kernels: tiles, vectors, and threads that together move every element once."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import hloopt
from hloopt.analysis.emitters.transposes import TransposeOptions, TransposeTiling, transpose_tiling
from hloopt.analysis.transpose import PackedTile, TiledTranspose, packed_tile, tiled_transpose
from hloopt.targets import Target


def _form(dtype: str, operand: tuple[int, ...], permutation: tuple[int, ...]) -> TiledTranspose:
    """The normal form of a transpose that a tiled kernel is for."""
    result = tuple(operand[source] for source in permutation)
    left, right, order = (",".join(map(str, numbers)) for numbers in (operand, result, permutation))
    text = (
        f"HloModule m\nENTRY e {{\np = {dtype}[{left}] parameter(0)\n"
        f"ROOT t = {dtype}[{right}] transpose(p), dimensions={{{order}}}\n}}\n"
    )
    form = tiled_transpose(hloopt.parse(text).entry.root)
    assert form is not None
    return form


def _move(tiling: TransposeTiling, values: np.ndarray) -> np.ndarray:
    """The transpose as threads do it, through shared memory; NaN where nothing was written, twice fails."""
    result = np.full([tiling.dims[source] for source in tiling.permutation], np.nan)
    for block in product(*map(range, tiling.counts)):
        start = [at * side for at, side in zip(block, tiling.tile, strict=True)]
        shared = np.full(tiling.shared, np.nan)
        mover = _packed_block if tiling.form == "packed" else _classic_block
        mover(tiling, start, shared, values, result)
    return result


def _put(result: np.ndarray, tiling: TransposeTiling, place: list[int], value: float) -> None:
    at = tuple(place[source] for source in tiling.permutation)
    assert np.isnan(result[at]), f"{at} is written twice"
    assert not np.isnan(value)
    result[at] = value


def _inside(tiling: TransposeTiling, place: list[int]) -> bool:
    return all(at < size for at, size in zip(place, tiling.dims, strict=True))


def _classic_block(
    tiling: TransposeTiling,
    start: list[int],
    shared: np.ndarray,
    values: np.ndarray,
    result: np.ndarray,
) -> None:
    sides = tiling.tile
    order = tiling.permutation
    output_sides = tuple(sides[source] for source in order)
    total = int(np.prod(sides))
    for reading in (True, False):
        for s, t, v in product(range(tiling.steps), range(tiling.threads), range(tiling.vector)):
            linear = (s * tiling.threads + t) * tiling.vector + v
            if linear >= total:
                continue
            if reading:
                within = list(map(int, np.unravel_index(linear, sides)))
            else:
                moved = list(map(int, np.unravel_index(linear, output_sides)))
                within = [0] * len(sides)
                for at, source in zip(moved, order, strict=True):
                    within[source] = at
            place = [base + at for base, at in zip(start, within, strict=True)]
            if not _inside(tiling, place):
                continue
            slot: tuple[int, ...] = (within[tiling.row], within[tiling.column])
            if tiling.form == "minor-kept":
                slot = (*slot, within[-1])
            if reading:
                shared[slot] = values[tuple(place)]
            else:
                _put(result, tiling, place, shared[slot])


def _packed_block(
    tiling: TransposeTiling,
    start: list[int],
    shared: np.ndarray,
    values: np.ndarray,
    result: np.ndarray,
) -> None:
    groups, vector = tiling.threads // 32, tiling.vector

    def place(row: int, column: int) -> list[int]:
        outer, inner = divmod(column, tiling.tile[tiling.column])
        at = list(start)
        at[tiling.row] += row
        at[tiling.column] += inner
        if tiling.outer >= 0:
            at[tiling.outer] += outer
        return at

    for s, g, lane, v in product(range(tiling.steps), range(groups), range(32), range(vector)):
        row, column = s * groups + g, lane * vector + v
        if row < tiling.rows and column < tiling.columns and _inside(tiling, place(row, column)):
            shared[row, tiling.swizzle(row, column)] = values[tuple(place(row, column))]
    for s, g, lane, i, j in product(
        range(tiling.write_steps), range(groups), range(32), range(vector), range(vector)
    ):
        row, column = lane * vector + i, (s * groups + g) * vector + j
        if row < tiling.rows and column < tiling.columns and _inside(tiling, place(row, column)):
            held = shared[row, tiling.swizzle(row, column)]
            _put(result, tiling, place(row, column), held)


@pytest.mark.parametrize(
    ("dtype", "operand", "permutation", "expected"),
    [
        ("f32", (40, 70), (1, 0), "classic"),
        ("f32", (2, 33, 3, 40), (0, 3, 2, 1), "classic"),
        ("bf16", (40, 70), (1, 0), "packed"),
        ("bf16", (3, 34, 2, 30), (0, 3, 2, 1), "packed"),
        ("s8", (44, 2, 22), (2, 1, 0), "packed"),
        ("s16", (3, 20, 4, 12), (3, 0, 2, 1), "packed"),
        ("s8", (130, 140), (1, 0), "classic"),  # 130 mod 128 is no multiple of 4
        ("s8", (132, 140), (1, 0), "packed"),
        ("s16", (80, 3, 37), (2, 1, 0), "classic"),  # 37 columns are odd
        ("f32", (36, 40, 2), (1, 0, 2), "minor-kept"),
        ("s8", (36, 2, 40, 5), (2, 1, 0, 3), "minor-kept"),
    ],
)
def test_every_element_is_moved_once(
    h200: Target, dtype: str, operand: tuple[int, ...], permutation: tuple[int, ...], expected: str
) -> None:
    """Threads, steps and vectors cover the operand and the result, in tiles that stick out too."""
    form = _form(dtype, operand, permutation)
    bits = {"f32": 32, "bf16": 16, "s16": 16, "s8": 8}[dtype]
    tiling = transpose_tiling(form, [bits], h200)
    assert tiling.form == expected
    values = np.arange(np.prod(tiling.dims), dtype=float).reshape(tiling.dims)
    assert (_move(tiling, values) == values.transpose(form.permutation)).all()


@pytest.mark.parametrize("vector", [1, 2, 4])
def test_classic_vectors_cover_too(h200: Target, vector: int) -> None:
    """A tile of 32 times the vector on both sides, in the same number of steps for each vector."""
    form = _form("f32", (136, 72), (1, 0))
    small = Target(**{**vars(h200), "cores": 0, "shared_per_block": 1 << 30})
    tiling = transpose_tiling(form, [32], small, TransposeOptions(vector_bytes=4 * vector))
    assert (tiling.vector, tiling.tile) == (vector, (32 * vector, 32 * vector))
    assert tiling.steps == 8 * vector
    values = np.arange(np.prod(tiling.dims), dtype=float).reshape(tiling.dims)
    assert (_move(tiling, values) == values.T).all()


def test_classic_tiling(h200: Target) -> None:
    """128 threads move 32 by 32 elements; the tile in shared memory has a column of padding."""
    tiling = transpose_tiling(_form("f32", (5, 100, 200), (0, 2, 1)), [32], h200)
    assert (tiling.tile, tiling.counts, tiling.threads) == ((1, 32, 32), (5, 4, 7), 128)
    assert (tiling.row, tiling.column, tiling.vector) == (1, 2, 1)
    assert tiling.shared == (32, 33)
    assert tiling.shared_bytes([32]) == 4224
    assert tiling.shared_bytes([32, 64]) == 4224 * 3
    assert tiling.launch(h200).grid == (140, 1, 1)


@pytest.mark.parametrize(
    ("operand", "vector"),
    [
        # 132 cores of 2048 threads: 4 * 270336 threads want 8448 blocks of 128
        ((4224 * 32, 34), 2),
        ((4223 * 32, 34), 1),
        ((4224 * 32 + 1, 34), 1),  # odd
        ((4224 * 32, 35), 1),
    ],
)
def test_classic_vectors_need_work(h200: Target, operand: tuple[int, int], vector: int) -> None:
    """Two elements at once only where blocks for every core remain, and both dimensions divide."""
    form = TiledTranspose(operand[::-1], (1, 0), 0)
    options = TransposeOptions(vector_bytes=8)
    assert transpose_tiling(form, [32], h200, options).vector == vector


def test_classic_vectors_need_shared_memory(h200: Target) -> None:
    """A tile of four times the size has to fit into a block's memory."""
    form = TiledTranspose((1 << 14, 1 << 14), (1, 0), 0)
    options = TransposeOptions(vector_bytes=8)
    for room, vector in ((4 * 4224, 2), (4 * 4224 - 1, 1)):
        device = Target(**{**vars(h200), "shared_per_block": room})
        assert transpose_tiling(form, [32], device, options).vector == vector


def test_elements_of_four_bytes_move_singly(h200: Target) -> None:
    """By default a thread moves 4 bytes at once."""
    form = TiledTranspose((1 << 14, 1 << 14), (1, 0), 0)
    assert transpose_tiling(form, [32], h200).vector == 1


def test_narrow_elements_move_by_four_bytes(h200: Target) -> None:
    """Where a column of 20 bytes is too short to be packed."""
    for bits, vector in ((8, 4), (16, 2)):
        form = TiledTranspose((16, 1 << 22), (1, 0), 0)
        assert packed_tile(form, bits) is None
        assert transpose_tiling(form, [bits], h200).vector == vector
    wide = TiledTranspose((18, 1 << 22), (1, 0), 0)
    assert transpose_tiling(wide, [8], h200).vector == 2


def test_minor_kept_tiling(h200: Target) -> None:
    """The whole minor dimension travels with the second minor one."""
    tiling = transpose_tiling(_form("bf16", (40, 3, 50, 4), (2, 1, 0, 3)), [16], h200)
    assert (tiling.form, tiling.tile, tiling.vector) == ("minor-kept", (32, 1, 32, 4), 4)
    assert (tiling.row, tiling.column, tiling.counts) == (0, 2, (2, 3, 2, 1))
    assert tiling.shared_bytes([16]) == 32 * 33 * 4 * 2
    assert tiling.steps == 8


@pytest.mark.parametrize(
    ("bits", "operand", "permutation", "expected"),
    [
        (16, (20, 20), (1, 0), PackedTile(2, 20, 1, 20)),
        (16, (18, 20), (1, 0), None),  # 10 vectors of 2 at least
        (16, (20, 19), (1, 0), None),
        (16, (200, 100), (1, 0), PackedTile(2, 64, 1, 64)),
        (8, (40, 40), (1, 0), PackedTile(4, 40, 1, 40)),
        (8, (36, 40), (1, 0), None),
        (8, (42, 40), (1, 0), None),  # rows are no multiple of 4
        (8, (128 + 40, 40), (1, 0), PackedTile(4, 128, 1, 40)),
        (8, (128 + 42, 40), (1, 0), None),  # nor is the last tile
        (8, (40, 128 + 42), (1, 0), PackedTile(4, 40, 1, 128)),  # columns may end anywhere
        (32, (100, 100), (1, 0), None),
        # the dimension before the minor one stays: it fills up short columns
        (16, (64, 8, 12), (2, 1, 0), PackedTile(2, 64, 5, 12)),
        (16, (64, 1, 12), (2, 1, 0), None),
        # it fills up columns of the operand, not of the result
        (16, (12, 8, 64), (2, 1, 0), None),
        # where it moves it is not part of the tile
        (16, (30, 3, 24, 40), (1, 3, 0, 2), PackedTile(2, 24, 1, 40)),
        (16, (3, 30, 3, 40), (3, 2, 0, 1), PackedTile(2, 30, 1, 40)),
        (16, (3, 30, 3, 12), (3, 2, 0, 1), None),
        # it may stay though the others are not beside it
        (16, (5, 30, 8, 12), (3, 0, 2, 1), PackedTile(2, 30, 5, 12)),
        (16, (64, 64, 2), (1, 0, 2), None),
    ],
)
def test_packed_tile(
    bits: int,
    operand: tuple[int, ...],
    permutation: tuple[int, ...],
    expected: PackedTile | None,
) -> None:
    """Rows along the result's minor dimension, columns along the operand's, each at least 10 vectors."""
    dims = tuple(operand[source] for source in permutation)
    got = packed_tile(TiledTranspose(dims, permutation, 0), bits)
    assert got == expected


def test_packed_tiling(h200: Target) -> None:
    """A square of 32 banks of 4 bytes, whatever the width of elements."""
    tiling = transpose_tiling(_form("s8", (300, 2, 40), (2, 1, 0)), [8], h200)
    assert (tiling.form, tiling.tile, tiling.outer) == ("packed", (128, 2, 40), 1)
    assert (tiling.rows, tiling.columns, tiling.vector) == (128, 80, 4)
    assert (tiling.steps, tiling.write_steps) == (32, 5)
    assert tiling.counts == (3, 1, 1)
    assert tiling.shared_bytes([8]) == 16384


def test_packed_tiles_have_no_bank_conflicts(h200: Target) -> None:
    """The lanes of a group are on 32 different banks, both while filling and while emptying."""
    for bits in (8, 16):
        tiling = transpose_tiling(TiledTranspose((512, 512), (1, 0), 0), [bits], h200)
        vector = tiling.vector
        for fixed in range(0, 32 * vector, vector):
            for across in (True, False):
                places = [
                    (fixed, lane * vector) if across else (lane * vector, fixed)
                    for lane in range(32)
                ]
                banks = {tiling.swizzle(*place) // vector for place in places}
                assert len(banks) == 32


def test_heroes_of_several_widths_are_not_packed(h200: Target) -> None:
    """One vector cannot serve elements of 8 and of 16 bits."""
    form = TiledTranspose((512, 512), (1, 0), 0)
    assert transpose_tiling(form, [8, 8], h200).form == "packed"
    assert transpose_tiling(form, [8, 16], h200).form == "classic"
