"""The clock that a compiled line calls between its steps, where they are timed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from time import perf_counter_ns

from hloopt.ir import Instruction
from hloopt.ops.traits import LIBRARY
from hloopt.runtime.timing import MOST_SPANS, ClockSpan, RecordedRun, StepClock, TimedStep

__all__ = ["LineClock"]


class _Participant:
    """The sums of one participant.

    inside   for each step that it is in, what steps within it took, with the clock's own work
    skipped  how long others ran, and the clock stood still; ``left`` is when the last of them began
    """

    def __init__(self) -> None:
        self.own: defaultdict[int, int] = defaultdict(int)
        self.executions: defaultdict[int, int] = defaultdict(int)
        self.iterations: defaultdict[int, int] = defaultdict(int)
        self.inside = [0]
        self.skipped = 0
        self.left = 0


class LineClock(StepClock):
    """Called by one thread at a time; the time of a participant stands still while others run.

    What a line calls returns the time at which the next step begins, so that the clock's own work counts for
    no step.
    """

    def __init__(self, most_spans: int = MOST_SPANS) -> None:
        self.steps: list[TimedStep] = []
        self._most = most_spans
        self._participants: dict[int, _Participant] = {}
        self._numbers: dict[tuple[Instruction, ...], int] = {}
        self.start()

    def number(self, instructions: Sequence[Instruction]) -> int:
        """The number of the step that computes these instructions."""
        key = tuple(instructions)
        if key not in self._numbers:
            self._numbers[key] = len(self.steps)
            self.steps.append(TimedStep(key, _kernel(key[-1])))
        return self._numbers[key]

    def start(self) -> None:
        """Begin another run."""
        self._spans: list[tuple[int, int, int, int, bool]] = []
        self._left_out = 0
        self._participants.clear()
        self._number = 0
        self._now = self._participants[0] = _Participant()

    def switch(self, participant: int) -> None:
        """Another participant goes on, or begins."""
        now = perf_counter_ns()
        self._now.left = now
        if participant not in self._participants:
            self._participants[participant] = _Participant()
        else:
            self._participants[participant].skipped += now - self._participants[participant].left
        self._number, self._now = participant, self._participants[participant]

    def begin(self) -> int:
        """The time at which steps begin."""
        return perf_counter_ns() - self._now.skipped

    def lap(self, step: int, begin: int) -> int:
        """A step that contains no others has ended."""
        here = self._now
        end = perf_counter_ns() - here.skipped
        here.own[step] += end - begin
        return self._ended(step, begin, end)

    def enter(self) -> int:
        """A step that contains others begins."""
        self._now.inside.append(0)
        return perf_counter_ns() - self._now.skipped

    def leave(self, step: int, begin: int) -> int:
        """It has ended."""
        here = self._now
        end = perf_counter_ns() - here.skipped
        here.own[step] += end - begin - here.inside.pop()
        return self._ended(step, begin, end)

    def _ended(self, step: int, begin: int, end: int) -> int:
        here = self._now
        here.executions[step] += 1
        self._keep((step, self._number, begin, end, False))
        after = perf_counter_ns() - here.skipped
        here.inside[-1] += after - begin
        return after

    def iterated(self, step: int, begin: int) -> None:
        """An iteration of a loop has ended."""
        here = self._now
        end = perf_counter_ns() - here.skipped
        here.iterations[step] += 1
        self._keep((step, self._number, begin, end, True))
        here.inside[-1] += perf_counter_ns() - here.skipped - end

    def _keep(self, span: tuple[int, int, int, int, bool]) -> None:
        if len(self._spans) < self._most or len(self._now.inside) == 1:
            self._spans.append(span)
        else:
            self._left_out += 1

    def taken(self) -> list[RecordedRun]:
        """What the last run of each participant took."""
        numbers = range(len(self.steps))
        return [
            RecordedRun(
                *(
                    [sums[at] for at in numbers]
                    for sums in (one.own, one.executions, one.iterations)
                )
            )
            for _, one in sorted(self._participants.items())
        ]

    def spans(self) -> Iterator[ClockSpan]:
        """The spans of the last run."""
        return map(ClockSpan._make, self._spans)

    @property
    def left_out(self) -> int:
        """How many were not kept."""
        return self._left_out


def _kernel(instruction: Instruction) -> str:
    if instruction.opcode == "while":
        return "loop"
    if instruction.opcode in ("conditional", "call"):
        return instruction.opcode
    return "library" if instruction.opcode in LIBRARY else "numpy"
