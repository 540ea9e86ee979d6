"""Whole arrays and the parts of them that partitions have."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.errors import UnsupportedError
from hloopt.interpret.partitioning import Partitioning, is_partitioned, partitioning_of
from hloopt.ir import Module

ESCAPED = '#sdy.sharding<@mesh, [{}, {\\"y\\", \\"x\\"}]>'


def module(dims: str, sharding: str = "", result: str = "", name: str = "m") -> Module:
    text = f"""HloModule {name}, num_partitions=4, frontend_attributes={{xla.sdy.meshes={{mesh = #sdy.mesh<["x"=2, "y"=2]>}}}}
ENTRY e {{
  p = s32[{dims}] parameter(0){sharding and f", {sharding}"}
  ROOT r = s32[{dims}] negate(p){result and f", {result}"}
}}
"""
    return hloopt.parse(text, name=f"{name}.hlo")


WHOLE = np.arange(32, dtype=np.int32).reshape(4, 8)


def parted(whole: Module, parts: Module) -> Partitioning:
    assert is_partitioned(whole, parts)
    return partitioning_of(whole, parts, 4)


@pytest.mark.parametrize(
    ("sharding", "dims", "corners"),
    [
        ("sharding={devices=[2,2]<=[4]}", "2,4", [0, 4, 16, 20]),
        ("sharding={devices=[2,2]<=[2,2]T(1,0)}", "2,4", [0, 16, 4, 20]),
        ("sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}", "2,8", [0, 0, 16, 16]),
        ("sharding={mesh['x'=2,'y'=2], [{}, {'y'}]}", "4,4", [0, 4, 0, 4]),
        (f'frontend_attributes={{xla.sdy.sharding="{ESCAPED}"}}', "4,2", [0, 4, 2, 6]),
    ],
)
def test_parts_lie_where_the_annotation_says(sharding: str, dims: str, corners: list[int]) -> None:
    whole, parts = module("4,8", sharding, sharding), module(dims, name="parts")
    found = parted(whole, parts)
    cut = found.cut([[WHOLE]])
    assert [int(own[0][0, 0]) for own in cut] == corners
    assert not any(found.apart(cut))
    np.testing.assert_array_equal(found.joined(cut)[0][0], WHOLE)


def test_what_does_not_divide_is_padded() -> None:
    sharding = "sharding={devices=[1,4]<=[4]}"
    found = parted(module("4,7", sharding, sharding), module("4,2", name="parts"))
    whole = np.ascontiguousarray(WHOLE[:, :7])
    cut = found.cut([[whole]])
    assert cut[3][0][:, 1].tolist() == [0, 0, 0, 0]
    np.testing.assert_array_equal(found.joined(cut)[0][0], whole)


def test_partitions_with_the_same_part_have_to_agree() -> None:
    sharding = "sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}"
    found = parted(module("4,8", sharding, sharding), module("2,8", name="parts"))
    cut = found.cut([[WHOLE]])
    cut[3][0][1, 1] += 1
    assert found.apart(cut) == ["participants 2 and 3 have to agree, and do not"]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_result_that_nothing_places_lies_where_it_agrees(swapped: bool) -> None:
    sharding = "sharding={devices=[2,2]<=[4]}"
    found = parted(module("4,8", sharding), module("2,4", name="parts"))
    assert found.results[0].tiling is None
    cut = found.cut([[-WHOLE]])
    if swapped:
        cut[1], cut[2] = cut[2], cut[1]
    placed = found.placed(cut, [[-WHOLE]])
    assert placed.assumed == ["result 0"]
    np.testing.assert_array_equal(placed.joined(cut)[0][0], -WHOLE)


def test_a_sharding_of_other_devices_says_nothing() -> None:
    with pytest.raises(UnsupportedError, match="no annotation says how parameter p"):
        parted(module("4,9", "sharding={devices=[1,3]<=[3]}"), module("4,3", name="parts"))


def test_a_manual_axis_says_nothing_of_the_others() -> None:
    sharding = "sharding={devices=[2,1,2]<=[4] last_tile_dims={manual}}"
    with pytest.raises(UnsupportedError, match="no annotation says how parameter p"):
        parted(module("4,8", sharding), module("2,8", name="parts"))


@pytest.mark.parametrize("dims", ["4,9", "4,8,1", "4,8"])
def test_other_shapes_are_no_parts(dims: str) -> None:
    assert not is_partitioned(module("4,8"), module(dims))
