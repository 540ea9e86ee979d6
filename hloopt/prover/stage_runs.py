"""Running the stages of a dump on the same inputs: equal ones once, several at a time where there are cores.

What a stage gave is kept as a mark, equal for equal results.  Stages whose texts or whose canonical forms are
equal have equal marks, and only the first is verified and run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from hashlib import blake2b
from time import monotonic
from typing import Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.errors import EvaluationError, HlooptError
from hloopt.interpret.partitioning import is_partitioned
from hloopt.ir import Module
from hloopt.ir.canonical import fingerprint
from hloopt.prover.comparing import check_alike
from hloopt.prover.dumped_stages import DumpStage, read_stage
from hloopt.prover.executor import Executor, Run
from hloopt.prover.partitioned import PartitionedRuns
from hloopt.prover.processes import CAN_FORK, StoppedWork, available_cores, side_by_side
from hloopt.prover.trials import TrialInputs
from hloopt.reading import bytes_of, read_file
from hloopt.verifier import verify_module

__all__ = ["RunMark", "StageRunner", "StageRuns", "same_results"]

_TIMES: Final = 20
_SHORTEST: Final = 20.0
"""How much longer than the first stage a stage may run, and the seconds that each may."""
_GRACE: Final = 60.0
"""Seconds beyond that after which its process is ended."""
_WORTH: Final = 1.0
"""Seconds that stages need together from which on processes are begun for them."""
# What differs in the text of modules that are run alike: metadata, tables of stack frames.
_METADATA: Final = re.compile(rb', metadata=\{[^{}"]*(?:"(?:\\.|[^"\\])*"[^{}"]*)*\}')
_TABLES: Final = re.compile(
    rb"^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:\d+ .*\n)*", re.MULTILINE
)
_DONATION: Final = re.compile(
    rb", (?:input_output_alias|buffer_donor)=\{[^\n]*?\}(?=, [a-z_]+=|\n)"
)


@dataclass(frozen=True)
class RunMark:
    """What came of running a stage on all inputs.

    results  equal for equal results; empty where there are none
    digest   of the text, but for what runs do not depend on
    form     of the canonical form; empty where that was not made
    error    why it cannot be read or run
    stops    its run began and stopped, or went on far longer than that of the first stage
    """

    results: bytes = b""
    digest: bytes = b""
    form: str = ""
    error: HlooptError | None = None
    stops: bool = False


@dataclass(frozen=True)
class StageRuns:
    """A stage and its run on each trial."""

    stage: DumpStage
    runs: tuple[Run, ...]


@dataclass
class StageRunner:
    """Runs the stages of a module; ``marks`` has what is known of each, by its number.

    first     the first stage that could be run, once it was
    is_whole  it has not been partitioned: later ones may work on parts of its arrays
    assumed   results whose parts no annotation places: they are put together as they agree best
    """

    stages: Sequence[DumpStage]
    trials: Sequence[TrialInputs]
    executor: Executor
    is_whole: bool = False
    marks: dict[int, RunMark] = field(default_factory=dict)
    assumed: set[str] = field(default_factory=set)
    first: StageRuns | None = None
    _kept: dict[int, StageRuns] = field(default_factory=dict)
    _known: dict[bytes | str, bytes] = field(default_factory=dict)
    _has_forms: bool = False
    _seconds: float = 0.0

    def begin(self) -> int | None:
        """Run the first stage that can be run: its number, None where there is none."""
        for number, stage in enumerate(self.stages):
            start = monotonic()
            try:
                module = read_stage(stage)
                read = monotonic() - start
                runs = self._run(module, stage)
            except HlooptError as error:
                self.marks[number] = RunMark(error=error)
                continue
            self._seconds = monotonic() - start
            taken = self._seconds - read
            self._has_forms = taken > read
            self.first = self._kept[number] = StageRuns(stage, runs)
            if self.executor.seconds is None:
                self.executor = replace(self.executor, seconds=max(_SHORTEST, _TIMES * taken))
            form = fingerprint(module) if self._has_forms else ""
            self._learn(number, RunMark(_results(runs), _digest(bytes_of(stage.file)), form))
            return number
        return None

    def ask(self, numbers: Sequence[int]) -> Iterator[int]:
        """Find the marks of stages, in this order: yields the number of each when it is known."""
        wanted = [number for number in numbers if number not in self.marks]
        jobs = self._jobs(len(wanted))
        if jobs < 2:
            for number in wanted:
                self._learn(number, self._marked(number))
                yield number
            return
        works = (partial(self._marked, number) for number in wanted)
        seconds = self.executor.seconds
        limit = None if seconds is None else seconds * len(self.trials) + _GRACE
        for number, found in zip(wanted, side_by_side(works, jobs, limit), strict=True):
            if isinstance(found, StoppedWork):
                error = EvaluationError(f"the process that ran it: {found.reason}")
                found = RunMark(error=error, stops=found.kind == "timeout")
            self._learn(number, found)
            yield number

    def runs(self, number: int) -> StageRuns:
        """The runs of a stage that can be run, made again where they are not kept."""
        if number not in self._kept:
            stage = self.stages[number]
            self._keep(number, self._run(read_stage(stage), stage))
        return self._kept[number]

    def _jobs(self, count: int) -> int:
        """In how many processes stages are run.

        One where what a stage says about shardings serves later ones, and where a device runs them.
        """
        alone = self.is_whole or self.executor.device != "interpreter" or not CAN_FORK
        worth = count * self._seconds > _WORTH
        return min(available_cores(), count) if worth and not alone else 1

    def _learn(self, number: int, mark: RunMark) -> None:
        self.marks[number] = mark
        if mark.results:
            self._known.setdefault(mark.digest, mark.results)
            if mark.form:
                self._known.setdefault(mark.form, mark.results)

    def _marked(self, number: int) -> RunMark:
        """The mark of a stage, which is run unless an equal one was."""
        stage = self.stages[number]
        try:
            digest = _digest(bytes_of(stage.file))
            if digest in self._known:
                return RunMark(self._known[digest], digest)
            module = read_file(stage.file, stage.twin).module
            form = fingerprint(module) if self._has_forms else ""
            if form in self._known:
                return RunMark(self._known[form], digest, form)
            verify_module(module)
            runs = self._run(module, stage)
        except HlooptError as error:
            return RunMark(error=error, stops=_has_begun(error))
        self._keep(number, runs)
        return RunMark(_results(runs), digest, form)

    def _keep(self, number: int, runs: tuple[Run, ...]) -> None:
        """Keep runs, and those of the nearest stages."""
        self._kept[number] = StageRuns(self.stages[number], runs)
        while len(self._kept) > _KEPT:
            del self._kept[max(self._kept, key=lambda one: abs(one - number))]

    def _run(self, module: Module, stage: DumpStage) -> tuple[Run, ...]:
        """A run on each trial.  Raises ``UsageError`` for a module that does not fit the first one."""
        name = str(stage.file)
        first = self.first
        if first is None and self.is_whole:
            self._partitioned = [
                PartitionedRuns(module, inputs, self.executor) for inputs in self.trials
            ]
        if first is not None:
            given = first.runs[0].module
            if not (self.is_whole and is_partitioned(given, module)):
                check_alike(given, module, (first.stage.label, stage.label))
        if not self.is_whole:
            return tuple(self.executor.run(module, inputs, name) for inputs in self.trials)
        for one in self._partitioned:
            one.executor = self.executor
        runs = tuple(one.run(module, name) for one in self._partitioned)
        self.assumed.update(
            name for run in runs if run.parts is not None for name in run.parts.assumed
        )
        return runs


_KEPT: Final = 3


def _has_begun(error: HlooptError) -> bool:
    """Whether an error is of a run, which it stopped."""
    is_late = isinstance(error.__cause__, TimeoutError)
    return isinstance(error, EvaluationError) and (is_late or bool(error.place))


def _digest(content: bytes) -> bytes:
    """Of what a run depends on in a text."""
    content = _TABLES.sub(b"", _METADATA.sub(b"", content))
    head, end, body = content.partition(b"\n")
    return blake2b(_DONATION.sub(b"", head + end) + body, digest_size=16).digest()


def _results(runs: Sequence[Run]) -> bytes:
    """Equal where all runs gave the same: all NaN being one value."""
    digest = blake2b(digest_size=16)
    for run in runs:
        named = [(name, run.written[name]) for name in sorted(run.written)]
        for name, array in (*(("", one) for own in run.results for one in own), *named):
            plain = np.asarray(array)
            with np.errstate(all="ignore"):
                is_nan = plain != plain  # noqa: PLR0124 - true where it is NaN
            if np.any(is_nan):
                plain = np.where(is_nan, np.full((), np.nan, plain.dtype), plain)
            digest.update(
                f"{name} {plain.dtype} {plain.shape} {(*filter(None, run.apart),)}".encode()
            )
            digest.update(plain.tobytes())
    return digest.digest()


def same_results(before: Run, after: Run) -> bool:
    """Whether two runs gave the same values: all NaN being one value, and zeros of different sign different."""
    return _results((before,)) == _results((after,))
