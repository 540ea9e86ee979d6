"""The setup of ``hloopt study`` from its options and file: strategies, modules, devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path

import click

from hloopt.cli.files import InputText, open_texts
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import find_model, model_for
from hloopt.dataclass import dataclass
from hloopt.driver.options import PassOptions
from hloopt.driver.passes import pass_files
from hloopt.errors import UsageError
from hloopt.report.study import StudyDevice
from hloopt.report.study_gate import RatioGate
from hloopt.rewrite.spec import did_you_mean
from hloopt.study.devices import check_name, way_of
from hloopt.study.plan import ModuleRow, StudyPlan
from hloopt.study.study_file import named_strategies, read_study
from hloopt.targets import find_target
from hloopt.workers.pool import Workers

__all__ = ["StudyOptions", "chosen_devices", "chosen_modules", "chosen_plan"]

_MODEL = "xla-2026"
_DEFAULT = ("O0", "O1", "O2", "O3")


@dataclass(frozen=True)
class StudyOptions:
    """What one study is to do; each field is the option of its name, and ``passes`` what else bears on passes.

    ``seed`` is None where none is given.  ``workers`` is None where this process makes all cells; ``memory`` of
    each is in GiB.
    """

    passes: PassOptions = field(default_factory=PassOptions)
    strategies: str | None = None
    strategy: tuple[str, ...] = ()
    baseline: str | None = None
    device: tuple[str, ...] = ()
    cost_model: str | None = None
    repeat: int | None = None
    seed: int | None = None
    verify: bool = True
    verify_limit: float | None = None
    emulate_limit: float | None = None
    rtol: float | None = None
    atol: float | None = None
    gates: tuple[RatioGate, ...] = ()
    html: str | None = None
    out: str | None = None
    cells: str | None = None
    workers: Workers | None = None
    timeout: float | None = None
    memory: float | None = None


def chosen_plan(options: StudyOptions) -> StudyPlan:
    """The strategies of a file and of the command line.

    Raises ``UsageError``, and ``FileError`` with the place in the file, for invalid ones.
    """
    file, baseline = options.strategies, options.baseline
    passes, rules = pass_files(options.passes.pass_file), options.passes.fusion_rule
    more = named_strategies(options.strategy or (() if file is not None else _DEFAULT), passes)
    if file is not None:
        plan = read_study(file, passes, rules)
        taken = {one.name for one in plan.strategies}
        for one in more:
            if one.name in taken:
                raise UsageError(f"--strategy {one.name}: {file} has a strategy of that name")
        plan = replace(plan, strategies=(*plan.strategies, *more))
    else:
        plan = StudyPlan(more, more[0].name)
    if baseline is not None:
        names = [one.name for one in plan.strategies]
        if baseline not in names:
            hint = did_you_mean(baseline, names)
            raise UsageError(f"--baseline: no strategy is called '{baseline}'{hint}")
        plan = replace(plan, baseline=baseline)
    for gate in options.gates:
        gate.check_name([one.name for one in plan.strategies])
    return plan


def chosen_modules(
    files: Sequence[str], plan: StudyPlan, options: StudyOptions
) -> list[tuple[InputText, ModuleRow]]:
    """What to read, and what the study calls it; the tolerances take the place of the plan's.

    Files of the command line take the place of the plan's; one that the plan knows keeps its name there.
    """

    def given(row: ModuleRow) -> ModuleRow:
        rtol = row.rtol if options.rtol is None else options.rtol
        return replace(row, rtol=rtol, atol=row.atol if options.atol is None else options.atol)

    if not files and plan.modules:
        return [(open_texts([row.file])[0], given(row)) for row in plan.modules]
    found: list[tuple[InputText, ModuleRow]] = []
    taken: set[str] = set()
    for text in open_texts(files):
        known = None if text.path is None else _row(text.path, plan.modules)
        name = _stem(text.name) if known is None else known.name
        if any(text.name == other.name for other, _ in found):
            raise UsageError(f"{text.name} is given more than once")
        if name in taken:
            name = text.name
        taken.add(name)
        row = ModuleRow(text.name, name) if known is None else replace(known, file=text.name)
        found.append((text, given(row)))
    return found


def _row(path: Path, rows: Sequence[ModuleRow]) -> ModuleRow | None:
    return next((row for row in rows if Path(row.file).resolve() == path.resolve()), None)


def _stem(name: str) -> str:
    stem = Path(name).name
    for end in (".gz", ".hlo.pb", ".pb", ".hlo", ".txt"):
        stem = stem.removesuffix(end)
    return stem or name


def chosen_devices(
    options: StudyOptions, plan: StudyPlan
) -> tuple[list[StudyDevice], dict[str, Predictor]]:
    """The devices by their names, and what predicts times on those that are predicted.

    Raises ``UsageError`` for unknown names, and for one given twice.
    """
    cost_model = options.cost_model or plan.cost_model or _MODEL
    find_model(cost_model)
    devices: list[StudyDevice] = []
    predictors: dict[str, Predictor] = {}
    for name in options.device or plan.devices or ("cpu",):
        check_name(name)
        if any(one.name == name for one in devices):
            raise UsageError(f"--device {name} is given more than once")
        if way_of(name) != "predicted":
            devices.append(StudyDevice(name, _TITLES[name]))
            continue
        target = find_target(name)
        model = model_for(cost_model, target, lambda note: click.echo(f"note: {note}", err=True))
        predictors[name] = Predictor(model)
        devices.append(StudyDevice(name, target.title, model.name, target.calibrated))
    return devices, predictors


_TITLES = {
    "cpu": "this machine, NumPy",
    "native": "this machine, its C++ compiler",
    "gpu": "this machine's GPU",
    "xla-cpu": "this machine, XLA",
    "emulator": "the GPU's kernels on this machine's CPU",
}
