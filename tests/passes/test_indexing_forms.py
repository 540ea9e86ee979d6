"""gather-simplifier and scatter-simplifier bring every gather and scatter into one form."""

from __future__ import annotations

import random

import pytest

from hloopt.ir import Module
from hloopt.passes.indexing.gather_simplifier import GatherSimplifier
from hloopt.passes.indexing.scatter_simplifier import ScatterSimplifier
from tests.passes.proof import check
from tests.properties.random_modules import module_text

ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"


def module(entry: str) -> str:
    return f"HloModule m\n{ADD}ENTRY e {{\n{entry}\n}}\n"


GATHERS = (
    (
        "x = f32[5,6,7] parameter(0)\n i = s32[4,2] parameter(1)\n"
        "ROOT r = f32[4,2,3] gather(x, i), offset_dims={1,2}, collapsed_slice_dims={0}, "
        "start_index_map={2,0}, index_vector_dim=1, slice_sizes={1,2,3}"
    ),
    (
        "x = f32[5,6,7] parameter(0)\n i = u8[2,4] parameter(1)\n"
        "ROOT r = f32[3,4,2] gather(x, i), offset_dims={0,2}, collapsed_slice_dims={1}, "
        "start_index_map={1,2}, index_vector_dim=0, slice_sizes={3,1,2}"
    ),
    (
        "x = f32[3,4,8] parameter(0)\n i = s64[3,4,1] parameter(1)\n"
        "ROOT r = f32[3,4,1] gather(x, i), offset_dims={2}, collapsed_slice_dims={}, "
        "start_index_map={2}, operand_batching_dims={0,1}, start_indices_batching_dims={0,1}, "
        "index_vector_dim=2, slice_sizes={1,1,1}"
    ),
    (
        "x = f32[150,3] parameter(0)\n i = s8[150,1] parameter(1)\n"
        "ROOT r = f32[150] gather(x, i), offset_dims={}, collapsed_slice_dims={1}, "
        "start_index_map={1}, operand_batching_dims={0}, start_indices_batching_dims={0}, "
        "index_vector_dim=1, slice_sizes={1,1}"
    ),
    (
        "x = f32[5,6] parameter(0)\n i = s32[] parameter(1)\n"
        "ROOT r = f32[6] gather(x, i), offset_dims={0}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=0, slice_sizes={1,6}"
    ),
)
SCATTERS = (
    (
        "x = f32[5,6,7] parameter(0)\n i = s32[4,2] parameter(1)\n u = f32[2,4,3] parameter(2)\n"
        "ROOT r = f32[5,6,7] scatter(x, i, u), update_window_dims={0,2}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={2,0}, index_vector_dim=1, to_apply=add"
    ),
    (
        "x = f32[3,4,8] parameter(0)\n i = s32[3,4,1] parameter(1)\n u = f32[3,4] parameter(2)\n"
        "ROOT r = f32[3,4,8] scatter(x, i, u), update_window_dims={}, inserted_window_dims={2}, "
        "input_batching_dims={0,1}, scatter_indices_batching_dims={0,1}, "
        "scatter_dims_to_operand_dims={2}, index_vector_dim=2, to_apply=add"
    ),
    (
        "x = f32[5,6] parameter(0)\n i = s32[4] parameter(1)\n u = f32[4,6] parameter(2)\n"
        "ROOT r = f32[5,6] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"
    ),
)


def of_opcode(better: Module, opcode: str) -> list[str]:
    return [
        f"{entry.operands[1].array.rank} {sorted(entry.attributes)}"
        for entry in better.instructions()
        if entry.opcode == opcode
    ]


@pytest.mark.parametrize("entry", GATHERS)
def test_gathers_have_a_matrix_of_indices(entry: str) -> None:
    """Any dimension numbers, index types and batching dimensions; results keep their bits."""
    better, log = check(module(entry), GatherSimplifier())
    assert log.hits["canonical gather"] == 1
    (found,) = of_opcode(better, "gather")
    assert found.startswith("2 ")
    assert "operand_batching_dims" not in found


@pytest.mark.parametrize("entry", SCATTERS)
def test_scatters_have_a_matrix_of_indices(entry: str) -> None:
    """Windows outside are left out as before, and duplicates add up in the same order."""
    better, log = check(module(entry), ScatterSimplifier())
    assert log.hits["canonical scatter"] == 1
    (found,) = of_opcode(better, "scatter")
    assert found.startswith("2 ")
    assert "input_batching_dims" not in found


def test_scatters_of_several_operands() -> None:
    """Each operand is transposed, and each result back."""
    to = (
        "HloModule m\nboth { a = f32[] parameter(0)\n b = s32[] parameter(1)\n"
        "c = f32[] parameter(2)\n d = s32[] parameter(3)\n e = f32[] add(a, c)\n"
        "f = s32[] maximum(b, d)\n ROOT r = (f32[], s32[]) tuple(e, f) }\n"
    )
    entry = (
        "ENTRY e { x = f32[5,6] parameter(0)\n y = s32[5,6] parameter(1)\n i = s32[4,1] parameter(2)\n"
        "u = f32[4,5] parameter(3)\n v = s32[4,5] parameter(4)\n"
        "ROOT r = (f32[5,6], s32[5,6]) scatter(x, y, i, u, v), update_window_dims={1}, "
        "inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, index_vector_dim=1, "
        "to_apply=both }\n"
    )
    check(to + entry, ScatterSimplifier())


def test_the_examples_are_rewritten_once() -> None:
    """What a pass made is in its form."""
    check(GatherSimplifier.example, GatherSimplifier())
    check(ScatterSimplifier.example, ScatterSimplifier())


def test_canonical_forms_stay() -> None:
    """Rows of indices, whole windows."""
    gather = (
        "x = f32[5,6] parameter(0)\n i = s32[4,1] parameter(1)\n"
        "ROOT r = f32[4,1,6] gather(x, i), offset_dims={1,2}, collapsed_slice_dims={}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,6}"
    )
    scatter = (
        "x = f32[5,6] parameter(0)\n i = s32[4,1] parameter(1)\n u = f32[4,1,6] parameter(2)\n"
        "ROOT r = f32[5,6] scatter(x, i, u), update_window_dims={1,2}, inserted_window_dims={}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"
    )
    check(module(gather), GatherSimplifier(), changes=False)
    empty = (
        "x = f32[0,6] parameter(0)\n i = s32[4] parameter(1)\n"
        "ROOT r = f32[4,6] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={0,6}"
    )
    check(module(empty), GatherSimplifier(), changes=False)
    check(module(scatter), ScatterSimplifier(), changes=False)


@pytest.mark.parametrize("instance", [GatherSimplifier(), ScatterSimplifier()])
def test_random_modules_stay(instance: GatherSimplifier | ScatterSimplifier) -> None:
    """Modules without gather and scatter stay as they are."""
    for seed in range(3):
        check(module_text(random.Random(seed)), instance, changes=False, draws=1)
