"""Bisecting a dump: which stage changes results, by which rewrite, and what disables its pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from hloopt.dataclass import dataclass
from hloopt.errors import HlooptError, UsageError
from hloopt.ir import Module
from hloopt.prover.bisection import (
    Bisection,
    ChangedInstruction,
    Culprit,
    different_results,
)
from hloopt.prover.dumped_stages import (
    DumpStage,
    compiler_of,
    is_about_running,
    read_stage,
    starts_whole,
)
from hloopt.prover.executor import Executor, Run
from hloopt.prover.explained import explained
from hloopt.prover.pass_classes import required_on_gpu
from hloopt.prover.rewritten import rewritten
from hloopt.prover.stages import StagePair, StageSearch
from hloopt.prover.trials import Arrays, TrialInputs, TrialOptions
from hloopt.prover.xla_oracle import XlaOracle
from hloopt.runtime.inputs import load_all_expected
from hloopt.runtime.tolerance import FREE, Tolerance
from hloopt.spelling import first_of
from hloopt.types import Array

if TYPE_CHECKING:
    from hloopt.proto.snapshot import Snapshot

__all__ = ["DumpBisect"]


@dataclass
class DumpBisect:
    """A bisection of the stages of one module of a dump.

    name       the module, as the dump calls it; ``folder`` is the dump
    stages     in the order of compilation, two at least
    inputs     on which inputs stages are run
    every      find all stages that change results, not only the first
    snapshot   of one run, in the dump
    recorded   results on the first inputs, of each participant, that the compiled program gave; None for the
               snapshot's, where nothing is said about inputs
    flags      ``XLA_FLAGS`` with which XLA is asked
    expect     a file or folder of such results
    weights    of the module that was compiled into the dump, which has none
    search     what was examined, once it runs
    """

    name: str
    folder: str
    stages: Sequence[DumpStage]
    inputs: TrialOptions = TrialOptions()
    executor: Executor = Executor()
    tolerance: Tolerance = FREE
    every: bool = False
    snapshot: Snapshot | None = None
    recorded: Arrays | None = None
    flags: str = ""
    expect: Path | None = None
    weights: Mapping[int, Array] = field(default_factory=dict)
    search: StageSearch | None = None
    _asking: str = ""

    @property
    def status(self) -> str:
        """Where the search is, for a progress line."""
        if self._asking:
            return self._asking
        return self.search.status if self.search is not None else ""

    @property
    def part(self) -> float | None:
        """How much of the search is done, from 0 to 1; None if unknown."""
        return None if self._asking or self.search is None else self.search.part

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
        module = read_stage(self.stages[0])
        module.weights = self.weights
        is_whole = starts_whole(self.stages, module)
        search = self.search = StageSearch(
            self.stages,
            self._trials(module, is_whole=is_whole),
            self.executor,
            self.tolerance,
            every=self.every,
            is_whole=is_whole,
        )
        search.run()
        culprits = [self._culprit(pair) for pair in search.found]
        generated = None if culprits else self._generated(search)
        summary = _summary(search)
        if generated is not None:
            culprits.append(generated)
            summary += ": code generation"
        return Bisection(
            "stages",
            self.name,
            self.folder,
            tuple(inputs.origin for inputs in search.trials),
            tuple(search.examined),
            tuple(culprits),
            summary,
            (*_notes(search), *_untried(search, self.inputs)),
            0 if culprits else _failed(search),
        )

    def _trials(self, module: Module, *, is_whole: bool) -> list[TrialInputs]:
        """The inputs of the first stage."""
        snapshot = self.snapshot
        if snapshot is not None and self.recorded is None and snapshot.results:
            asked = self.inputs.inputs or self.inputs.seed is not None
            if not (asked or self.inputs.trials or self.inputs.special):
                self.recorded = [list(snapshot.results)]
        trials = list(self.inputs.all(module, snapshot))
        if self.expect is not None:
            replicas, partitions = trials[0].counts
            count = replicas * (1 if is_whole else partitions)
            self.recorded = load_all_expected(self.expect, module, count)
        return trials

    def _generated(self, search: StageSearch) -> Culprit | None:
        """What the compiled program computes otherwise than the last stage that was run; None where nothing."""
        if self.recorded is None or search.last is None:
            return None
        stage, own = search.last.stage, search.last.runs[0]
        oracle = self._oracle(search.trials[0])
        compared = oracle.judged(own, Run(own.module, self.recorded))
        if compared.equal:
            return None
        first: tuple[str, ...] = ()
        entries: tuple[ChangedInstruction, ...] = ()
        notes = []
        reason = oracle.obstacle()
        try:
            found = None if reason else oracle.first_wrong(read_stage(self.stages[0]))
        except HlooptError as error:
            found, reason = None, str(error).partition("\n")[0]
        if found is not None:
            first = (
                f"the first value that XLA computes otherwise is %{found.instruction.name}",
                found.comparison.reason,
            )
            entries = (ChangedInstruction.of(found.instruction, "before", is_first=True),)
            if found.alone:
                notes.append("it is right where the values before it are returned beside it")
        elif reason:
            notes.append(f"its first wrong value was not searched for: {reason}")
        else:
            notes.append("XLA here computes each of its values right where they are returned")
        return Culprit(
            "code generation",
            stage.label,
            "the stages agree, and the results of the compiled program are others",
            different_results(own, compared),
            first,
            rewritten=entries,
            notes=tuple(notes),
        )

    def _oracle(self, inputs: TrialInputs) -> XlaOracle:
        return XlaOracle(inputs, self.executor, self.tolerance, self.flags, begin=self._ask)

    def _ask(self, what: str) -> None:
        self._asking = what

    def _remedy(self, pair: StagePair) -> tuple[str, str]:
        """What switches off the pass that made a stage, and whether that helps."""
        name = pair.after.pass_name
        if pair.between or not name or not pair.allowed.known:
            return "", ""
        if compiler_of(self.stages) == "hloopt":
            return f"--disable {name}", "untested"
        is_gpu = any("gpu" in stage.label for stage in self.stages)
        required = required_on_gpu(name) if is_gpu else pair.allowed.required
        if required:
            return "", f"cannot be switched off: {required}"
        flag = f"--xla_disable_hlo_passes={name}"
        if is_gpu:
            return flag, "untested: the dump is of XLA's GPU compiler; the one here is for CPUs"
        oracle = self._oracle(pair.inputs)
        obstacle = oracle.obstacle()
        if obstacle:
            return flag, f"untested: {obstacle}"
        first = self.executor.run(read_stage(self.stages[0]), pair.inputs)
        return flag, oracle.without(first, name)

    def _culprit(self, pair: StagePair) -> Culprit:
        allowed, stage = pair.allowed, pair.after
        found = explained(
            *pair.runs,
            pair.inputs,
            pair.compared,
            tolerance=pair.tolerance,
            excess_precision=self.executor.excess_precision,
        )
        remedy, tried = self._remedy(pair)
        return Culprit(
            _names(pair),
            stage.label,
            f"{allowed.kind}: {allowed.reason}, so {allowed.allowed}",
            different_results(pair.runs[0], pair.compared),
            differences=found.differences,
            rewritten=found.parts
            or rewritten(pair.runs[0].module, pair.runs[1].module, found.located),
            remedy=remedy,
            remedy_note=tried,
            notes=(
                *(f"{one.label} is between, not run" for one in pair.between),
                *filter(None, (found.note,)),
            ),
        )


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


def _untried(search: StageSearch, asked: TrialOptions) -> list[str]:
    """What was not tried where all stages agree on one random input."""
    if search.found or not asked.is_plain or not search.trials:
        return []
    return [f"special values were not tried ({search.trials[0].origin} only): --special all"]


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
    if search.found and search.between:
        notes.append(
            f"{search.between} stages between others that give the same results were not run: --every runs all"
        )
    assumed = search.runner.assumed
    if assumed:
        names = first_of(sorted(assumed), 3)
        notes.append(f"nothing says how the parts of {names} lie: as they agree best")
    return notes


def _failed(search: StageSearch) -> int:
    """The exit code where nothing was found: of stages that cannot be read; where none can be run, of that."""
    ran = any(one.outcome == "first" for one in search.examined)
    errors: list[HlooptError] = [
        error for error in search.failures if not ran or not is_about_running(error)
    ]
    return max((error.exit_code for error in errors), default=0)
