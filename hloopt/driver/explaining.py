"""Why instructions are fused or apart, and their kernels: what ``hloopt.explain`` returns."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hloopt.dataclass import dataclass
from hloopt.display import Displayed
from hloopt.driver.explain_fusion import FusionAnswer, Questions
from hloopt.driver.explain_matrices import KnownMatrix, known_matrices
from hloopt.driver.explain_trials import Trials
from hloopt.driver.kernels import times_in
from hloopt.driver.options import KernelOptions, PassOptions
from hloopt.driver.passes import Chosen, choose_passes
from hloopt.driver.run import read_task
from hloopt.driver.selecting import Selecting, selecting
from hloopt.errors import UsageError
from hloopt.fusion.provenance import Provenance
from hloopt.ir import Module, build
from hloopt.kernels.costs import costs_by_place
from hloopt.report.explain import explanation_json, show_explanation, show_summary, summary
from hloopt.targets import find_target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hloopt.kernels.costs import KernelCost, KernelCosts
    from hloopt.kernels.limits import Limits
    from hloopt.kernels.selection import Choice
    from hloopt.pipelines import Given
    from hloopt.report.console import Console
    from hloopt.report.measured import MeasuredTimes

__all__ = ["ModuleExplained", "PlannedModule", "explain", "plan_to_explain"]

_MOST_NAMES = 2


def explain(
    module: Module | str | Path,
    *names: str,
    pipeline: Given | None = None,
    target: str | None = None,
    profile: str | Path | None = None,
) -> ModuleExplained:
    """What ``hloopt explain`` says: why instructions are fused or apart, and which kernels run them.

    ``module`` is a module, which stays as it is, or the path of one; ``pipeline`` and ``target`` are as for
    ``select_kernels``.  Of two ``names``: whether they are in one kernel, and what keeps them apart; of one:
    its kernel and the candidates; of none: the refusals that cost most, and a summary by kernel.
    ``profile`` is the path of a trace, as for ``stats``: the record's ``measured`` has the times.

    Raises ``UsageError`` for a name that nothing has, and for an unknown pass or target.
    """
    if len(names) > _MOST_NAMES:
        raise UsageError(f"one instruction is explained, or two, not {len(names)}")
    given = read_task(module).module
    found = plan_to_explain(given, pipeline=pipeline, target=target).about(names)
    return found if profile is None else replace(found, measured=times_in(given, profile))


def plan_to_explain(
    module: Module, *, pipeline: Given | None = None, target: str | None = None
) -> PlannedModule:
    """A copy of a module planned as ``explain`` does, for any number of questions.  Raises as that."""
    with ExitStack() as stack:
        options = KernelOptions(target=target)
        chosen = choose_passes(PassOptions(passes=pipeline), options)
        selection = selecting(options, stack.enter_context, predicted=True)
        return PlannedModule(build.clone_module(module), chosen, selection)


@dataclass(frozen=True)
class ModuleExplained(Displayed):
    """What is said of a module.

    fusion    the answer about fusion; None where nothing of that name was there to be fused
    choices   those that the names are about, each with its candidates; of no name all
    costs     what the kernels cost, by place
    notes     those of passes
    matrices  what is known of the results of those that are named, as the file has them
    measured  the times of a real run, where they were joined to the module as it was given
    """

    module: str
    target: str
    names: tuple[str, ...]
    fusion: FusionAnswer | None
    choices: tuple[Choice, ...]
    costs: KernelCosts
    limits: Limits
    matters: bool
    notes: tuple[str, ...]
    matrices: tuple[KnownMatrix, ...] = ()
    measured: MeasuredTimes | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        found: dict[str, Any] = {"module": self.module, "target": self.target}
        if self.fusion is not None:
            found["fusion"] = self.fusion.json
        if self.matrices:
            found["matrices"] = [one.to_json() for one in self.matrices]
        if self.measured is not None:
            found["measured"] = self.measured.to_json()
        if not self.names:
            return {**found, "summary": summary(self.choices, self.costs)}
        choices = [explanation_json(row, self._cost(row), self.limits) for row in self.choices]
        return {**found, "choices": choices}

    def show(self, console: Console, *, every: bool = False) -> None:
        """Print it; ``every`` candidate, those for other opcodes included."""
        blocks: list[Callable[[Console], None]] = [one.show for one in self.matrices]
        if self.fusion is not None and (self.matters or self.fusion.rewritten):
            blocks.append(self.fusion.show)
        if self.names:
            blocks += [
                partial(show_explanation, row, self._cost(row), self.limits, every=every)
                for row in self.choices
            ]
        elif self.choices:
            blocks.append(partial(show_summary, self.choices, self.costs))
        if self.measured is not None:
            blocks.append(partial(self.measured.show_named, names=self._named))
        for number, block in enumerate(blocks):
            if number:
                console.print()
            block(console)

    @property
    def _named(self) -> frozenset[str]:
        """The names given, and the kernels that these are in."""
        return _kernels(self.names, self.fusion)

    def _cost(self, row: Choice) -> KernelCost | None:
        return self.costs.get((row.computation, row.instruction))


class PlannedModule:
    """A module, changed in place by the passes and with its kernels chosen, to ask for explanations of."""

    def __init__(self, module: Module, chosen: Chosen, selection: Selecting) -> None:
        self._given = build.clone_module(module)
        self._selection = selection
        aim = selection.instance.target
        target = find_target(aim)
        provenance = Provenance(chosen.histories)
        self._notes = chosen.run(module, (provenance,), remarks=True).notes
        trials = Trials(self._given, chosen, target, aim)
        self._questions = Questions(module, provenance, target, trials)
        self._ready, self._rows = module, list["Choice"]()
        if selection.has_kernels:
            self._ready, self._rows, more = selection.choose(module)
            self._notes = [*self._notes, *more]

    def about(self, names: Sequence[str]) -> ModuleExplained:
        """What is said of no name, one or two.  Raises ``UsageError`` for a name that nothing has."""
        matrices = known_matrices(self._given, names if len(names) == 1 else ())
        answer, refused = _answer(self._questions, names)
        selection, notes, found = self._selection, self._notes, self._rows
        if names:
            wanted = _kernels(names, answer)
            found = [row for row in found if row.instruction in wanted and len(names) == 1]
            if answer is None and not found:
                if not matrices:
                    raise UsageError(refused)
                notes = [*notes, refused]
        is_pair = len(names) == _MOST_NAMES
        return ModuleExplained(
            self._given.name,
            selection.instance.target,
            tuple(names),
            answer,
            tuple(found),
            costs_by_place(self._ready, selection.predictor()) if self._rows else {},
            selection.instance.limits(),
            self._questions.is_about_fusion or is_pair or not selection.has_kernels,
            tuple(notes),
            matrices,
        )


def _kernels(names: Sequence[str], answer: FusionAnswer | None) -> frozenset[str]:
    """What is named, and the kernels that it is in; nothing without a name."""
    if not names:
        return frozenset()
    given = (name.removeprefix("%") for name in names)
    return frozenset((*given, *(answer.kernels if answer is not None else ())))


def _answer(questions: Questions, names: Sequence[str]) -> tuple[FusionAnswer | None, str]:
    """The answer about fusion, or why there is none: a single name may be one of the device's."""
    try:
        return questions.answer(names), ""
    except UsageError as error:
        if len(names) == 1:
            return None, error.message
        raise
