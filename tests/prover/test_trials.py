"""Inputs of trials: which there are, by which options."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.prover.trials import Trial, TrialOptions, made, special_class, special_classes

MODULE = """HloModule m
ENTRY e {
  x = f32[40] parameter(0)
  i = s32[40] parameter(1)
  ROOT t = (f32[40], s32[40]) tuple(x, i)
}
"""
SHARDED = """HloModule m, num_partitions=2
s {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY e {
  x = f32[40] parameter(0), sharding={replicated}
  ROOT r = f32[40] all-reduce(x), replica_groups={{0,1}}, channel_id=1, use_global_device_ids=true, to_apply=s
}
"""


def test_a_special_trial_has_special_values() -> None:
    module = hloopt.parse(MODULE)
    floats, integers = made(module, Trial(2, "nan")).arrays[0]
    assert np.isnan(floats).any()
    assert np.array_equal(integers, made(module, Trial(2)).arrays[0][1])


def test_what_participants_share_stays_shared() -> None:
    one, other = made(hloopt.parse(SHARDED), Trial(0, "infinite")).arrays
    assert np.isinf(one[0]).any()
    assert one[0].tobytes() == other[0].tobytes()


def test_classes_that_change_nothing_have_no_turn() -> None:
    module = hloopt.parse(MODULE)
    there = special_classes(module)
    assert "stray" not in there
    assert {"nan", "extreme"} <= set(there)
    assert TrialOptions().plan(module) == [Trial()]
    assert TrialOptions(seed=3, trials=2).plan(module) == [Trial(3), Trial(4, "zero")]
    every = TrialOptions(special=("all",)).plan(module)
    assert [trial.special for trial in every] == there
    assert TrialOptions(trials=3, special=("nan",)).plan(module) == [
        Trial(seed, "nan") for seed in range(3)
    ]


def test_options_that_ask_for_nothing_possible_are_refused(tmp_path: Path) -> None:
    module = hloopt.parse(MODULE)
    with pytest.raises(UsageError, match="no input of m can be stray"):
        TrialOptions(special=("stray",)).plan(module)
    with pytest.raises(UsageError, match=r"'infinit' .* did you mean 'infinite'"):
        special_class("infinit")
    with pytest.raises(UsageError, match="--inputs is one trial"):
        TrialOptions(inputs="a.npz", trials=3).check()
    with pytest.raises(UsageError, match="no such file"):
        next(TrialOptions(inputs=str(tmp_path / "a.npz")).all(module))


def test_inputs_of_a_file_are_one_trial(tmp_path: Path) -> None:
    module, path = hloopt.parse(MODULE), tmp_path / "a.npz"
    np.savez(path, in_0=np.ones(40, np.float32), in_1=np.ones(40, np.int32))
    (found,) = TrialOptions(inputs=str(path)).all(module)
    assert found.origin == str(path)
    assert (found.arrays[0][0] == 1).all()
