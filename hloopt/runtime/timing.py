"""Timing: several runs, those of programs that are compared in turn; their median, minimum and spread.

And what is recorded of a program's steps while it runs on the CPU.  A back end numbers them and calls a clock
around them.  Sums are complete; spans, which a trace shows one by one, are those of one run and limited: of
what runs in loops, so many as there is room for.
"""

from __future__ import annotations

import gc
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Final, NamedTuple

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction

__all__ = [
    "MOST_SPANS",
    "ClockSpan",
    "RecordedRun",
    "StepClock",
    "TimedStep",
    "Timing",
    "measure",
    "measure_in_turn",
]

_FEW = 3  # the least number of runs for a ratio
_UNSTEADY = 0.2  # of the median
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
    def least(self) -> float:
        """The shortest run in seconds: what others on the machine have disturbed least."""
        return min(self.seconds)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles in seconds; of few runs, half their range."""
        low, high = self.middle
        return (high - low) / 2

    @property
    def middle(self) -> tuple[float, float]:
        """The quartiles, between which half of the runs lie; of few runs, the shortest and the longest."""
        if len(self.seconds) < 4:
            return min(self.seconds), max(self.seconds)
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return low, high

    @property
    def is_unsteady(self) -> bool:
        """Whether runs differ by more than a fifth: something else ran, or they are too short to be timed."""
        return self.spread > _UNSTEADY * self.median

    def is_apart(self, other: Timing) -> bool:
        """Whether two surely differ: both have several runs, and their interquartile ranges are disjoint."""
        if min(len(self.seconds), len(other.seconds)) < _FEW:
            return False
        (low, high), (low_other, high_other) = self.middle, other.middle
        return high < low_other or high_other < low


def measure(
    step: Callable[[], object], repeat: int, *, warm_up: bool = True, seconds: float = inf
) -> Timing:
    """Call ``step`` ``repeat`` times; garbage is collected before, not during, each call.

    A call before these warms up, unless it takes so long that it is as good as any other: then it is the
    first of them.  No further call is made once all of them together have taken ``seconds``.
    """
    (timing,) = measure_in_turn((step,), repeat, warm_up=warm_up, seconds=seconds)
    return timing


def measure_in_turn(
    steps: Sequence[Callable[[], object]],
    repeat: int,
    *,
    warm_up: bool = True,
    seconds: float = inf,
) -> tuple[Timing, ...]:
    """As ``measure``, of several steps: each is called once before any is called again.

    What slows the machine down for a while slows them all.
    """
    with _old_objects_rest():
        return _measured(steps, repeat, warm_up=warm_up, seconds=seconds)


@contextmanager
def _old_objects_rest() -> Iterator[None]:
    """The collections before calls look at what calls made: a process with torch in it has millions more."""
    if gc.get_freeze_count():  # somebody else's; they rest already
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _measured(
    steps: Sequence[Callable[[], object]], repeat: int, *, warm_up: bool, seconds: float
) -> tuple[Timing, ...]:
    taken: list[list[float]] = [[] for _ in steps]
    if warm_up:
        for step, own in zip(steps, taken, strict=True):
            first = _timed(step)
            if first >= _LONG:
                own.append(first)
    while True:
        open_ones = [
            (step, own)
            for step, own in zip(steps, taken, strict=True)
            if len(own) < repeat and (not own or sum(own) < seconds)
        ]
        if not open_ones:
            return tuple(Timing(tuple(own)) for own in taken)
        for step, own in open_ones:
            own.append(_timed(step))


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


MOST_SPANS: Final = 100_000
"""How many spans of one run are kept; those of steps of the entry are kept in any case."""


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A step: the instructions that it computes, the one after which it is called last.

    kernel  what computes it: the kernel's family, a library, ``loop`` or ``conditional``
    """

    instructions: tuple[Instruction, ...]
    kernel: str

    @property
    def instruction(self) -> Instruction:
        """The one after which it is called."""
        return self.instructions[-1]


class ClockSpan(NamedTuple):
    """One execution of step number ``step``, or one iteration of the loop that it is; times in nanoseconds."""

    step: int
    participant: int
    begin: int
    end: int
    is_iteration: bool = False


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """What one participant's run took, by the numbers of steps.

    own         nanoseconds of all executions, without those of the steps inside it
    executions  how often each ran
    iterations  how often the body of each loop ran
    """

    own: Sequence[int]
    executions: Sequence[int]
    iterations: Sequence[int]


class StepClock(ABC):
    """The clock of one program; ``steps`` are what its numbers mean, known once the program is compiled."""

    steps: list[TimedStep]

    @abstractmethod
    def start(self) -> None:
        """Begin another run: all counts are 0."""

    @abstractmethod
    def taken(self) -> list[RecordedRun]:
        """What the last run of each participant took."""

    @abstractmethod
    def spans(self) -> Iterator[ClockSpan]:
        """The spans of the last run that were kept, in the order of their ends."""

    @property
    @abstractmethod
    def left_out(self) -> int:
        """How many spans of the last run were not kept."""
