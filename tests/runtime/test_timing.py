"""Medians and spreads."""

from __future__ import annotations

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
