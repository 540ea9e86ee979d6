"""Which steps of a plan a device may capture in one piece, as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from hloopt.kernels.plan import KernelStep, PlanStep, WhileStep

__all__ = ["PlanPart", "PlanSegment", "grouped"]

# So many kernels of a loop at most are unrolled into a graph; longer loops replay a graph per iteration.
_LONGEST_LOOP = 1024


class PlanSegment:
    """Consecutive steps that need nothing from the host; ``kernels`` is how many kernels run in all.

    Loops of known trip count are among them, unrolled.  ``graphs`` are the device's, by the addresses of memory
    that is lent to a run; None where the steps have run there once, without a graph.
    """

    def __init__(self, steps: Sequence[PlanStep], kernels: int) -> None:
        self.steps = tuple(steps)
        self.kernels = kernels
        self.graphs: dict[tuple[int, ...], int | None] = {}

    def unrolled(self) -> Iterator[KernelStep]:
        """The kernels in the order in which they run."""
        yield from _unrolled(self.steps)


PlanPart: TypeAlias = "PlanSegment | PlanStep"


def grouped(
    steps: Sequence[PlanStep], may_capture: Callable[[KernelStep], bool]
) -> Iterator[PlanPart]:
    """The steps, those in a row that can be captured as one; a kernel alone is not worth a graph."""
    row: list[PlanStep] = []
    size = 0
    for step in steps:
        kernels = _kernels_in(step, may_capture)
        if kernels is not None and (isinstance(step, KernelStep) or kernels <= _LONGEST_LOOP):
            row.append(step)
            size += kernels
            continue
        yield from _close(row, size)
        row, size = [], 0
        yield step
    yield from _close(row, size)


def _kernels_in(step: PlanStep, may_capture: Callable[[KernelStep], bool]) -> int | None:
    """How many kernels a graph would have for a step; None where it cannot be in one."""
    if isinstance(step, KernelStep):
        return 1 if may_capture(step) else None
    if not isinstance(step, WhileStep) or step.iterations is None:
        return None
    total = 0
    for inner in step.body:
        kernels = _kernels_in(inner, may_capture)
        if kernels is None:
            return None
        total += kernels
    return step.iterations * total


def _close(row: list[PlanStep], kernels: int) -> Iterator[PlanPart]:
    if kernels > 1:
        yield PlanSegment(row, kernels)
    else:
        yield from row


def _unrolled(steps: Sequence[PlanStep]) -> Iterator[KernelStep]:
    for step in steps:
        if isinstance(step, KernelStep):
            yield step
        else:
            assert isinstance(step, WhileStep)
            for _ in range(step.iterations or 0):
                yield from _unrolled(step.body)
