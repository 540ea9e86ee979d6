"""What ``hloopt study`` does: every module by every strategy on every device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hloopt.cli.files import Input, InputText
from hloopt.cli.study_out import AllNotes, Notes
from hloopt.dataclass import dataclass
from hloopt.errors import (
    DeviceError,
    EvaluationError,
    HlooptError,
    SourceError,
    UnsupportedError,
    UsageError,
)
from hloopt.kernels.costs import kernel_costs
from hloopt.kernels.selection import KernelSelection
from hloopt.report.study_cost import counts_of, predicted
from hloopt.runtime.tolerance import Tolerance
from hloopt.study.cells import Cell, Checked
from hloopt.study.devices import way_of
from hloopt.study.execute import StudyLimits, execute, gpu_target, too_much
from hloopt.study.optimised import optimised
from hloopt.study.reference import MOST_WORK, reference
from hloopt.study.xla import execute_xla

if TYPE_CHECKING:
    from hloopt.cli.study_setup import StudyOptions
    from hloopt.cost_models.predictor import Predictor
    from hloopt.study.cells import Counts
    from hloopt.study.optimised import Optimised
    from hloopt.study.plan import ModuleRow, Strategy, StudyPlan
    from hloopt.study.reference import StudyReference
    from hloopt.study.turns import Turns

__all__ = ["Studied", "StudyRunner"]


@dataclass(frozen=True)
class Studied:
    """One module of a study: what was read, from what, and what the study calls it."""

    row: ModuleRow
    found: Input
    text: InputText

    def inputs(self) -> Path | None:
        """The arrays that belong to it: those of the study file, or what lies beside the module."""
        return Path(self.row.inputs) if self.row.inputs else _beside(self.row.file)


@dataclass
class _Module:
    """Cached facts about the current module."""

    studied: Studied
    reference: StudyReference | HlooptError | None = None
    optimised: dict[tuple[str, str], Optimised | HlooptError] = field(default_factory=dict)
    checked: dict[str, Checked] = field(default_factory=dict)
    first: dict[tuple[str, str], Cell] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.studied.row.name


@dataclass
class StudyRunner:
    """The options of one call.

    predictors  of the devices that are predicted, by their names in the study
    most_work   elements the interpreter may compute for a reference; None where nothing is to be compared
    rules       texts of ``--fusion-rule`` that count for all strategies
    seed        makes inputs, None where files beside the modules are to
    keep        notes the optimised modules
    turns       of processes that measure beside this one; None where it is alone
    """

    predictors: Mapping[str, Predictor]
    limits: StudyLimits
    most_work: int | None
    rules: Sequence[str] = ()
    seed: int | None = None
    keep: Notes = field(default_factory=Notes)
    turns: Turns | None = None
    _at: _Module | None = None

    @classmethod
    def of(
        cls,
        options: StudyOptions,
        plan: StudyPlan,
        predictors: Mapping[str, Predictor],
        turns: Turns | None = None,
    ) -> StudyRunner:
        """For the options of a command; rules that strategies of the file name for themselves are theirs."""
        named = {text for one in plan.strategies for text in one.rules}
        limits = StudyLimits(options.repeat)
        if options.emulate_limit is not None:
            limits = StudyLimits(options.repeat, int(options.emulate_limit))
        most = MOST_WORK if options.verify_limit is None else int(options.verify_limit)
        return cls(
            predictors,
            limits,
            most if options.verify else None,
            [text for text in options.passes.fusion_rule if text not in named],
            options.seed,
            Notes() if options.out is None else AllNotes(),
            turns,
        )

    def cell(self, studied: Studied, strategy: Strategy, device: str) -> Cell:
        """One cell, with its failure if any.  The cells of a module follow each other."""
        if self._at is None or self._at.studied is not studied:
            self._at = _Module(studied)
        empty = Cell(studied.row.name, strategy.name, device, way_of(device))
        try:
            return self._cell(self._at, strategy, device, empty)
        except DeviceError as error:
            return replace(empty, problem=error.message)
        except HlooptError as error:
            return replace(empty, problem=_line(error), code=error.exit_code)
        except MemoryError as error:
            problem = f"out of memory: {error or 'allocation failed'}"
            return replace(empty, problem=problem, code=UnsupportedError.exit_code)

    def _cell(self, at: _Module, strategy: Strategy, device: str, empty: Cell) -> Cell:
        target = self._target(device)
        better = self._better(at, strategy, target)
        key = better.key if empty.way == "predicted" else better.text_key
        made = replace(empty, passes=better.seconds, key="" if strategy.chooses_kernels else key)
        if made.key and (device, key) in at.first:
            same = at.first[device, key]
            return replace(same, strategy=strategy.name, same_as=same.strategy, passes=made.passes)
        if empty.way == "predicted":
            cell = self._predicted(at, better, device, made)
        else:
            alone = empty.way == "measured" and self.turns is not None
            with self.turns.alone() if alone and self.turns else nullcontext():
                cell = self._executed(at, strategy, better, made)
        if made.key:
            at.first[device, key] = cell
        return cell

    def _executed(self, at: _Module, strategy: Strategy, better: Optimised, made: Cell) -> Cell:
        if made.device == "xla-cpu":
            return self._by_xla(at, better, made)
        return self._run(at, strategy, better, made)

    def _target(self, device: str) -> str | None:
        """The device that passes decide for; None for the one they take by themselves."""
        if device in self.predictors:
            return device
        if device == "native":
            return "host"
        if device == "gpu":
            return gpu_target()[1]
        return None

    def _better(self, at: _Module, strategy: Strategy, target: str | None) -> Optimised:
        """The module after a strategy's passes; devices for which these decide alike share it."""
        pipeline = strategy.aimed(target)
        key = (strategy.name, str(pipeline))
        if key not in at.optimised:
            try:
                found = optimised(at.studied.found.module, strategy, target, self.rules)
            except HlooptError as error:
                at.optimised[key] = error
            else:
                at.optimised[key] = found
                aims = pipeline != strategy.pipeline
                self.keep.module(at.name, strategy.name, target if aims else None, found)
        made = at.optimised[key]
        if isinstance(made, HlooptError):
            raise made
        return made

    def _predicted(self, at: _Module, better: Optimised, device: str, made: Cell) -> Cell:
        predictor = self.predictors[device]
        rows = kernel_costs(better.module, predictor)
        return replace(
            made,
            counts=counts_of(better.module, rows),
            predicted=predicted(rows, predictor),
            checked=self._check(at, better),
        )

    def _run(self, at: _Module, strategy: Strategy, better: Optimised, made: Cell) -> Cell:
        """On the CPU, a GPU or the emulator."""
        counts = _counts(better)
        if why := too_much(better.module, made.device, self.limits):
            return replace(made, counts=counts, checked=Checked("not verified", problem=why))
        timed = made.way == "measured"
        wanted = self._wanted(at)
        done = execute(
            better.module, strategy.selection, made.device, wanted, self.limits, timed=timed
        )
        if made.device == "cpu":
            at.checked[better.key] = done.checked
        else:
            counts = replace(counts, kernels=done.kernels, launches=done.launches, known=True)
            if done.kernel_lock:
                self.keep.kernels(at.name, strategy.name, made.device, done.kernel_lock)
        return replace(made, counts=counts, checked=done.checked, measured=done.measured)

    def _by_xla(self, at: _Module, better: Optimised, made: Cell) -> Cell:
        """By XLA itself, whose own kernels are not counted."""
        checked, measured = execute_xla(better.module, self._wanted(at), self.limits)
        return replace(made, checked=checked, measured=measured)

    def _wanted(self, at: _Module) -> StudyReference:
        found, row = at.studied.found, at.studied.row
        if at.reference is None:
            beside = at.studied.inputs()
            try:
                at.reference = reference(
                    found.module, beside, self.seed, self.most_work, found.snapshot
                )
                at.reference.tolerance = Tolerance(row.rtol, row.atol)
            except HlooptError as error:
                at.reference = error
        if isinstance(at.reference, HlooptError):
            raise at.reference
        return at.reference

    def _check(self, at: _Module, better: Optimised) -> Checked:
        """What is predicted is run on the CPU once, untimed, unless it was run there already."""
        if self.most_work is None:
            return Checked("not verified", problem="not requested")
        if better.key not in at.checked:
            try:
                wanted = self._wanted(at)
                if wanted.empty:
                    checked = Checked("not verified", problem=wanted.skipped)
                else:
                    checked = execute(
                        better.module, KernelSelection(), "cpu", wanted, self.limits, timed=False
                    ).checked
            except (UnsupportedError, UsageError) as error:
                checked = Checked("not verified", problem=_line(error))
            at.checked[better.key] = checked
        return at.checked[better.key]


def _counts(better: Optimised) -> Counts:
    return counts_of(better.module, kernel_costs(better.module))


def _beside(file: str) -> Path | None:
    """The arrays that belong to a module: ``NAME.npz`` beside ``NAME.hlo``, or ``NAME.before.hlo``."""
    path = Path(file)
    name = path.name.removesuffix(".gz")
    for end in (".before.hlo", ".hlo.pb", ".hlo", ".txt", ".pb"):
        if name.endswith(end):
            found = path.with_name(f"{name.removesuffix(end)}.npz")
            return found if found.is_file() else None
    return None


def _line(error: HlooptError) -> str:
    """An error on one line."""
    if isinstance(error, SourceError) and error.line:
        return f"{error.name}:{error.line}:{error.column}: {error.message}"
    if isinstance(error, EvaluationError) and error.place:
        return f"{error.place}: {error.reason}"
    return " ".join(error.message.split())
