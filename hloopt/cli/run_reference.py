"""What results of ``hloopt run`` are compared with: the interpreter's, or what stands in for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from hloopt.interpret import evaluate_participants
from hloopt.interpret.progress import Progress
from hloopt.interpret.rounding import moved_inputs
from hloopt.ir import Module
from hloopt.report.run import Row
from hloopt.runtime.judge import Judge, named

if TYPE_CHECKING:
    from hloopt.cli.run_options import RunOptions
    from hloopt.interpret import Host
    from hloopt.runtime.program import Program

__all__ = ["Measure", "Reference", "Results", "Tolerances"]


class Tolerances(TypedDict):
    """What the user says about tolerances; None leaves it to the judge."""

    rtol: float | None
    atol: float | None


Results: TypeAlias = "list[list[Any]]"
Measure: TypeAlias = "Callable[[Row, Callable[[Host], Results]], tuple[Row, Results, Host]]"
"""Runs a form of the module some times: its row with times, its results, and what it said to the host."""


class Reference:
    """Results to compare with, and the judge; ``name`` says whose they are.

    Where the interpreter is not asked, or does not come to an end in time, ``skipped`` has the words, and
    results of the first program that is run stand in (``stand_in``).
    """

    def __init__(
        self,
        module: Module,
        arrays: Results,
        host: Host,
        options: RunOptions,
        *,
        counts: tuple[int, int],
        enter: Callable[[str, Progress], None],
    ) -> None:
        self.name = ""
        self.results: Results | None = None
        self.heard: Host | None = None
        self.skipped = ""
        self._tolerance = Tolerances(rtol=options.rtol, atol=options.atol)
        self.judge = Judge(**self._tolerance)
        self._module, self._arrays, self._host = module, arrays, host
        self._excess_precision = options.excess_precision
        self._counts, self._seconds = counts, options.interpreter_seconds
        self._enter = enter

    def interpret(self, measure: Measure) -> list[Row]:
        """Ask the interpreter: its row, or none."""
        if self._seconds == 0:
            self.skipped = "--no-reference"
            return []
        end = None if self._seconds is None else monotonic() + self._seconds
        progress = Progress(end)

        def run(own: Host) -> Results:
            return evaluate_participants(
                self._module,
                self._arrays,
                *self._counts,
                excess_precision=self._excess_precision,
                host=own,
                progress=progress,
            )

        self._enter("interpreter", progress)
        try:
            row, self.results, self.heard = measure(Row("interpreter"), run)
        except TimeoutError:
            taken = f"the interpreter was at {progress} after {self._seconds:g} seconds"
            self.skipped = f"--reference-seconds: {taken}"
            return []
        self.name = row.name

        def begin(number: int) -> Progress:
            more = Progress(end)
            self._enter(f"what rounding allows, evaluation {number}", more)
            return more

        self.judge = Judge.of(
            self._module,
            self._arrays,
            self.results,
            counts=self._counts,
            host=self._host,
            written=self.heard.written,
            begin=begin,
            excess_precision=self._excess_precision,
            **self._tolerance,
        )
        return [row]

    def compared(self, outputs: Results, own: Host) -> dict[str, Any]:
        """What a row says of results and of what was said to the host."""
        if self.results is None or self.heard is None:
            return {}
        written = tuple(self.judge.compare_named(own.written, self.heard.written))
        return {**self.against(outputs, self.results, self.name), "written": written}

    def against(
        self, outputs: Results, expected: Sequence[Sequence[Any]] | None, name: str
    ) -> dict[str, Any]:
        """What a row says of results beside others."""
        if expected is None:
            return {}
        return {"against": name, "comparisons": tuple(self.judge.compare_all(outputs, expected))}

    def stand_in(self, name: str, program: Program, outputs: Results, own: Host) -> None:
        """Take a program's results where there are none yet.

        How far rounding may take them its own runs say, with inputs that are moved by a unit in the last place.
        """
        if self.results is not None:
            return
        self.name, self.results, self.heard = name, [list(one) for one in outputs], own

        def sample(number: int) -> Mapping[Hashable, Any]:
            host = self._host.restarted()
            inputs = [moved_inputs(given, number) for given in self._arrays]
            return named(program.run_participants(inputs, host), host.written)

        self.judge = Judge(named(self.results, own.written), sample, **self._tolerance)
