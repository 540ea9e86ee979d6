"""Reductions by blocks on the emulator: rows, columns, split, by atomics."""

from __future__ import annotations

import pytest

from tests.codegen.harness import check_kernel
from tests.codegen.reducing import Case, reduces

ROW_SIZES = (
    1,
    2,
    3,
    7,
    16,
    31,
    32,
    33,
    64,
    65,
    100,
    127,
    128,
    255,
    512,
    513,
    1000,
    1024,
    1030,
    2048,
)
KEPT_SIZES = (1, 2, 5, 8, 31, 33)


def _rows() -> list[Case]:
    return [
        Case("f32", (KEPT_SIZES[at % len(KEPT_SIZES)], size), (1,), init="2")
        for at, size in enumerate(ROW_SIZES)
    ]


def _columns() -> list[Case]:
    return [
        Case("f32", (size, kept), (0,), init="2")
        for size, kept in [
            (1, 1), (1, 40), (31, 33), (32, 32), (33, 31), (64, 64), (65, 66), (100, 128), (40, 129),
            (129, 2), (257, 4), (300, 8), (130, 16), (33, 130), (70, 1000),
        ]
    ]  # fmt: skip


def _batched() -> list[Case]:
    """Several dimensions reduced or kept, next to each other and apart."""
    return [
        Case("f32", (3, 5, 40), (0, 2), init="1"),
        Case("f32", (7, 3, 2, 33), (0, 3), init="1"),
        Case("f32", (2, 3, 40, 50), (2, 3), init="1"),
        Case("f32", (1, 6, 1, 70), (3,), init="1"),
        Case("f32", (9, 1, 64), (0, 1, 2), init="1"),
        Case("f32", (3, 40, 36), (1,), init="1"),
        Case("f32", (2, 20, 3, 5), (1, 2), init="1"),
        Case("f32", (4, 33, 4), (1,), init="1"),
        Case("f32", (5, 9, 7, 8), (0, 1), init="1"),
    ]


@pytest.mark.parametrize("kernel", ["row-reduction", "multi-row-reduction"])
def test_rows_of_every_size(kernel: str) -> None:
    """Rows around warps, blocks and vectors are summed with the init value once, nothing read outside."""
    check_kernel(reduces(_rows() + _batched()), kernel)


def test_columns_of_every_size() -> None:
    """Columns around warps, blocks and vectors are summed with the init value once."""
    check_kernel(reduces(_columns() + _batched()), "column-reduction")
    check_kernel(reduces(_columns() + _batched()), "small-column-reduction")


@pytest.mark.parametrize("kernel", ["split-reduction", "atomic-reduction"])
def test_blocks_share_a_result(kernel: str) -> None:
    """Any number of blocks shares rows and columns; scratch or atomics bring their parts together."""
    cases = [
        Case("f32", (40000,), (0,), init="3"),
        Case("f32", (3, 9001), (1,), init="3"),
        Case("f32", (50, 3, 40), (0, 2), init="3"),
        Case("f32", (5000, 8), (0,), init="3"),
        Case("f32", (2, 3000, 33), (1,), init="3"),
        Case("s32", (5000, 40), (0,), "maximum", "-5"),
        Case("u32", (70000,), (0,), "xor", "9"),
    ]
    check_kernel(reduces(cases), kernel)


def test_tiles() -> None:
    """Tiles of the user's own give the same results."""
    rows = [Case("f32", (70, 96), (1,)), Case("f32", (3, 2, 192), (0, 2))]
    for rows_of_block, threads, vector in [
        (1, 32, 1),
        (4, 16, 4),
        (32, 1, 2),
        (1, 1024, 2),
        (2, 96, 1),
    ]:
        tile = {"rows": rows_of_block, "threads": threads, "vector": vector}
        check_kernel(reduces(rows), "row-reduction", tile, everywhere=False)
    columns = [Case("f32", (70, 96), (0,)), Case("f32", (3, 20, 40), (1,))]
    for warps, vector in [(1, 1), (2, 4), (8, 2), (16, 1), (32, 4)]:
        tile = {"warps": warps, "vector": vector}
        check_kernel(reduces(columns), "column-reduction", tile, everywhere=False)
