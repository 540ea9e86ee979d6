"""Medians and spreads."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hloopt.runtime import timing
from hloopt.runtime.timing import Timing, measure


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
