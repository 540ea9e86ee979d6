"""No work item of a random loop has a part in what others compute, and work items that may stop by themselves do."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hloopt.analysis.parallel_loop import rest, ties
from tests.analysis.parallel_loop.random_bodies import random_body
from tests.analysis.parallel_loop.random_stops import random_stop
from tests.analysis.parallel_loop.unit_proof import EVERY_AXIS, early, found_in, strangers
from tests.helpers.rarely import examples


@settings(max_examples=examples(80), deadline=None)
@given(st.randoms(use_true_random=False))
def test_what_a_unit_has_changes_nothing_of_others(chance: random.Random) -> None:
    """Results along the axes follow from a work item's own part of the state, all others from none."""
    text = random_body(chance.randrange)
    assert strangers(text, chance.randrange) == [], text


@settings(max_examples=examples(80), deadline=None)
@given(st.randoms(use_true_random=False))
def test_units_that_stop_by_themselves_have_stopped_for_good(chance: random.Random) -> None:
    """Run alone, each work item ends with what it has after the loop of all."""
    text = random_stop(chance.randrange)
    assert early(text, chance.randrange) == [], text


def test_random_loops_have_axes_and_stop_by_units_often_enough() -> None:
    """What the properties are about is there: axes of one and two dimensions, reduces that are collected."""
    found = [found_in(random_body(random.Random(seed).randrange), EVERY_AXIS) for seed in range(60)]
    assert sum(len(one.sizes) == 1 for one in found) > 20
    assert sum(len(one.sizes) == 2 for one in found) > 5
    assert sum(bool(one.collected) for one in found) > 3
    stops = [found_in(random_stop(random.Random(seed).randrange), EVERY_AXIS) for seed in range(40)]
    assert sum(one.iterations.kind == "element" for one in stops) > 6
    assert sum(one.iterations.kind == "gathered" for one in stops) > 6


@pytest.mark.parametrize("opcode", ["reverse", "reduce-window", "sort"])
def test_a_rule_that_ties_too_much_is_noticed(opcode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an op that mixes a dimension is said to keep it, some loop gives it away."""
    monkeypatch.setitem(ties._RULES, opcode, ties._elementwise)
    assert any(
        strangers(random_body(chance.randrange), chance.randrange)
        for chance in map(random.Random, range(120))
    )


def test_a_proof_of_rest_that_looks_at_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where work items are believed to be at rest whatever the body does, some loop gives it away."""
    monkeypatch.setattr(rest._Prover, "_check", lambda *_: None)
    assert any(
        early(random_stop(chance.randrange), chance.randrange)
        for chance in map(random.Random, range(60))
    )
