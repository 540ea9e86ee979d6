"""Which stage of a compilation changes the results: the stages of a dump, run on the same inputs.

Each stage is compared with the one before it that could be run, as the class of its pass allows
(``pass_classes``).  Where there are many, those at the ends of an interval are run first: if they give the same
bits, what is between them waits until nothing else was found.  What cannot be read or run is left out, and said
so: the next stage is then compared across it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import field
from typing import Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.errors import EvaluationError, HlooptError, SourceError
from hloopt.ir import Module
from hloopt.ir.normal import normal_attributes, normal_shape
from hloopt.ops import traits
from hloopt.prover.bisection import Examined, SearchOutcome
from hloopt.prover.comparing import RunsCompared, compare_runs
from hloopt.prover.dumped_stages import DumpStage, compiler_of, is_about_running, read_stage
from hloopt.prover.executor import Executor, Run
from hloopt.prover.pass_classes import PassClass, pass_class
from hloopt.prover.stage_runs import RunMark, StageRunner, StageRuns, same_results
from hloopt.prover.trials import TrialInputs
from hloopt.runtime.comparison import unlike
from hloopt.runtime.tolerance import FREE, Tolerance
from hloopt.types import of_numpy

__all__ = ["StagePair", "StageSearch"]

_FEW: Final = 16
"""Stages that are all run, in their order."""


@dataclass(frozen=True)
class StagePair:
    """Two stages that were run one after the other, the later of which gives other results.

    tolerance  how far the results were allowed to differ
    between    stages between them, which could not be read or run
    """

    before: DumpStage
    after: DumpStage
    allowed: PassClass
    inputs: TrialInputs
    runs: tuple[Run, Run]
    compared: RunsCompared
    tolerance: Tolerance
    between: tuple[DumpStage, ...] = ()


@dataclass
class StageSearch:
    """Runs stages and finds those that change results.

    trials     the inputs, each of which every stage is run on
    tolerance  what a user allows of every pass in place of what its class does
    every      find all stages that change results, not only the first
    is_whole   the first stage has not been partitioned: later ones may work on parts of its arrays
    status     where the search is, for a progress line; ``part`` is that of the stages when all of them are
               run in their order, from 0 to 1
    runner     runs them, and knows what was run
    """

    stages: Sequence[DumpStage]
    trials: Sequence[TrialInputs]
    executor: Executor = field(default_factory=Executor)
    tolerance: Tolerance = FREE
    every: bool = False
    is_whole: bool = False
    found: list[StagePair] = field(default_factory=list)
    status: str = ""
    part: float | None = None
    _judged: dict[int, tuple[SearchOutcome, str]] = field(default_factory=dict)
    _begun: int | None = None

    def __post_init__(self) -> None:
        self.runner = StageRunner(self.stages, self.trials, self.executor, self.is_whole)
        self._compiler = compiler_of(self.stages)

    def run(self) -> None:
        """Examine the stages; ``examined``, ``found`` and ``failures`` say what came of it."""
        self.status = f"stage 1 of {len(self.stages)}"
        self._begun = self.runner.begin()
        if self._begun is None:
            return
        last = len(self.stages) - 1
        if last > _FEW and not self.every and not self.is_whole:
            while last > self._begun and not self._tells(last):
                last -= 1
            self._halve(self._begun, last)
        if self.every or not self.found:
            self._walk(self._begun)

    @property
    def examined(self) -> list[Examined]:
        """The stages that were run, in order, up to the first that changes results, unless all are wanted."""
        rows: list[Examined] = []
        marks = self.runner.marks
        before: RunMark | None = None
        for number in sorted(marks):
            mark, label = marks[number], self.stages[number].label
            outcome, note = self._judged.get(number, ("equal", ""))
            if mark.error is not None and number not in self._judged:
                rows.append(_failure(self.stages[number], mark.error))
                continue
            if before is None:
                outcome = "first"
            elif number not in self._judged and before.digest == mark.digest:
                outcome = "same"
            rows.append(Examined(label, outcome, note))
            before = mark if mark.error is None else before
            if outcome == "differs" and not self.every:
                break
        return rows

    @property
    def failures(self) -> list[HlooptError]:
        """Errors of the stages that cannot be read or run."""
        marks = self.runner.marks
        return [error for number in sorted(marks) if (error := marks[number].error) is not None]

    @property
    def last(self) -> StageRuns | None:
        """The last stage that can be run, of those that were."""
        good = [number for number, mark in self.runner.marks.items() if mark.error is None]
        return self.runner.runs(max(good)) if good else None

    @property
    def between(self) -> int:
        """How many stages before the last that was run were not: they lie between equal results."""
        known = self.runner.marks
        return sum(number not in known for number in range(max(known, default=0)))

    def _say(self, number: int) -> None:
        stage = self.stages[number]
        name = stage.pass_name or stage.label
        self.status = f"stage {number + 1} of {len(self.stages)}, {name}"

    def _tells(self, number: int) -> bool:
        """Run a stage unless it was; whether that tells something: its results, or that its run stops."""
        if number not in self.runner.marks:
            self._say(number)
            for _ in self.runner.ask([number]):
                pass
        mark = self.runner.marks[number]
        return mark.error is None or mark.stops

    def _halve(self, low: int, high: int) -> None:
        """Find the first change between two stages, as far as results at the ends of intervals show it."""
        marks = self.runner.marks
        while low < high and not self.found and marks[low].results != marks[high].results:
            inner = [n for n in range(low + 1, high) if n not in marks or self._tells(n)]
            if not inner:
                self._judge(low, high)
                return
            middle = inner[len(inner) // 2]
            if self._tells(middle):
                self._halve(low, middle)
                low = middle

    def _walk(self, begun: int) -> None:
        """Run all stages in their order, as far as wanted."""
        last = begun
        marks = self.runner.marks
        for number in self._in_order(begun + 1):
            self._say(number)
            self.part = number / len(self.stages)
            if self._tells(number):
                if marks[number].results != marks[last].results and number not in self._judged:
                    self._judge(last, number)
                last = last if marks[number].stops else number
            if self.found and not self.every:
                return

    def _in_order(self, start: int) -> Iterator[int]:
        """The numbers of stages, each when its mark is known."""
        numbers = range(start, len(self.stages))
        known = set(self.runner.marks)
        asked = self.runner.ask(numbers)
        for number in numbers:
            if number not in known:
                next(asked)
            yield number

    def _stopped(self, low: int, high: int) -> None:
        """A stage whose run stops, or goes on far longer than that of the first one: it has no results."""
        last, stage = self.runner.runs(low), self.stages[high]
        error = self.runner.marks[high].error
        assert error is not None, "what stops has an error"
        before = last.runs[0]
        reason = error.reason if isinstance(error, EvaluationError) else error.message
        problem = f"there is none: {reason}"
        results = tuple(
            unlike(of_numpy(array.dtype), array.size, problem)
            for arrays in before.results
            for array in arrays
        )
        skipped = self._between(low, high)
        runs = before, Run(read_stage(stage), before.results)
        pair = (last.stage, stage, self._allowed(stage, skipped), self.trials[0], runs)
        self.found.append(StagePair(*pair, RunsCompared(results), self.tolerance, skipped))
        self._judged[high] = "differs", reason

    def _between(self, low: int, high: int) -> tuple[DumpStage, ...]:
        return tuple(self.stages[low + 1 : high])

    def _judge(self, low: int, high: int) -> None:
        """Compare two stages, between which none can be run, as the later one's class allows."""
        if self.runner.marks[high].stops:
            self._stopped(low, high)
            return
        last, ran, skipped = self.runner.runs(low), self.runner.runs(high), self._between(low, high)
        allowed = self._allowed(ran.stage, skipped)
        if allowed.kind == "open":
            self._judged[high] = "skipped", allowed.reason
            return
        within = ""
        for inputs, before, after in zip(self.trials, last.runs, ran.runs, strict=True):
            if same_results(before, after):
                continue
            tolerance, within = self._tolerance(allowed, before.module, after.module)
            compared = compare_runs(
                before,
                after,
                inputs,
                tolerance=tolerance,
                excess_precision=self.executor.excess_precision,
            )
            if compared.equal and not self.tolerance.is_given and _loses_numbers(before, after):
                tolerance = _FAR
                compared = compare_runs(before, after, inputs, tolerance=_FAR)
            if not compared.equal:
                runs = (before, after)
                self.found.append(
                    StagePair(
                        last.stage, ran.stage, allowed, inputs, runs, compared, tolerance, skipped
                    )
                )
                self._judged[high] = "differs", allowed.kind
                return
        self._judged[high] = "within" if within else "equal", within

    def _allowed(self, stage: DumpStage, skipped: Sequence[DumpStage]) -> PassClass:
        """What the passes since the last stage that was run may do, the widest of them."""
        pipelines = {one.pipeline for one in self.stages}
        found = [
            _no_pass(one, pipelines) or pass_class(one.pass_name, self._compiler)
            for one in (*skipped, stage)
        ]
        return max(found, key=lambda one: _WIDTHS.index(one.kind))

    def _tolerance(
        self, allowed: PassClass, before: Module, after: Module
    ) -> tuple[Tolerance, str]:
        """How far results may differ, and why."""
        if self.tolerance.is_given:
            return self.tolerance, f"within {self.tolerance}"
        if allowed.kind != "exact":
            return FREE, allowed.kind
        if _sums(before) != _sums(after):
            return FREE, "sums have another form, in which terms are added in another order"
        return Tolerance(bitwise=True), ""


_WIDTHS: Final = ("exact", "rounding", "type", "open")
_SUMS: Final = traits.FOLDING | traits.LIBRARY | traits.COLLECTIVE | {"custom-call"}


def _no_pass(stage: DumpStage, pipelines: Collection[str]) -> PassClass | None:
    """The class of a stage that more than one pass may have made."""
    if not stage.pass_name:
        reason = "passes whose stages were not dumped"
    elif stage.pass_name in pipelines:
        reason = "a pipeline of passes whose stages were not dumped"
    else:
        return None
    return PassClass(stage.pass_name or stage.label, "rounding", reason, known=False)


_FAR: Final = Tolerance(rtol=1.0, atol=1.0)
"""By which numbers are alike, and NaN and numbers are not."""


def _loses_numbers(before: Run, after: Run) -> bool:
    """Whether a result is NaN where it was a number: also where rounding explains it."""
    with np.errstate(all="ignore"):
        return any(
            bool(np.any(np.isfinite(one) & np.isnan(other)))
            for owns, others in zip(before.results, after.results, strict=True)
            for one, other in zip(owns, others, strict=True)
            if one.dtype.kind not in "biu"
        )


def _sums(module: Module) -> Counter[str]:
    """What adds up many terms, by all that decides in which order."""
    return Counter(
        f"{entry.opcode} {normal_shape(entry.shape)} "
        f"{[normal_shape(operand.shape) for operand in entry.operands]} "
        f"{[(name, value) for name, value in normal_attributes(entry).items() if name != 'to_apply']}"
        for entry in module.instructions()
        if entry.opcode in _SUMS
    )


def _failure(stage: DumpStage, error: HlooptError) -> Examined:
    place = ""
    if isinstance(error, SourceError | EvaluationError) and error.line:
        file = error.name if isinstance(error, SourceError) else str(stage.file)
        place = f"{file}:{error.line}:{error.column}"
    reason = error.reason if isinstance(error, EvaluationError) else error.message
    outcome: SearchOutcome = "not run" if is_about_running(error) else "unreadable"
    return Examined(stage.label, outcome, reason, place)
