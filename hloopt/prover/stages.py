"""Which stage of a compilation changes the results: the stages of a dump, run on the same inputs.

Each stage is compared with the one before it that could be run, as the class of its pass allows
(``pass_classes``).  A stage whose text is that of the one before it, but for metadata and donation, is not
run again.  What cannot be read or run is left out, and said so: the next stage is then compared across it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import field, replace
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.dumps import DumpModule, Stage
from hloopt.errors import (
    EvaluationError,
    HlooptError,
    ParseError,
    SourceError,
    UnsupportedError,
    UsageError,
)
from hloopt.interpret import participant_counts
from hloopt.interpret.partitioning import is_partitioned
from hloopt.ir import Module
from hloopt.ir.normal import normal_attributes, normal_shape
from hloopt.ops import traits
from hloopt.proto import read_snapshot
from hloopt.proto.snapshot import Snapshot
from hloopt.prover.bisection import Examined, SearchOutcome
from hloopt.prover.comparing import RunsCompared, check_alike, compare_runs
from hloopt.prover.executor import Executor, Run
from hloopt.prover.partitioned import PartitionedRuns
from hloopt.prover.pass_classes import Compiler, PassClass, classes, pass_class
from hloopt.prover.trials import TrialInputs
from hloopt.reading import bytes_of, read_file
from hloopt.runtime.comparison import unlike
from hloopt.runtime.tolerance import FREE, Tolerance
from hloopt.types import Array, of_numpy
from hloopt.verifier import verify_module

__all__ = [
    "DumpStage",
    "StagePair",
    "StageSearch",
    "compiler_of",
    "is_about_running",
    "read_stage",
    "stages_of",
    "starts_whole",
]

_PASS: Final = re.compile(r"\d+\.(?P<pipeline>[^.]+)\.after_(?P<name>.+)\.before_.+")
_STEP: Final = re.compile(r"\d+\.(?P<name>[^.]+)\.(?P<step>.+)")
_START: Final = "pipeline-start"
_PARTITIONERS: Final = frozenset({"spmd-partitioning", "spmd-partitioner"})
_TIMES: Final = 20
_SHORTEST: Final = 20.0
"""How much longer than the first stage a stage may run, and the seconds that each may."""
# What differs in the text of modules that are run alike: metadata, tables of stack frames.
_METADATA: Final = re.compile(rb', metadata=\{[^{}"]*(?:"(?:\\.|[^"\\])*"[^{}"]*)*\}')
_TABLES: Final = re.compile(
    rb"^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:\d+ .*\n)*", re.MULTILINE
)
_DONATION: Final = re.compile(
    rb", (?:input_output_alias|buffer_donor)=\{[^\n]*?\}(?=, [a-z_]+=|\n)"
)


@dataclass(frozen=True)
class DumpStage:
    """A stage of a dump.

    label      what its file is called, without the module's name and the format
    pass_name  the pass that made it; empty for the first, the last and the start of a pipeline
    pipeline   the pipeline that the pass belongs to
    file       the text or the protocol buffer; ``twin`` is a protocol buffer of the same stage
    """

    label: str
    pass_name: str
    pipeline: str
    file: Path
    twin: Path | None = None


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


def stages_of(module: DumpModule, picked: Sequence[Stage] | None = None) -> list[DumpStage]:
    """The stages of a module, or those ``picked``, in the order of compilation.

    Those whose place in it is not known are left out, and what the frontend wrote before any pass (StableHLO).
    """
    stages = module.stages if picked is None else picked
    return [
        _stage_of(stage)
        for stage in stages
        if stage.kind in ("before", "pass", "after") and (stage.file("text") or stage.file("proto"))
    ]


def snapshot_of(module: DumpModule) -> Snapshot | None:
    """The first snapshot of a module's runs in its dump.  Raises ``ParseError`` for one that is damaged."""
    for stage in module.stages:
        file = stage.file("snapshot")
        if file is not None:
            return read_snapshot(bytes_of(file.path), str(file.path))
    return None


def _stage_of(stage: Stage) -> DumpStage:
    text, proto = stage.file("text"), stage.file("proto")
    file = text or proto
    assert file is not None, "a stage has a file"
    match = _PASS.fullmatch(stage.label) or _STEP.fullmatch(stage.label)
    name = match["name"] if match and stage.kind == "pass" else ""
    pipeline = match.groupdict().get("pipeline", "") if match else ""
    twin = proto.path if proto is not None and proto is not file else None
    return DumpStage(stage.label, "" if name == _START else name, pipeline, file.path, twin)


def compiler_of(stages: Sequence[DumpStage]) -> Compiler:
    """Who wrote a dump: XLA, or hloopt, all of whose stages are its own passes' in one pipeline."""
    made = [stage for stage in stages if stage.pass_name]
    started = any(stage.pipeline and not stage.pass_name for stage in stages)
    own = classes("hloopt")
    ours = made and not started and all(stage.pass_name in own for stage in made)
    return "hloopt" if ours and len({stage.pipeline for stage in made}) == 1 else "xla"


def read_stage(stage: DumpStage) -> Module:
    """The module of a stage, verified.

    Raises ``ParseError``, ``VerifyError``, and ``UsageError`` where the file cannot be read.
    """
    module = read_file(stage.file, stage.twin).module
    verify_module(module)
    return module


def starts_whole(stages: Sequence[DumpStage], first: Module) -> bool:
    """Whether ``first``, of the first stage, is for whole arrays and a later stage for their parts.

    Where no stage is the partitioner's, the last one that can be read decides by its shapes.
    """
    if participant_counts(first)[1] == 1 or _is_partitioner(stages[0]):
        return False
    if any(_is_partitioner(stage) for stage in stages[1:]):
        return True
    for stage in reversed(stages[1:]):
        try:
            return is_partitioned(first, read_stage(stage))
        except HlooptError:
            continue
    return False


def _is_partitioner(stage: DumpStage) -> bool:
    return stage.pass_name in _PARTITIONERS or stage.pipeline == "spmd-cleanup"


def is_about_running(error: HlooptError) -> bool:
    """Whether a stage can be read, but not run on the inputs."""
    return isinstance(error, UnsupportedError | EvaluationError | UsageError)


def _digest(content: bytes) -> bytes:
    """Of what a run depends on in a text."""
    content = _TABLES.sub(b"", _METADATA.sub(b"", content))
    head, end, body = content.partition(b"\n")
    return blake2b(_DONATION.sub(b"", head + end) + body, digest_size=16).digest()


@dataclass
class StageSearch:
    """Runs stages in order and finds those that change results.

    trials     the inputs, each of which every stage is run on
    tolerance  what a user allows of every pass in place of what its class does
    every      find all stages that change results, not only the first
    is_whole   the first stage has not been partitioned: later ones may work on parts of its arrays
    assumed    results whose parts no annotation places: they are put together as they agree best
    status     where the search is, for a progress line
    last       the last stage that was run
    """

    stages: Sequence[DumpStage]
    trials: Sequence[TrialInputs]
    executor: Executor = field(default_factory=Executor)
    tolerance: Tolerance = FREE
    excess_precision: bool = False
    every: bool = False
    is_whole: bool = False
    examined: list[Examined] = field(default_factory=list)
    found: list[StagePair] = field(default_factory=list)
    failures: list[HlooptError] = field(default_factory=list)
    assumed: set[str] = field(default_factory=set)
    status: str = ""
    last: StageRuns | None = None

    def run(self) -> None:
        """Examine the stages; ``examined``, ``found`` and ``failures`` say what came of it."""
        self._compiler = compiler_of(self.stages)
        skipped: list[DumpStage] = []
        for number, stage in enumerate(self.stages):
            self.status = (
                f"stage {number + 1} of {len(self.stages)}, {stage.pass_name or stage.label}"
            )
            try:
                ran = self._ran(stage, self.last)
            except (
                ParseError,
                UsageError,
                UnsupportedError,
                EvaluationError,
                HlooptError,
            ) as error:
                self._fail(stage, error)
                skipped.append(stage)
                continue
            last, self.last = self.last, ran
            if last is None:
                self._note(stage, "first")
            elif ran.runs is last.runs:
                self._note(stage, "same")
            else:
                self._judge(last, ran, tuple(skipped))
            skipped.clear()
            if self.found and not self.every:
                return

    def _fail(self, stage: DumpStage, error: HlooptError) -> None:
        place = ""
        if isinstance(error, SourceError | EvaluationError) and error.line:
            file = error.name if isinstance(error, SourceError) else str(stage.file)
            place = f"{file}:{error.line}:{error.column}"
        reason = error.reason if isinstance(error, EvaluationError) else error.message
        outcome: SearchOutcome = "not run" if is_about_running(error) else "unreadable"
        self.examined.append(Examined(stage.label, outcome, reason, place))
        self.failures.append(error)

    def _endless(
        self, last: StageRuns, stage: DumpStage, skipped: tuple[DumpStage, ...], error: HlooptError
    ) -> None:
        """A stage that runs far longer than the one before it: a loop that does not end."""
        before, inputs = last.runs[0], self.trials[0]
        problem = f"there is none: {error.message}"
        results = tuple(
            unlike(of_numpy(array.dtype), array.size, problem)
            for arrays in before.results
            for array in arrays
        )
        runs = before, Run(read_stage(stage), before.results)
        allowed = self._allowed(stage, skipped)
        compared = RunsCompared(results)
        self.found.append(
            StagePair(last.stage, stage, allowed, inputs, runs, compared, self.tolerance, skipped)
        )
        self._note(stage, "differs", "it does not end")

    def _note(self, stage: DumpStage, outcome: SearchOutcome, note: str = "") -> None:
        self.examined.append(Examined(stage.label, outcome, note))

    def _ran(self, stage: DumpStage, last: StageRuns | None) -> StageRuns:
        """A stage's runs, those of the last one where it is the same module."""
        content = bytes_of(stage.file)
        digest = _digest(content)
        if last is not None and last.digest == digest:
            return StageRuns(stage, digest, last.runs)
        module = read_stage(stage)
        start = monotonic()
        runs = self._runs(module, stage, last)
        if last is None and self.executor.seconds is None:
            taken = monotonic() - start
            self.executor = replace(self.executor, seconds=max(_SHORTEST, _TIMES * taken))
        return StageRuns(stage, digest, runs)

    def _runs(self, module: Module, stage: DumpStage, last: StageRuns | None) -> tuple[Run, ...]:
        """A run on each trial.  Raises ``UsageError`` for a module that does not fit the stages before."""
        name = str(stage.file)
        if self.is_whole and last is None:
            self._partitioned = [
                PartitionedRuns(module, inputs, self.executor) for inputs in self.trials
            ]
        if last is not None:
            given = last.runs[0].module
            if not self.is_whole or not is_partitioned(self._partitioned[0].whole, module):
                given = self._partitioned[0].whole if self.is_whole else given
                check_alike(given, module, (last.stage.label, stage.label))
        if not self.is_whole:
            return tuple(self.executor.run(module, inputs, name) for inputs in self.trials)
        for one in self._partitioned:
            one.executor = self.executor
        runs = tuple(one.run(module, name) for one in self._partitioned)
        self.assumed.update(
            name for run in runs if run.parts is not None for name in run.parts.assumed
        )
        return runs

    def _judge(self, last: StageRuns, ran: StageRuns, skipped: tuple[DumpStage, ...]) -> None:
        allowed = self._allowed(ran.stage, skipped)
        if allowed.kind == "open":
            self._note(ran.stage, "skipped", allowed.reason)
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
            if not compared.equal:
                runs = (before, after)
                self.found.append(
                    StagePair(
                        last.stage, ran.stage, allowed, inputs, runs, compared, tolerance, skipped
                    )
                )
                self._note(ran.stage, "differs", allowed.kind)
                return
        self._note(ran.stage, "within" if within else "equal", within)

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


@dataclass(frozen=True)
class StageRuns:
    """A stage, the digest of its text, and its run on each trial."""

    stage: DumpStage
    digest: bytes
    runs: tuple[Run, ...]


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


def _sums(module: Module) -> Counter[str]:
    """What adds up many terms, by all that decides in which order."""
    return Counter(
        f"{entry.opcode} {normal_shape(entry.shape)} "
        f"{[normal_shape(operand.shape) for operand in entry.operands]} "
        f"{[(name, value) for name, value in normal_attributes(entry).items() if name != 'to_apply']}"
        for entry in module.instructions()
        if entry.opcode in _SUMS
    )


def same_results(before: Run, after: Run) -> bool:
    """Whether two runs gave the same values: all NaN being one value, and zeros of different sign different."""
    pairs = [
        *zip(
            (array for arrays in before.results for array in arrays),
            (array for arrays in after.results for array in arrays),
            strict=True,
        ),
        *((array, after.written.get(name)) for name, array in before.written.items()),
    ]
    return len(before.written) == len(after.written) and all(_same(*pair) for pair in pairs)


def _same(one: Array, other: Array | None) -> bool:
    if other is None or one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.tobytes() == other.tobytes():
        return True
    with np.errstate(all="ignore"):
        numbers = (one == one) | (other == other)  # noqa: PLR0124 - false where both are NaN
        alike = (one == other) & (np.signbit(one.real) == np.signbit(other.real))
    return bool(np.all(alike | ~numbers))
