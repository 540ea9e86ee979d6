"""The clock of a native program: what its timed driver writes into, and how that is read."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Final

import numpy as np

from hloopt.kernels.plan import HostStep, KernelStep, Plan, PlanStep, WhileStep, walk_steps
from hloopt.runtime.timing import MOST_SPANS, ClockSpan, RecordedRun, StepClock, TimedStep

__all__ = ["PlanClock"]

_POINTERS: Final = ("own", "executions", "iterations", "spans")
_COUNTS: Final = ("count", "room", "reserve", "left_out", "inside", "depth")


class _Times(ctypes.Structure):
    """``Times`` of native.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in _POINTERS),
        *((name, ctypes.c_longlong) for name in _COUNTS),
    )


class PlanClock(StepClock):
    """The steps of a plan, by their numbers in ``walk_steps``; ``times`` is what the driver writes into."""

    def __init__(self, plan: Plan, most_spans: int = MOST_SPANS) -> None:
        walked = list(walk_steps(plan.steps))
        self.steps = [TimedStep((step.instruction,), _kernel(step)) for step in walked]
        self._own, self._executions, self._iterations = (
            np.zeros(len(walked), np.int64) for _ in range(3)
        )
        self._spans = np.zeros((most_spans + len(plan.steps), 4), np.int64)
        arrays = (self._own, self._executions, self._iterations, self._spans)
        room = {"room": len(self._spans), "reserve": len(plan.steps)}
        self.times = _Times(*(array.ctypes.data for array in arrays), **room)

    def start(self) -> None:
        """Begin another run."""
        for array in (self._own, self._executions, self._iterations):
            array[:] = 0
        for name in ("count", "left_out", "inside", "depth"):
            setattr(self.times, name, 0)

    def taken(self) -> list[RecordedRun]:
        """What the last run took: a plan has one participant."""
        sums = (self._own, self._executions, self._iterations)
        return [RecordedRun(*(array.tolist() for array in sums))]

    def spans(self) -> Iterator[ClockSpan]:
        """The spans of the last run."""
        for step, begin, end, is_iteration in self._spans[: self.times.count].tolist():
            yield ClockSpan(step, 0, begin, end, bool(is_iteration))

    @property
    def left_out(self) -> int:
        """How many there was no room for."""
        return int(self.times.left_out)


def _kernel(step: PlanStep) -> str:
    if isinstance(step, KernelStep):
        return step.spec.library or step.spec.kernel
    if isinstance(step, HostStep):
        return "interpreter"
    return "loop" if isinstance(step, WhileStep) else "conditional"
