"""Timing: the median of several runs and their spread."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

__all__ = ["Timing", "measure"]


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

    No further call is made once all of them together have taken ``seconds``.
    """
    if warm_up:
        step()
    taken: list[float] = []
    collecting = gc.isenabled()
    while len(taken) < repeat and (not taken or sum(taken) < seconds):
        gc.collect()
        gc.disable()
        try:
            start = time.perf_counter()
            step()
            taken.append(time.perf_counter() - start)
        finally:
            if collecting:
                gc.enable()
    return Timing(tuple(taken))
