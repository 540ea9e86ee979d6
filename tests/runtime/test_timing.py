"""Medians and spreads."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hloopt.runtime import timing
from hloopt.runtime.timing import Timing, measure, measure_in_turn


def test_median_and_spread() -> None:
    """Half the interquartile range; of few runs half the range."""
    assert Timing((1.0, 5.0, 3.0)).median == 3.0
    assert Timing((1.0, 5.0)).spread == 2.0
    assert Timing((7.0,)).spread == 0.0
    assert Timing(tuple(float(n) for n in range(1, 8))).spread == 2.0


def test_the_step_runs_once_to_warm_up() -> None:
    """Five timed runs are six calls."""
    calls: list[int] = []
    timing = measure(lambda: calls.append(1), 5)

    assert len(timing.seconds) == 5
    assert len(calls) == 6


@pytest.mark.parametrize(("seconds", "calls"), [(0.9, 4), (1.0, 3)])
def test_a_long_run_needs_no_warm_up(
    monkeypatch: pytest.MonkeyPatch, seconds: float, calls: int
) -> None:
    """It is the first of the timed runs itself."""
    now = [0.0]
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    made: list[int] = []

    def step() -> None:
        made.append(1)
        now[0] += seconds

    assert measure(step, 3).seconds == pytest.approx((seconds,) * 3)
    assert len(made) == calls


def test_slow_runs_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is begun once all of them have taken so many seconds, but for the first."""
    now = [0.0]
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def step() -> None:
        now[0] += 4.0

    assert len(measure(step, 5, seconds=10.0).seconds) == 3
    assert len(measure(step, 5, warm_up=False, seconds=1.0).seconds) == 1
    assert len(measure(step, 5).seconds) == 5


def test_programs_that_are_compared_run_in_turn() -> None:
    """What disturbs the machine for a while meets all of them; each has as many runs as it may."""
    order: list[str] = []
    first, second = measure_in_turn([lambda: order.append("a"), lambda: order.append("b")], 3)
    assert "".join(order) == "abababab"
    assert len(first.seconds) == len(second.seconds) == 3


def test_one_that_is_slow_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends when its own seconds are over."""
    now = [0.0]
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def slow() -> None:
        now[0] += 4.0

    def quick() -> None:
        now[0] += 0.5

    found = measure_in_turn([slow, quick], 6, seconds=10.0)
    assert [len(one.seconds) for one in found] == [3, 6]


def test_only_times_whose_middles_part_are_apart() -> None:
    """Overlapping ones, and those of one or two runs, may be the same."""
    slow, fast = Timing((3.0, 3.1, 3.2)), Timing((1.0, 1.1, 1.2))
    assert slow.is_apart(fast)
    assert fast.is_apart(slow)
    assert not slow.is_apart(Timing((1.0, 1.1, 3.05)))
    assert not slow.is_apart(Timing((1.0,)))
    assert not Timing((3.0, 3.0)).is_apart(fast)
    assert Timing((*slow.seconds * 3, 0.5)).is_apart(Timing((*fast.seconds * 3, 9.0)))


def test_what_varies_by_more_than_a_fifth_is_unsteady() -> None:
    """The spread against the median; the least is what was disturbed least."""
    assert Timing((1.0, 1.6, 1.1)).is_unsteady
    assert not Timing((1.0, 1.2, 1.1)).is_unsteady
    assert Timing((1.0, 0.7, 1.1)).least == 0.7
