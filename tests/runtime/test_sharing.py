"""Inputs of several participants: whose data are the same."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.runtime.inputs import generate, generate_all
from hloopt.runtime.sharing import data_keys


def parameter(attributes: str, shape: str = "f32[4]") -> hloopt.Module:
    return hloopt.parse(
        f"HloModule m\nENTRY e {{\n  ROOT p = {shape} parameter(0){attributes}\n}}\n"
    )


@pytest.mark.parametrize(
    ("attributes", "keys"),
    [
        ("", (0, 1, 2, 3, 4, 5, 6, 7)),
        (", sharding={replicated}", (0, 0, 0, 0, 4, 4, 4, 4)),
        (", sharding={devices=[4]<=[4]}", (0, 1, 2, 3, 4, 5, 6, 7)),
        (", sharding={devices=[2,2]<=[4] last_tile_dim_replicate}", (0, 0, 2, 2, 4, 4, 6, 6)),
        (
            ", sharding={devices=[2,2]<=[2,2]T(1,0) last_tile_dim_replicate}",
            (0, 1, 0, 1, 4, 5, 4, 5),
        ),
        (
            ", sharding={devices=[2,2]3,0,1,2 last_tile_dim_replicate}",
            (0, 1, 1, 0, 4, 5, 5, 4),
        ),
        (", sharding={devices=[2,2]<=[4] last_tile_dims={manual}}", (0, 1, 2, 3, 4, 5, 6, 7)),
        (", sharding={devices=[2,4]<=[8] last_tile_dim_replicate}", (0, 1, 2, 3, 4, 5, 6, 7)),
        (", sharding={maximal device=1}", (0, 1, 2, 3, 4, 5, 6, 7)),
        (", parameter_replication={true}", (0, 1, 2, 3, 0, 1, 2, 3)),
        (", parameter_replication={true}, sharding={replicated}", (0,) * 8),
        (", parameter_replication={false}, sharding={replicated}", (0, 0, 0, 0, 4, 4, 4, 4)),
    ],
)
def test_who_shares(attributes: str, keys: tuple[int, ...]) -> None:
    """Of two replicas with four partitions each, by the first of those that share."""
    module = parameter(attributes)
    assert data_keys(module.entry.parameters[0], 2, 4) == [keys]


def test_a_tuple_has_a_sharding_for_each_part() -> None:
    """And parts are drawn apart."""
    module = parameter(
        ", sharding={{devices=[2,2]<=[4] last_tile_dim_replicate}, {devices=[4]<=[4]}}",
        "(f32[4], f32[4])",
    )
    assert data_keys(module.entry.parameters[0], 1, 4) == [(0, 0, 2, 2), (0, 1, 2, 3)]
    found = generate_all(module, 3, 1, 4)
    first, second = zip(*found, strict=True)
    assert [np.array_equal(first[0], x) for x in first] == [True, True, False, False]
    assert [np.array_equal(second[0], x) for x in second] == [True, False, False, False]


def test_the_first_has_what_a_single_one_has() -> None:
    """The others have something else, and the same each time; parameters do not disturb each other."""
    module = hloopt.parse(
        "HloModule m\nENTRY e {\n  p = f32[3] parameter(0), sharding={replicated}\n"
        "  k = token[] parameter(1)\n  ROOT q = s32[3] parameter(2)\n}\n"
    )
    found = generate_all(module, 7, 1, 3)
    assert [x.tolist() for x in found[0]] == [x.tolist() for x in generate(module, 7)]
    assert [len(arrays) for arrays in found] == [2, 2, 2]
    assert found[0][0].tolist() == found[1][0].tolist() == found[2][0].tolist()
    assert len({tuple(arrays[1].tolist()) for arrays in found}) == 3
    again = generate_all(module, 7, 1, 3)
    assert [x[1].tolist() for x in again] == [x[1].tolist() for x in found]
