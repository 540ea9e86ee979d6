"""What ``hloopt reduce`` does: from options to the question, the search and its record."""

from __future__ import annotations

import os
import shlex
import warnings
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hloopt.dataclass import dataclass
from hloopt.display import Displayed
from hloopt.driver.options import KernelOptions, PassOptions
from hloopt.driver.passes import choose_passes
from hloopt.driver.writing import is_folder, write_bytes, write_text
from hloopt.errors import HlooptError, SourceError, UsageError
from hloopt.interpret import participant_counts
from hloopt.ir import Module, build
from hloopt.prover.executor import Executor
from hloopt.prover.reduction.case import Case
from hloopt.prover.reduction.questions import (
    Asked,
    CaseOutcome,
    CommandQuestion,
    Differs,
    Question,
    arrays_by_name,
)
from hloopt.prover.reduction.search import Search, SearchLimits
from hloopt.prover.trials import Trial, TrialInputs, made
from hloopt.runtime.inputs import load_all_inputs, npz
from hloopt.runtime.tolerance import FREE, Tolerance
from hloopt.runtime.xla import XlaServer
from hloopt.types import Array

if TYPE_CHECKING:
    from hloopt.pipelines import Given

__all__ = ["ReduceOptions", "Reducing", "Reduction", "reduce"]

_MOST_JOBS: Final = 4
_LEVEL_0: Final = PassOptions(level="0")


@dataclass(frozen=True)
class ReduceOptions:
    """What a reduction is to do; each field is the option of ``hloopt reduce`` of its name.

    passes   None where no option names a pipeline: O2, but nothing where a device or ``check`` is given
    against  the pipeline whose results are right; None for the module as it is
    workers  cases that are run at once, None for as many as there are cores, 4 at most
    """

    passes: PassOptions | None = None
    against: str | None = None
    device: str | None = None
    check: str | None = None
    exact: bool = False
    excess_precision: bool = False
    tolerance: Tolerance = FREE
    inputs: str | None = None
    seed: int | None = None
    replicas: int | None = None
    partitions: int | None = None
    limits: SearchLimits = field(default_factory=SearchLimits)
    workers: int | None = None

    @property
    def pipeline(self) -> PassOptions:
        """The passes that run before the run that may be wrong."""
        if self.passes is not None:
            return self.passes
        return PassOptions() if self.device is None else _LEVEL_0

    def executor(self) -> Executor:
        """What runs the module that may be wrong.  Raises ``UsageError`` and ``DeviceError``."""
        found = Executor(self.device or "interpreter", self.excess_precision, self.exact)
        found.check()
        return found

    def question(self) -> Question:
        """What is asked of every case.  Raises ``UsageError`` for options that cannot be."""
        if self.check is not None:
            question = CommandQuestion(self.check)
            question.check()
            return question
        executor = self.executor()
        chosen = choose_passes(self.pipeline, KernelOptions())
        other = None
        if self.against is not None:
            extra = PassOptions(passes=self.against, pass_file=self.pipeline.pass_file)
            other = choose_passes(extra, KernelOptions()).run
        server = XlaServer() if executor.device == "xla-cpu" else None
        return Differs(other, chosen.run, executor, server, self.tolerance)

    def words(self) -> list[str]:
        """The options that say how the module fails, as they are typed."""
        if self.check is not None:
            return ["--check", self.check]
        passes = self.pipeline
        found = [] if passes.level is None or passes is _LEVEL_0 else [f"-O{passes.level}"]
        found += [] if passes.passes is None else ["--passes", str(passes.passes)]
        found += [word for path in passes.pass_file for word in ("--pass-file", path)]
        found += ["--fast-math"] * passes.fast_math
        found += [word for name in passes.only for word in ("--only", name)]
        found += [word for name in passes.disable for word in ("--disable", name)]
        found += [
            word for entry in passes.fuel.items() for word in ("--fuel", "{}={}".format(*entry))
        ]
        found += [] if passes.stop_after is None else ["--stop-after", str(passes.stop_after)]
        found += [word for rule in passes.fusion_rule for word in ("--fusion-rule", rule)]
        found += [] if self.against is None else ["--against", self.against]
        found += [] if self.device is None else ["--device", self.device]
        found += ["--rounding", "excess"] * self.excess_precision + [
            "--rounding",
            "exact",
        ] * self.exact
        return found


@dataclass(frozen=True)
class Reduction(Displayed):
    """A module that was reduced.

    name         what messages call it
    case         the smallest case that was found: ``case.module`` and ``case.inputs``
    outcome      what comes of it, as of the first
    first        the case as it was given
    tests        how many cases were run
    complete     whether nothing was left to try; else a limit or an interrupt ended the search
    interrupted  whether it was an interrupt
    fails_again  whether the smallest module failed when it was run once more; a failure that comes and goes may
                 need ``SearchLimits.repeat``
    """

    name: str
    case: Case
    outcome: CaseOutcome
    first: Case
    tests: int
    complete: bool
    interrupted: bool
    fails_again: bool = True

    @cached_property
    def text(self) -> str:
        """The module as HLO."""
        return self.case.text

    @property
    def module(self) -> Module:
        """The module."""
        return self.case.module

    @property
    def inputs(self) -> list[Array]:
        """The arrays of its parameters, of participant 0."""
        arrays: list[Array] = self.case.inputs.arrays[0]
        return arrays

    def save(self, path: str | Path) -> None:
        """Write the module to ``path`` and its inputs to the ``.npz`` file beside it."""
        check_output(str(path))
        write_case(self.case, str(path))

    @property
    def summary(self) -> str:
        """``2,114 -> 18 instructions, 143 tests``."""
        return summary(self.first, self.case, self.tests)

    def __str__(self) -> str:
        return f"{self.name}: {self.summary}\n{self.text}"

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "module": self.name,
            "kind": self.outcome.kind,
            "what": self.outcome.text,
            "instructions": {
                "before": self.first.module.instruction_count(),
                "after": self.case.module.instruction_count(),
            },
            "tests": self.tests,
            "complete": self.complete,
            "interrupted": self.interrupted,
            "fails_again": self.fails_again,
            "text": self.text,
        }


def summary(first: Case, best: Case, tests: int) -> str:
    """How far a reduction has come."""
    before, after = first.module.instruction_count(), best.module.instruction_count()
    return f"{before:,} -> {after:,} instructions, {tests:,} tests"


class Reducing:
    """A reduction that is running; ``status`` is for another thread."""

    def __init__(
        self,
        module: Module,
        name: str,
        options: ReduceOptions,
        *,
        interesting: Callable[[Module, list[Array]], bool] | None = None,
        inputs: Sequence[Array] | None = None,
        on_better: Callable[[Case], None] | None = None,
    ) -> None:
        self.name, self.options = name, options
        given = _inputs(module, options, inputs)
        self.first = Case(_saying(module, given.counts), given)
        question = Asked(interesting) if interesting is not None else options.question()
        workers = options.workers or min(os.cpu_count() or 1, _MOST_JOBS)
        limits = replace(options.limits, jobs=workers)
        self._begun: CaseOutcome | None = None
        self._search = Search(question, limits, on_better or _nothing_more, self.first)

    def status(self) -> str:
        """What is being tried, and how far it has come."""
        found = self._search
        return f"{summary(self.first, found.best, found.tests)}, {found.doing}"

    def begin(self, seconds: float | None = None) -> CaseOutcome:
        """What comes of the module as given, which may take so many seconds; it is run once."""
        if self._begun is None:
            self._begun = self._search.begin(seconds)
        return self._begun

    def run(self) -> Reduction:
        """Reduce.

        Raises ``UsageError`` where there is nothing to reduce, since the module does not fail;
        ``UnsupportedError`` or ``EvaluationError`` where it cannot be run as it is.
        """
        search = self._search
        try:
            outcome = self.begin()
            best = search.run() if outcome.is_failure else self.first
            again = best is self.first or search.interrupted or search.fails_again()
        finally:
            search.question.close()
        if not outcome.is_failure:
            raise self._nothing(outcome)
        return Reduction(
            self.name,
            best,
            outcome,
            self.first,
            search.tests,
            search.complete,
            search.interrupted,
            again,
        )

    def _nothing(self, outcome: CaseOutcome) -> HlooptError:
        error = outcome.error
        if isinstance(error, SourceError):
            error.notes += ("only what runs as it is can be reduced",)
            return error
        if error is not None:
            return type(error)(f"{self.name} does not run as it is: {error.message}")
        if outcome.kind == "no":
            asked = (
                "the command does not exit with 0"
                if self.options.check
                else "it is not interesting"
            )
            return UsageError(f"{self.name}: nothing to reduce: {asked}")
        return UsageError(f"{self.name}: nothing to reduce: the results do not differ")


def _nothing_more(case: Case) -> None:
    """The default for what to do with each smaller case: nothing."""


def _saying(module: Module, counts: tuple[int, int]) -> Module:
    """The module with a header that asks for so many replicas and partitions, as options may have done."""
    if participant_counts(module) == counts:
        return module
    copy = build.clone_module(module)
    copy.attributes |= dict(zip(("replica_count", "num_partitions"), counts, strict=True))
    return copy


def _inputs(module: Module, options: ReduceOptions, given: Sequence[Array] | None) -> TrialInputs:
    trial = Trial(options.seed or 0)
    found = made(module, trial, options.replicas, options.partitions)
    if given is not None:
        return TrialInputs(
            [list(given) for _ in range(prod(found.counts))], found.counts, found.host
        )
    if options.inputs is not None:
        arrays = load_all_inputs(Path(options.inputs), module, prod(found.counts))
        return TrialInputs(arrays, found.counts, found.host, options.inputs)
    return found


def reduce(
    module: Module,
    interesting: Callable[[Module, list[Array]], bool] | None = None,
    *,
    pipeline: Given | None = None,
    device: str | None = None,
    inputs: Sequence[Array] | None = None,
    options: ReduceOptions | None = None,
    **changes: Any,
) -> Reduction:
    """What ``hloopt reduce`` does: find the smallest module that still fails, with its inputs.

    ``interesting`` gets a smaller module and its inputs, in the order of parameters, and says whether they
    still fail.  Without it a failure is that results differ from the interpreter's by more than rounding
    explains, or that passes or the device fail: after the passes of ``pipeline`` (as ``optimize`` takes it; O2
    by default), or on ``device``: ``cpu``, ``native``, ``gpu``, ``emulator``, or ``xla-cpu``, which needs
    jaxlib. ``inputs`` are arrays in parameter order, made from a seed where there are none.

    ``changes`` are fields of ``ReduceOptions``, each the option of its name: ``check``, ``seed``, ``against``,
    ``workers``, ``limits`` ...; ``options`` has those that are not given.

    The record has ``module`` and ``inputs``, ``outcome``, ``tests`` and ``complete``; ``save(path)`` writes
    both, and ``to_json()`` is what the command prints.  An interrupt ends the search with the smallest module
    so far.

    Raises ``UsageError`` for a module that does not fail, ``UnsupportedError`` and ``EvaluationError`` for one
    that cannot be run as it is, ``DeviceError`` for a device that is not there.
    """
    if "jobs" in changes:
        warnings.warn("jobs of hloopt.reduce is called workers", DeprecationWarning, stacklevel=2)
        changes["workers"] = changes.pop("jobs")
    options = replace(options or ReduceOptions(), **changes)
    if device is not None:
        options = replace(options, device=device)
    if isinstance(pipeline, str) and pipeline in ("O0", "O1", "O2", "O3"):
        options = replace(options, passes=PassOptions(level=pipeline[1:]))
    elif pipeline is not None:
        options = replace(options, passes=PassOptions(passes=pipeline))
    return Reducing(module, module.name, options, interesting=interesting, inputs=inputs).run()


def write_case(case: Case, output: str) -> None:
    """Write a case: the module to ``output``, its inputs to the ``.npz`` file beside it, which goes first."""
    write_bytes(inputs_path(output), npz(arrays_by_name(case)), output)
    write_text(output, case.text, output)


def inputs_path(output: str) -> str:
    """The file of the inputs beside that of the module."""
    return str(Path(output).with_suffix(".npz"))


def check_output(output: str) -> None:
    """Raise ``UsageError`` where a case cannot be written to ``output``."""
    if output in ("", "-") or is_folder(output) or output.endswith(".npz"):
        raise UsageError(f"-o needs a file for the module, not '{output}'; its inputs go beside it")


def shown_again(options: ReduceOptions, output: str) -> str:
    """The command that shows the failure on the case in ``output``."""
    if options.check is not None:
        return CommandQuestion(options.check).filled(output, inputs_path(output))
    if options.against is not None or options.device in (None, "interpreter", "xla-cpu"):
        return f"{resumed(options, output)} --tests 0"
    return shlex.join(["hloopt", "run", output, "--inputs", inputs_path(output), *options.words()])


def resumed(options: ReduceOptions, output: str) -> str:
    """The command that goes on reducing the case in ``output``."""
    differs = ["--differs"] if options.check is None else []
    words = ["hloopt", "reduce", output, "--inputs", inputs_path(output), *differs]
    return shlex.join([*words, *options.words()])
