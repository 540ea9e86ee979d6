"""scatter-to-slice writes windows at regular places by updates of slices."""

from __future__ import annotations

import random

import pytest

from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.passes.indexing.scatter_to_slice import ScatterToSlice
from tests.passes.proof import check
from tests.properties.random_modules import module_text

SECOND = "to { a = f32[] parameter(0)\n ROOT b = f32[] parameter(1) }\n"
ROW = (
    "update_window_dims={0}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=0, to_apply=to"
)


def region(opcode: str, element: str = "f32") -> str:
    return (
        f"to {{ a = {element}[] parameter(0)\n b = {element}[] parameter(1)\n"
        f"ROOT r = {element}[] {opcode}(a, b) }}\n"
    )


def module(entry: str, to: str = SECOND) -> str:
    return f"HloModule m\n{to}ENTRY e {{\n{entry}\n}}\n"


def opcodes(better: Module) -> list[str]:
    seen, pending = [], [better.entry.root]
    while pending:
        instruction = pending.pop()
        seen.append(instruction.opcode)
        pending.extend(instruction.operands)
    return sorted(set(seen) - {"parameter", "constant", "broadcast", "reshape"})


def rewritten(text: str, step: str = "") -> list[str]:
    better, log = check(text, ScatterToSlice())
    assert sum(log.hits.values()) >= 1
    assert not step or log.hits[step] == 1
    return opcodes(better)


def test_the_example() -> None:
    """A row at any index, written only where it is inside."""
    found = rewritten(ScatterToSlice.example, "one window => slice")
    assert "dynamic-update-slice" in found
    assert "select" in found
    assert "scatter" not in found


@pytest.mark.parametrize("index", ["s8", "u8", "s64", "u64"])
def test_a_window_anywhere_is_left_out_unless_it_is_inside(index: str) -> None:
    """Negative and too large starts, of any type, change nothing."""
    text = module(
        f"x = f32[5,4] parameter(0)\n i = {index}[2] parameter(1)\n u = f32[2,3] parameter(2)\n"
        "ROOT r = f32[5,4] scatter(x, i, u), update_window_dims={0,1}, inserted_window_dims={}, "
        "scatter_dims_to_operand_dims={1,0}, index_vector_dim=0, to_apply=to",
        region("add"),
    )
    assert "dynamic-update-slice" in rewritten(text)


def test_a_start_known_to_be_inside_needs_no_select() -> None:
    """A constant start inside: old values are read only to be combined with."""
    text = module(
        "x = f32[5,4] parameter(0)\n i = s32[1] constant({3})\n u = f32[4] parameter(1)\n"
        f"ROOT r = f32[5,4] scatter(x, i, u), {ROW}"
    )
    assert rewritten(text) == ["dynamic-update-slice"]


def test_a_start_known_to_be_outside_changes_nothing() -> None:
    """5 is no row of 5."""
    text = module(
        "x = f32[5,4] parameter(0)\n i = s32[1] constant({5})\n u = f32[4] parameter(1)\n"
        f"ROOT r = f32[5,4] scatter(x, i, u), {ROW}"
    )
    assert rewritten(text, "one window outside => operand") == []


def test_a_clamped_start_needs_no_select() -> None:
    """What clamp keeps inside is inside."""
    text = module(
        "x = f32[5,4] parameter(0)\n j = s32[] parameter(1)\n z = s32[] constant(0)\n"
        "n = s32[] constant(4)\n c = s32[] clamp(z, j, n)\n i = s32[1] reshape(c)\n"
        f"u = f32[4] parameter(2)\n ROOT r = f32[5,4] scatter(x, i, u), {ROW}"
    )
    assert "select" not in rewritten(text)


def test_a_window_as_large_as_the_operand() -> None:
    """The combiner is applied to whole arrays."""
    text = module(
        "x = f32[5,1] parameter(0)\n i = s32[1] constant({0})\n u = f32[5] parameter(1)\n"
        "ROOT r = f32[5,1] scatter(x, i, u), update_window_dims={0}, inserted_window_dims={1}, "
        "scatter_dims_to_operand_dims={1}, index_vector_dim=0, to_apply=to",
        region("subtract"),
    )
    assert rewritten(text) == ["subtract"]


def test_several_operands() -> None:
    """Each operand gets its window, all of them where the window is inside."""
    to = (
        "to { a = f32[] parameter(0)\n b = s32[] parameter(1)\n c = f32[] parameter(2)\n"
        "d = s32[] parameter(3)\n e = f32[] convert(d)\n f = f32[] add(a, e)\n"
        "ROOT r = (f32[], s32[]) tuple(f, b) }\n"
    )
    text = module(
        "x = f32[5,4] parameter(0)\n y = s32[5,4] parameter(1)\n i = s32[1] parameter(2)\n"
        "u = f32[4] parameter(3)\n v = s32[4] parameter(4)\n"
        f"ROOT r = (f32[5,4], s32[5,4]) scatter(x, y, i, u, v), {ROW}",
        to,
    )
    assert "tuple" in rewritten(text)


@pytest.mark.parametrize("opcode", ["add", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("element", ["f32", "bf16", "s32", "u8"])
def test_every_second_row_is_combined(opcode: str, element: str) -> None:
    """Updates are padded with what the combiner passes over, bit for bit."""
    text = module(
        f"x = {element}[7,3] parameter(0)\n i = s32[3,1] constant({{{{1}},{{3}},{{5}}}})\n"
        f"u = {element}[3,3] parameter(1)\n ROOT r = {element}[7,3] scatter(x, i, u), "
        "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
        "index_vector_dim=1, to_apply=to",
        region(opcode, element),
    )
    assert rewritten(text, "regular windows => pad") == sorted([opcode, "pad"])


def test_rows_from_the_last_to_the_first_are_set() -> None:
    """Places that go down are a reversed update; rows side by side are one update."""
    text = module(
        "x = f32[7,3] parameter(0)\n i = s32[3,1] constant({{4},{3},{2}})\n"
        "u = f32[3,3] parameter(1)\n ROOT r = f32[7,3] scatter(x, i, u), update_window_dims={1}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=to"
    )
    assert rewritten(text) == ["dynamic-update-slice", "reverse"]


def test_every_second_row_is_set() -> None:
    """Between the rows the old values are selected."""
    text = module(
        "x = f32[7,3] parameter(0)\n i = s32[3,1] constant({{0},{3},{6}})\n"
        "u = f32[3,3] parameter(1)\n ROOT r = f32[7,3] scatter(x, i, u), update_window_dims={1}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=to"
    )
    assert rewritten(text) == ["pad", "select"]


def test_a_diagonal_is_added_to() -> None:
    """Both dimensions move together: one dimension of their product, padded in between."""
    text = module(
        "x = f32[2,4,4] parameter(0)\n j = s32[4,1] iota(), iota_dimension=0\n"
        "i = s32[4,2] concatenate(j, j), dimensions={1}\n u = f32[2,4] parameter(1)\n"
        "ROOT r = f32[2,4,4] scatter(x, i, u), update_window_dims={0}, inserted_window_dims={1,2}, "
        "scatter_dims_to_operand_dims={1,2}, index_vector_dim=1, to_apply=to",
        region("add"),
    )
    assert rewritten(text) == ["add", "pad"]


def test_batching_dimensions_and_transposed_updates() -> None:
    """Dimensions of the update are put in the operand's order."""
    text = module(
        "x = f32[2,5,3] parameter(0)\n i = s32[3,2,1] iota(), iota_dimension=0\n"
        "u = f32[3,2,3] parameter(1)\n ROOT r = f32[2,5,3] scatter(x, i, u), update_window_dims={2}, "
        "inserted_window_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={1}, "
        "scatter_dims_to_operand_dims={1}, index_vector_dim=2, to_apply=to",
        region("multiply"),
    )
    assert rewritten(text) == ["multiply", "pad", "transpose"]


@pytest.mark.parametrize(
    ("indices", "to"),
    [
        ("i = s32[3,1] parameter(2)", region("add")),
        ("i = s32[3,1] constant({{1},{1},{1}})", region("add")),
        ("i = s32[3,1] constant({{5},{6},{7}})", region("add")),
        ("i = s32[3,1] constant({{0},{1},{4}})", region("add")),
        ("i = s32[3,1] constant({{1},{3},{5}})", region("subtract")),
    ],
)
def test_other_scatters_stay(indices: str, to: str) -> None:
    """Unknown, repeated, outside and irregular places, and combiners that pass over nothing."""
    text = module(
        f"x = f32[7,3] parameter(0)\n u = f32[3,3] parameter(1)\n {indices}\n"
        "ROOT r = f32[7,3] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=to",
        to,
    )
    check(text, ScatterToSlice(), changes=False)


def test_wrong_options() -> None:
    """Counts below one are refused."""
    with pytest.raises(UsageError, match="limit must be at least 1, got"):
        ScatterToSlice(limit=0)


def test_random_modules_keep_their_results() -> None:
    """Modules without scatters stay as they are."""
    for seed in range(4):
        check(module_text(random.Random(seed)), ScatterToSlice(), changes=False, draws=1)
