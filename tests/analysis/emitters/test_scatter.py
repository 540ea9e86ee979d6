"""The two scatter kernels and when each is taken."""

from __future__ import annotations

import pytest

from hloopt.analysis.emitters.scatter import (
    ScatterTiling,
    is_simplified_scatter,
    scatter_tiling,
)
from hloopt.analysis.region import Region
from hloopt.ir import Instruction
from hloopt.targets import Target
from tests.analysis.emitters.regions import lone


def _scatter(
    operand: str = "f32[1000,64]",
    indices: str = "s32[2000,1]",
    updates: str = "f32[2000,1,64]",
    more: str = "",
) -> Region:
    rank = updates.count(",") + 1
    length = int(indices.removesuffix("]").split(",")[-1])
    window = ",".join(map(str, range(1, rank)))
    dims = ",".join(map(str, range(length)))
    return lone(
        f"p = {operand} parameter(0)\ni = {indices} parameter(1)\nu = {updates} parameter(2)\n"
        f"ROOT s = {operand} scatter(p, i, u), update_window_dims={{{window}}}, "
        f"inserted_window_dims={{}}, scatter_dims_to_operand_dims={{{dims}}}, index_vector_dim=1{more}, "
        "to_apply=sum"
    )


def _tiling(region: Region, target: Target) -> ScatterTiling:
    return scatter_tiling(region.instruction, region, target)


def test_updates_are_spread_over_threads(h200: Target) -> None:
    """A loop over the elements of the updates, in vectors that stay in one slice."""
    tiling = _tiling(_scatter(updates="f32[20000,1,64]", indices="s32[20000,1]"), h200)
    assert (tiling.form, tiling.vector, tiling.is_atomic) == ("updates", 4, True)
    assert (tiling.slices, tiling.slice_elements) == (20000, 64)
    assert tiling.launch.grid == (20000 * 64 // 4 // 128, 1, 1)
    odd = _tiling(
        _scatter("f32[1000,63]", "s32[20000,1]", "f32[20000,1,63]", ", unique_indices=true"), h200
    )
    assert (odd.vector, odd.is_atomic) == (1, False)
    pairs = _tiling(_scatter("f32[1000,62]", "s32[20000,1]", "f32[20000,1,62]"), h200)
    assert pairs.vector == 2


SORTED = ", indices_are_sorted=true"


def test_sorted_indices_are_added_up_first(h200: Target) -> None:
    """From more index vectors on than 4 warps for each of 132 cores."""
    few = _scatter(indices="s32[528,1]", updates="f32[528,1,64]", more=SORTED)
    more = _scatter(indices="s32[529,1]", updates="f32[529,1,64]", more=SORTED)
    assert _tiling(few, h200).form == "updates"
    assert _tiling(more, h200).form == "indices"
    unique = _scatter(more=f"{SORTED}, unique_indices=true")
    assert _tiling(unique, h200).form == "updates"
    assert _tiling(_scatter(), h200).form == "updates"


@pytest.mark.parametrize(
    ("operand", "indices", "updates", "each", "wide", "vector", "warps"),
    [
        # 1000 places: 2 indices a warp
        ("f32[1000,64]", "s32[2000,1]", "f32[2000,1,64]", 2, 1, 2, 1000),
        # 600 places: 5 are rounded up to 8, read 4 at once
        ("f32[600,64]", "s32[3000,1]", "f32[3000,1,64]", 8, 4, 2, 375),
        # 4 stay single reads
        ("f32[600,64]", "s32[2400,1]", "f32[2400,1,64]", 4, 1, 2, 600),
        # indices of 64 bits: 2 at once
        ("f32[600,64]", "s64[3000,1]", "f32[3000,1,64]", 6, 2, 2, 500),
        # few places: the 528 warps count
        ("f32[10,64]", "s32[5280,1]", "f32[5280,1,64]", 12, 4, 2, 440),
        # vectors of two numbers: places in both dimensions, windows taken off
        ("f32[30,34,64]", "s32[2000,2]", "f32[2000,1,3,64]", 3, 1, 4, 667),
        # 128 bits of 16-bit elements, and 32 lanes' worth of 4 at most
        ("bf16[1000,128]", "s32[2000,1]", "bf16[2000,1,128]", 2, 1, 4, 1000),
        ("bf16[1000,256]", "s32[2000,1]", "bf16[2000,1,256]", 2, 1, 8, 1000),
        ("f32[1000,31]", "s32[2000,1]", "f32[2000,1,31]", 2, 1, 1, 1000),
    ],
)
def test_indices_of_a_warp(
    h200: Target,
    operand: str,
    indices: str,
    updates: str,
    each: int,
    wide: int,
    vector: int,
    warps: int,
) -> None:
    """Updates for each place there is, at least the device's warps; vectors keep all lanes busy."""
    tiling = _tiling(_scatter(operand, indices, updates, SORTED), h200)
    assert (tiling.form, tiling.indices_per_warp, tiling.indices_vector) == ("indices", each, wide)
    assert tiling.vector == vector
    assert tiling.launch.grid == (-(-warps // 4), 1, 1)
    assert tiling.launch.block == (128, 1, 1)


def _instruction(updates: str, indices: str, attributes: str) -> Instruction:
    return lone(
        f"p = f32[8,4] parameter(0)\ni = {indices} parameter(1)\nu = {updates} parameter(2)\n"
        f"ROOT s = f32[8,4] scatter(p, i, u), {attributes}, to_apply=sum"
    ).instruction


@pytest.mark.parametrize(
    ("updates", "indices", "attributes"),
    [
        ("f32[5,4]", "s32[5,1]", "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"),
        ("f32[5,1,4]", "s32[5,1]", "update_window_dims={1,2}, inserted_window_dims={}, scatter_dims_to_operand_dims={1}, index_vector_dim=1"),
        ("f32[5,1,4]", "s32[1,5]", "update_window_dims={1,2}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=0"),
        ("f32[5,1,4]", "s32[5]", "update_window_dims={1,2}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"),
    ],
)  # fmt: skip
def test_other_forms_are_refused(h200: Target, updates: str, indices: str, attributes: str) -> None:
    """They are simplified first; the error names the scatter."""
    scatter = _instruction(updates, indices, attributes)
    assert not is_simplified_scatter(scatter)
    with pytest.raises(ValueError, match="s is not a simplified scatter"):
        scatter_tiling(scatter, _scatter(), h200)
