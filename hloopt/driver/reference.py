"""What results of a run are compared with: the interpreter's, or what stands in for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from hloopt.analysis.trip_count import trip_count
from hloopt.dataclass import dataclass
from hloopt.driver.not_finite import first_not_finite
from hloopt.interpret import evaluate_participants
from hloopt.interpret.progress import Progress
from hloopt.interpret.rounding import moved_inputs
from hloopt.ir import Instruction, Module
from hloopt.report.run import RunRow
from hloopt.runtime.judge import Judge, named
from hloopt.runtime.memory import peak_memory

if TYPE_CHECKING:
    from hloopt.driver.options import RunOptions
    from hloopt.interpret import Host
    from hloopt.runtime.program import Program

__all__ = ["Outputs", "Reference", "TimedRun"]

Outputs: TypeAlias = "list[list[Any]]"
"""The arrays of each participant, flat and in order."""


@dataclass
class TimedRun:
    """A call that is timed: each begins at the start of the streams ``host``; the first measures memory, too.

    ``begin`` is called before each run.  ``outputs`` and ``said`` are what the last run gave, ``peak`` the most
    bytes that the first one took beside its inputs, None where that is unknown.
    """

    name: str
    run: Callable[[Host], Outputs]
    host: Host
    begin: Callable[[], None] = lambda: None
    outputs: Outputs = field(default_factory=list)
    said: Host | None = None
    peak: int | None = None

    def __call__(self) -> None:
        self.begin()
        if self.said is not None:
            self._once()
            return
        with peak_memory() as memory:
            self._once()
        self.peak = memory.peak

    def _once(self) -> None:
        self.said = self.host.restarted()
        self.outputs = []  # the last run's are given back first
        self.outputs = self.run(self.said)


def _count(loop: Instruction) -> int | None:
    return trip_count(loop, 0, believe=True)


class Reference:
    """Results to compare with, and the judge; ``name`` says whose they are.

    Where the interpreter is not run, or does not finish in time, ``skipped`` says why, and
    results of the first program that is run stand in (``stand_in``).
    """

    def __init__(
        self,
        module: Module,
        arrays: Outputs,
        host: Host,
        options: RunOptions,
        counts: tuple[int, int],
        enter: Callable[[str, Progress], None],
    ) -> None:
        self.name = ""
        self.results: Outputs | None = None
        self.heard: Host = host
        self.skipped = ""
        self.module, self._arrays, self._host, self._counts = module, arrays, host, counts
        self._options, self._enter = options, enter
        self._judged_by = partial(Judge, tolerance=options.tolerance)
        self._judge = self._judged_by()

    def interpret(self, measure: Callable[[TimedRun], RunRow]) -> RunRow | None:
        """Run the interpreter: its row, or None."""
        seconds, excess = self._options.interpreter_seconds, self._options.excess_precision
        if seconds == 0:
            self.skipped = "--no-verify"
            return None
        end = None if seconds is None else monotonic() + seconds
        progress = Progress(end, _count)

        def run(own: Host) -> Outputs:
            return evaluate_participants(
                self.module,
                self._arrays,
                *self._counts,
                excess_precision=excess,
                host=own,
                progress=progress,
            )

        def begin(number: int) -> Progress:
            more = Progress(end, _count)
            self._enter(f"what rounding allows, evaluation {number}", more)
            return more

        self._enter("interpreter", progress)
        timed = TimedRun("interpreter", run, self._host)
        try:
            row = measure(timed)
        except TimeoutError:
            taken = f"the interpreter was at {progress} after {seconds:g} seconds"
            self.skipped = f"reference_seconds: {taken}"
            return None
        heard = self._take(timed)
        self._judge = Judge.of(
            self.module,
            self._arrays,
            timed.outputs,
            counts=self._counts,
            host=self._host,
            written=heard.written,
            begin=begin,
            excess_precision=excess,
            tolerance=self._options.tolerance,
        )
        return row

    def _take(self, run: TimedRun) -> Host:
        assert run.said is not None, "it has run"
        self.name, self.results, self.heard = run.name, run.outputs, run.said
        return run.said

    def first_not_finite(self) -> str:
        """Where the first NaN or infinity of the results comes from; empty where that is not found out."""
        results = self.results or ()
        return first_not_finite(self.module, self._arrays, results, self._counts, self._host)

    def compared(self, run: TimedRun) -> dict[str, Any]:
        """What a row says of the results of a run and of what was said to the host."""
        if self.results is None or run.said is None:
            return {}
        written = tuple(self._judge.compare_named(run.said.written, self.heard.written))
        return {**self.against(run.outputs, self.results, self.name), "written": written}

    def against(
        self, outputs: Outputs, expected: Sequence[Sequence[Any]] | None, name: str
    ) -> dict[str, Any]:
        """What a row says of results beside others."""
        if expected is None:
            return {}
        return {"against": name, "comparisons": tuple(self._judge.compare_all(outputs, expected))}

    def stand_in(self, run: TimedRun, program: Program) -> None:
        """Take a program's results where there are none yet.

        What rounding allows is measured by runs of the program on inputs moved by a unit in the last place.
        """
        if self.results is not None:
            return
        heard = self._take(run)
        self.results = [list(one) for one in run.outputs]

        def sample(number: int) -> Mapping[Hashable, Any]:
            host = self._host.restarted()
            inputs = [moved_inputs(given, number) for given in self._arrays]
            return named(program.run_participants(inputs, host), host.written)

        self._judge = self._judged_by(named(self.results, heard.written), sample)
