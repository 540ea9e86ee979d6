"""Timing: the median of several runs and their spread."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from math import inf

from hloopt.dataclass import dataclass

__all__ = ["Timing", "measure"]

_LONG = 1.0  # seconds of a run to which caches and lazy imports add nothing


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of each run, in order; the warm-up run is not among them."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median in seconds."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles in seconds; of few runs, half their range."""
        if len(self.seconds) < 4:
            return (max(self.seconds) - min(self.seconds)) / 2
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return (high - low) / 2


def measure(
    step: Callable[[], object], repeat: int, *, warm_up: bool = True, seconds: float = inf
) -> Timing:
    """Call ``step`` ``repeat`` times; garbage is collected before, not during, each call.

    A call before these warms up, unless it takes so long that it is as good as any other: then it is the
    first of them.  No further call is made once all of them together have taken ``seconds``.
    """
    taken: list[float] = []
    if warm_up:
        first = _timed(step)
        if first >= _LONG:
            taken.append(first)
    while len(taken) < repeat and (not taken or sum(taken) < seconds):
        taken.append(_timed(step))
    return Timing(tuple(taken))


def _timed(step: Callable[[], object]) -> float:
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        step()
        return time.perf_counter() - start
    finally:
        if collecting:
            gc.enable()
