"""gather-to-slice reads windows at regular places by slices."""

from __future__ import annotations

import random

import pytest

from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.passes.indexing.gather_to_slice import GatherToSlice
from hloopt.passes.indexing.scatter_to_slice import ScatterToSlice
from tests.passes.proof import check
from tests.properties.random_modules import module_text

ROWS = (
    "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
    "slice_sizes={1,3}"
)


def module(entry: str) -> str:
    return f"HloModule m\nENTRY e {{\n{entry}\n}}\n"


def opcodes(better: Module) -> list[str]:
    """What the result is made of, dead code left out."""
    seen, pending = [], [better.entry.root]
    while pending:
        instruction = pending.pop()
        seen.append(instruction.opcode)
        pending.extend(instruction.operands)
    return sorted(set(seen) - {"parameter", "constant"})


def rewritten(text: str, step: str = "", **options: int) -> list[str]:
    better, log = check(text, GatherToSlice(**options))
    assert sum(log.hits.values()) >= 1
    assert not step or log.hits[step] == 1
    return opcodes(better)


def test_the_example() -> None:
    """Rows 0, 2, 4 and 6 are a strided slice."""
    assert rewritten(GatherToSlice.example, "regular windows => slice") == ["slice"]


@pytest.mark.parametrize("start", ["2", "-1", "100", "-2147483648"])
def test_one_known_window(start: str) -> None:
    """A constant start is clamped, as gather clamps it."""
    text = module(
        f"x = f32[4,5] parameter(0)\n i = s32[2] constant({{{start}, 1}})\n"
        "ROOT r = f32[2] gather(x, i), offset_dims={0}, collapsed_slice_dims={0}, "
        "start_index_map={0,1}, index_vector_dim=0, slice_sizes={1,2}"
    )
    assert rewritten(text, "one window => slice") == ["reshape", "slice"]


@pytest.mark.parametrize("index", ["s32", "u32", "s8", "s64", "u64"])
def test_one_window_somewhere(index: str) -> None:
    """x[i] and x[:, i:i+2] are dynamic-slices, whose starts are clamped in the same way."""
    text = module(
        f"x = f32[4,5,6] parameter(0)\n i = {index}[] parameter(1)\n"
        f"j = {index}[1] parameter(2)\n a = {index}[1] reshape(i)\n"
        f"v = {index}[2] concatenate(a, j), dimensions={{0}}\n"
        "ROOT r = f32[5,2] gather(x, v), offset_dims={0,1}, collapsed_slice_dims={0}, "
        "start_index_map={0,2}, index_vector_dim=0, slice_sizes={1,5,2}"
    )
    found = rewritten(text, "one window => slice")
    assert "dynamic-slice" in found
    assert "gather" not in found


def test_one_window_with_batch_dimensions_of_one() -> None:
    """Batch dimensions of one element come back as such, wherever they are in the result."""
    text = module(
        "x = f32[4,5] parameter(0)\n i = s32[1,1,1] parameter(1)\n"
        "ROOT r = f32[1,5,1] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=2, slice_sizes={1,5}"
    )
    assert rewritten(text) == ["dynamic-slice", "reshape"]


def test_reversed_rows_out_of_range() -> None:
    """Indices 3, 2, 1, 0 are a reverse; what is clamped counts after clamping."""
    text = module(
        f"x = f32[4,3] parameter(0)\n i = s32[4,1] constant({{{{9}},{{2}},{{1}},{{-4}}}})\n"
        f"ROOT r = f32[4,3] gather(x, i), {ROWS}"
    )
    assert rewritten(text, "regular windows => slice") == ["reverse"]


def test_a_diagonal() -> None:
    """Two neighbouring dimensions that move together are one, with a stride of a row and a column."""
    text = module(
        "x = f32[3,5,6] parameter(0)\n i = s32[5,1] iota(), iota_dimension=0\n"
        "v = s32[5,2] concatenate(i, i), dimensions={1}\n"
        "ROOT r = f32[3,5] gather(x, v), offset_dims={0}, collapsed_slice_dims={1,2}, "
        "start_index_map={1,2}, index_vector_dim=1, slice_sizes={3,1,1}"
    )
    assert rewritten(text, "regular windows => slice") == ["reshape", "slice"]


def test_an_antidiagonal() -> None:
    """The columns may go down while the rows go up."""
    text = module(
        "x = f32[4,4] parameter(0)\n i = s32[4,1] iota(), iota_dimension=0\n"
        "j = s32[4,1] reverse(i), dimensions={0}\n"
        "v = s32[4,2] concatenate(i, j), dimensions={1}\n"
        "ROOT r = f32[4] gather(x, v), offset_dims={}, collapsed_slice_dims={0,1}, "
        "start_index_map={0,1}, index_vector_dim=1, slice_sizes={1,1}"
    )
    assert rewritten(text) == ["reshape", "slice"]


def test_two_batch_dimensions_in_another_order() -> None:
    """Each batch dimension moves a dimension of its own: a slice and a transpose."""
    text = module(
        "x = f32[6,7,2] parameter(0)\n i = s32[3,2,1] iota(), iota_dimension=0\n"
        "j = s32[3,2,1] iota(), iota_dimension=1\n two = s32[] constant(2)\n"
        "t = s32[3,2,1] broadcast(two), dimensions={}\n k = s32[3,2,1] multiply(i, t)\n"
        "v = s32[3,2,2] concatenate(j, k), dimensions={2}\n"
        "ROOT r = f32[3,2,2] gather(x, v), offset_dims={1}, collapsed_slice_dims={0,1}, "
        "start_index_map={0,1}, index_vector_dim=2, slice_sizes={1,1,2}"
    )
    assert rewritten(text, "regular windows => slice") == ["slice", "transpose"]


def test_batching_dimensions_and_a_repeated_window() -> None:
    """A batching dimension is followed one by one; a batch dimension that moves nothing repeats."""
    text = module(
        "x = f32[2,5,3] parameter(0)\n i = s32[4,2,1] constant({...})\n".replace(
            "constant({...})", "broadcast(c), dimensions={}"
        ).replace("i =", "c = s32[] constant(3)\n i =")
        + "ROOT r = f32[4,2,3] gather(x, i), offset_dims={2}, collapsed_slice_dims={1}, "
        "start_index_map={1}, operand_batching_dims={0}, start_indices_batching_dims={1}, "
        "index_vector_dim=2, slice_sizes={1,1,3}"
    )
    assert rewritten(text, "regular windows => slice") == ["broadcast", "reshape", "slice"]


def test_a_few_rows_of_places() -> None:
    """0 1 2, then 9 7 5, then 4: three slices."""
    text = module(
        "x = f32[10,3] parameter(0)\n"
        "i = s32[7,1] constant({{0},{1},{2},{9},{7},{5},{4}})\n"
        f"ROOT r = f32[7,3] gather(x, i), {ROWS}"
    )
    found = rewritten(text, "windows in rows => slices")
    assert found == ["concatenate", "reshape", "reverse", "slice"]


def test_more_rows_than_pieces() -> None:
    """Three rows stay one gather where two pieces are allowed."""
    text = module(
        "x = f32[10,3] parameter(0)\n"
        "i = s32[7,1] constant({{0},{1},{2},{9},{7},{5},{4}})\n"
        f"ROOT r = f32[7,3] gather(x, i), {ROWS}"
    )
    check(text, GatherToSlice(pieces=2), changes=False)


@pytest.mark.parametrize(
    "indices",
    [
        "i = s32[4,1] parameter(1)",
        "i = s32[4,1] constant({{0},{3},{1},{2}})",
        "i = s32[4,1] constant({{1},{1},{0},{0}})",
    ],
)
def test_irregular_windows_stay(indices: str) -> None:
    """Indices that are not known, or lie in no few rows, stay a gather."""
    text = module(f"x = f32[4,3] parameter(0)\n {indices}\n ROOT r = f32[4,3] gather(x, i), {ROWS}")
    check(text, GatherToSlice(pieces=1), changes=False)


def test_windows_that_overlap_stay() -> None:
    """Windows of two rows, one row apart, are no slice."""
    text = module(
        "x = f32[6,3] parameter(0)\n i = s32[4,1] iota(), iota_dimension=0\n"
        "ROOT r = f32[4,2,3] gather(x, i), offset_dims={1,2}, collapsed_slice_dims={}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={2,3}"
    )
    check(text, GatherToSlice(), changes=False)


def test_one_batch_dimension_for_two_distant_dimensions_stays() -> None:
    """A diagonal over dimensions with another in between is no slice."""
    text = module(
        "x = f32[4,3,4] parameter(0)\n i = s32[4,1] iota(), iota_dimension=0\n"
        "v = s32[4,2] concatenate(i, i), dimensions={1}\n"
        "ROOT r = f32[4,3] gather(x, v), offset_dims={1}, collapsed_slice_dims={0,2}, "
        "start_index_map={0,2}, index_vector_dim=1, slice_sizes={1,3,1}"
    )
    check(text, GatherToSlice(), changes=False)


def test_wrong_options() -> None:
    """Counts below one are refused."""
    with pytest.raises(UsageError, match="pieces and limit"):
        GatherToSlice(pieces=0)


def test_random_modules_keep_their_results() -> None:
    """Modules without gathers stay as they are."""
    for seed in range(4):
        check(module_text(random.Random(seed)), GatherToSlice(), changes=False, draws=1)


def test_scalars_have_their_layout_in_texts_without_any() -> None:
    """What is made of arrays without layouts prints and reads back the same, scalars included."""
    check(
        "HloModule m\nlast { a = s32[] parameter(0)\n ROOT b = s32[] parameter(1) }\n"
        "ENTRY e { x = s32[3] parameter(0)\n i = s32[1,1] parameter(1)\n u = s32[1] parameter(2)\n"
        "ROOT r = s32[3] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=last }\n",
        ScatterToSlice(),
    )


def test_one_window_alone_as_in_xla() -> None:
    """limit=1: a diagonal is gathered, a single row is a slice."""
    diagonal = """HloModule m
ENTRY e {
  x = f32[5,5]{1,0} parameter(0)
  i = s32[5,1]{1,0} iota(), iota_dimension=0
  c = s32[5,2]{1,0} concatenate(i, i), dimensions={1}
  ROOT r = f32[5]{0} gather(x, c), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1},
      index_vector_dim=1, slice_sizes={1,1}
}
"""
    check(diagonal, GatherToSlice())
    check(diagonal, GatherToSlice(limit=1), changes=False)
    row = """HloModule m
ENTRY e {
  x = f32[5,5]{1,0} parameter(0)
  i = s32[1]{0} parameter(1)
  ROOT r = f32[5]{0} gather(x, i), offset_dims={0}, collapsed_slice_dims={0}, start_index_map={0},
      index_vector_dim=0, slice_sizes={1,5}
}
"""
    check(row, GatherToSlice(limit=1))
