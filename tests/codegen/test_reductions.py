"""Reductions by blocks on the emulator: rows, columns, split, by atomics."""

from __future__ import annotations

import pytest

from hloopt.kernel_ir.expressions import Cast
from hloopt.kernel_ir.types import FLOAT, INT, LONG
from tests.codegen.harness import check_kernel, compile_everywhere, planned
from tests.codegen.reducing import Case, reduces
from tests.helpers.kernel_code import KernelCode

ROWS = [
    (1, 1), (33, 3), (2, 31), (8, 32), (5, 33), (31, 64), (9, 127), (1, 513), (6, 1000), (2, 1030), (1, 2048),
]  # fmt: skip
SHORT_ROWS = [(1, 1), (70, 2), (33, 3), (5, 16), (300, 32), (9, 40), (2, 100)]
COLUMNS = [(1, 40), (31, 33), (33, 31), (64, 64), (65, 66), (40, 129), (33, 130), (70, 1000)]
SMALL_COLUMNS = [(1, 1), (129, 2), (257, 4), (300, 8), (130, 16), (70, 32)]


def _sums(sizes: list[tuple[int, int]], reduced: int) -> list[Case]:
    return [Case("f32", size, (reduced,), init="2") for size in sizes]


def test_rows_of_every_size() -> None:
    """Rows around warps, blocks and vectors are summed with the init value once, nothing read outside."""
    batched = [
        Case("f32", (3, 5, 40), (0, 2), init="1"),
        Case("f32", (7, 3, 2, 33), (0, 3), init="1"),
        Case("f32", (2, 3, 10, 50), (2, 3), init="1"),
        Case("f32", (9, 1, 64), (0, 1, 2), init="1"),
    ]
    check_kernel(reduces(_sums(ROWS, 1) + batched), "row-reduction")
    check_kernel(reduces(_sums(SHORT_ROWS, 1) + batched[:1]), "multi-row-reduction")


def test_columns_of_every_size() -> None:
    """Columns around warps, blocks and vectors are summed with the init value once."""
    batched = [
        Case("f32", (3, 40, 36), (1,), init="1"),
        Case("f32", (2, 20, 3, 5), (1, 2), init="1"),
        Case("f32", (5, 9, 7, 10), (0, 1), init="1"),
    ]
    check_kernel(reduces(_sums(COLUMNS, 0) + batched), "column-reduction")
    few = [*_sums(SMALL_COLUMNS, 0), Case("f32", (4, 33, 4), (1,), init="1")]
    check_kernel(reduces(few), "small-column-reduction")


@pytest.mark.parametrize("kernel", ["split-reduction", "atomic-reduction"])
def test_blocks_share_a_result(kernel: str) -> None:
    """Any number of blocks shares rows and columns; scratch or atomics bring their parts together."""
    cases = [
        Case("f32", (3, 9001), (1,), init="3"),
        Case("f32", (50, 3, 40), (0, 2), init="3"),
        Case("f32", (5000, 8), (0,), init="3"),
        Case("f32", (2, 3000, 33), (1,), init="3"),
        Case("bf16", (3000, 40), (0,), init="3"),
        Case("s32", (5000, 40), (0,), "maximum", "-5"),
        Case("u32", (70000,), (0,), "xor", "9"),
    ]
    if kernel == "atomic-reduction":
        cases[3] = Case("bf16", (3000, 40), (0,), "minimum", "3")
        cases += [
            Case("f32", (9000,), (0,), "multiply", "0.5"),
            Case("f16", (3000,), (0,), "wide-add"),
        ]
    check_kernel(reduces(cases), kernel)


def test_tiles() -> None:
    """Tiles of the user's own give the same results."""
    rows = [Case("f32", (70, 96), (1,)), Case("bf16", (3, 2, 192), (0, 2))]
    for rows_of_block, threads, vector in [
        (1, 32, 1),
        (4, 16, 4),
        (32, 1, 2),
        (1, 1024, 2),
        (2, 96, 1),
    ]:
        tile = {"rows": rows_of_block, "threads": threads, "vector": vector}
        check_kernel(reduces(rows), "row-reduction", tile, everywhere=False, twice=False)
    columns = [Case("f32", (70, 96), (0,)), Case("f32", (3, 20, 40), (1,))]
    for warps, vector in [(1, 2), (8, 4), (32, 4)]:
        tile = {"warps": warps, "vector": vector}
        check_kernel(reduces(columns), "column-reduction", tile, everywhere=False, twice=False)


def test_huge_arrays() -> None:
    """Indices are of 64 bits where an array has as many elements, and only there."""
    huge = reduces(
        [
            Case("f32", (3, 1500000000), (1,)),
            Case("s8", (70000, 40000), (0,)),
            Case("f32", (9, 8, 33), (1,)),
        ]
    )
    program = planned(huge, "row-reduction,column-reduction,split-reduction")[2]
    rows, columns, small = (KernelCode((one,)) for one in KernelCode.of(program).functions)
    assert rows.types("at") == {LONG}
    assert columns.types("row") == {LONG}
    assert small.types() == {INT, FLOAT}
    assert LONG not in {one.type for one in small.expressions(Cast)}
    compile_everywhere(program.text, ("sm_90",))
