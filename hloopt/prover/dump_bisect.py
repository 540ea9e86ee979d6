"""Bisecting a dump: which stage changes results, by which rewrite, and what disables its pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from hloopt.analysis.differences import differences
from hloopt.dataclass import dataclass
from hloopt.errors import HlooptError, UsageError
from hloopt.ir import Instruction, Module
from hloopt.prover.bisection import (
    Bisection,
    ChangedInstruction,
    ChangedSide,
    Culprit,
    different_results,
)
from hloopt.prover.executor import Executor
from hloopt.prover.stages import (
    DumpStage,
    StagePair,
    StageSearch,
    compiler_of,
    is_about_running,
    read_stage,
)
from hloopt.prover.trials import TrialInputs, TrialOptions
from hloopt.runtime.tolerance import FREE, Tolerance

__all__ = ["DumpBisect"]

_MOST_REWRITTEN: Final = 12


@dataclass
class DumpBisect:
    """A bisection of the stages of one module of a dump.

    name       the module, as the dump calls it; ``folder`` is the dump
    stages     in the order of compilation, two at least
    inputs     on which inputs stages are run
    every      find all stages that change results, not only the first
    search     what was examined, once it runs
    """

    name: str
    folder: str
    stages: Sequence[DumpStage]
    inputs: TrialOptions = TrialOptions()
    executor: Executor = Executor()
    tolerance: Tolerance = FREE
    every: bool = False
    search: StageSearch | None = None

    @property
    def status(self) -> str:
        """Where the search is, for a progress line."""
        return self.search.status if self.search is not None else ""

    @property
    def unreadable(self) -> list[HlooptError]:
        """Errors of the stages that cannot be read."""
        failures = self.search.failures if self.search is not None else []
        return [error for error in failures if not is_about_running(error)]

    def run(self) -> Bisection:
        """Examine the stages.

        Raises ``UsageError`` where there are fewer than two, what reading the first one raises, and
        ``UsageError`` where inputs do not fit it.
        """
        if len(self.stages) < 2:
            raise UsageError(
                f"{self.name}: it has one stage in this dump, and bisecting needs two: dump with "
                "--xla_dump_hlo_pass_re=.*"
            )
        search = self.search = StageSearch(
            self.stages, self._trials(), self.executor, self.tolerance, every=self.every
        )
        search.run()
        return self._record(search)

    def _trials(self) -> list[TrialInputs]:
        """The inputs of the first stage that can be read."""
        return list(self.inputs.all(read_stage(self.stages[0])))

    def _record(self, search: StageSearch) -> Bisection:
        culprits = tuple(self._culprit(pair) for pair in search.found)
        return Bisection(
            "stages",
            self.name,
            self.folder,
            tuple(inputs.origin for inputs in search.trials),
            tuple(search.examined),
            culprits,
            _summary(search),
            tuple(_notes(search)),
            0 if culprits else _failed(search),
        )

    def _culprit(self, pair: StagePair) -> Culprit:
        allowed, stage = pair.allowed, pair.after
        return Culprit(
            _names(pair),
            stage.label,
            f"{allowed.kind}: {allowed.reason}, so {allowed.allowed}",
            different_results(pair.runs[0], pair.compared),
            rewritten=_rewritten(pair.runs[0].module, pair.runs[1].module),
            notes=tuple(f"{one.label} is between, not run" for one in pair.between),
        )


def _rewritten(before: Module, after: Module) -> tuple[ChangedInstruction, ...]:
    """The first instructions that differ."""
    found: dict[Instruction, ChangedInstruction] = {}
    for one in differences(before, after):
        sides: tuple[tuple[Instruction | None, ChangedSide], ...] = (
            (one.before, "before"),
            (one.after, "after"),
        )
        for entry, side in sides:
            if entry is not None and len(found) < _MOST_REWRITTEN:
                found.setdefault(entry, ChangedInstruction.of(entry, side))
    return tuple(found.values())


def _names(pair: StagePair) -> str:
    """The pass, or the passes one of which it is."""
    names = [one.pass_name or one.label for one in (*pair.between, pair.after)]
    return " or ".join(dict.fromkeys(names))


def _summary(search: StageSearch) -> str:
    counts = Counter(one.outcome for one in search.examined)
    left = counts["not run"] + counts["unreadable"]
    if search.found:
        pair = search.found[0]
        return f"{_names(pair)} changes results: stage {pair.after.label}"
    if not counts["first"]:
        return "no stage can be run"
    ran = len(search.examined) - left
    agree = f"all {ran} stages agree"
    return f"{agree}; {left} cannot be read or run" if left else agree


def _notes(search: StageSearch) -> list[str]:
    notes = []
    passes = [stage for stage in search.stages if stage.pass_name]
    if not passes:
        notes.append(
            "the dump has no stages between passes: --xla_dump_hlo_pass_re=.* writes one for each "
            "pass that changes the module"
        )
    if compiler_of(search.stages) == "hloopt":
        notes.append("the stages are of hloopt's own passes")
    return notes


def _failed(search: StageSearch) -> int:
    """The exit code where nothing was found: of stages that cannot be read; where none can be run, of that."""
    ran = any(one.outcome == "first" for one in search.examined)
    errors: list[HlooptError] = [
        error for error in search.failures if not ran or not is_about_running(error)
    ]
    return max((error.exit_code for error in errors), default=0)
