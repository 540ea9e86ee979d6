"""What ``hloopt study`` does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from hloopt import __version__
from hloopt.cli.files import Input, InputText, each_input
from hloopt.cli.given import given_tolerance, pass_options
from hloopt.cli.json_out import write_json
from hloopt.cli.study_out import check_folder, check_page
from hloopt.cli.study_runner import Studied, StudyRunner
from hloopt.cli.study_setup import StudyOptions, chosen_devices, chosen_modules, chosen_plan
from hloopt.cli.waiting import INTERRUPTED, interrupted, progress
from hloopt.driver.writing import write_text
from hloopt.errors import UsageError
from hloopt.report.console import product
from hloopt.report.study import Study, study_json
from hloopt.report.study_gate import parse_gate
from hloopt.report.study_page import study_page
from hloopt.report.study_table import show_study
from hloopt.runtime.tolerance import Tolerance
from hloopt.study.cells import Cell
from hloopt.study.devices import way_of

if TYPE_CHECKING:
    from hloopt.report.study_gate import RatioGate, Reached
    from hloopt.study.plan import ModuleRow, Strategy

__all__ = ["execute"]


_DIFFER, _NO_DEVICE, _GATE_FAILED = 1, 5, 6


@click.pass_context
def execute(ctx: click.Context, /, files: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """What ``hloopt study`` does."""
    if ctx.get_parameter_source("seed") is ParameterSource.DEFAULT:
        given["seed"] = None
    given["gates"] = tuple(map(parse_gate, given["gates"]))
    options = StudyOptions(pass_options(), **given, **_recorded(given_tolerance()))
    plan = chosen_plan(options)
    modules = chosen_modules(files, plan, options)
    devices, predictors = chosen_devices(options, plan)
    check_folder(options.out)
    check_page(options.html, [text.path for text, _ in modules if text.path is not None])
    runner = StudyRunner.of(options, plan, predictors)
    found, rows, code = _read(modules)
    study = Study(plan.title, plan.baseline, [one.row for one in found], plan.strategies, devices)
    _fill(study, found, runner)
    verdicts = [(gate, gate.check(study)) for gate in options.gates]
    if as_json:
        gate_rows = [gate.json(reached) for gate, reached in verdicts]
        write_json("study", {"read": rows, **study_json(study), "gates": gate_rows})
    else:
        show_study(study, product())
    if options.html is not None:
        now = datetime.now().astimezone()
        made = f"Made by hloopt {__version__}, {now:%Y-%m-%d %H:%M}."
        page = study_page(study, made, runner.keep.texts(options.html))
        write_text(options.html, page, options.html)
    ctx.exit(_code(study, verdicts, code))


def _recorded(tolerance: Tolerance) -> dict[str, Any]:
    """The tolerance of recorded results, as fields.  Raises ``UsageError`` for one of another kind."""
    if tolerance.bitwise or tolerance.ulp is not None:
        raise UsageError("a study takes --tolerance rtol=X,atol=X, for recorded results")
    return {"rtol": tolerance.rtol, "atol": tolerance.atol}


def _read(
    modules: Sequence[tuple[InputText, ModuleRow]],
) -> tuple[list[Studied], list[dict[str, Any]], int]:
    """The modules that could be read, what the JSON says of all, and the exit code so far."""
    found: list[Studied] = []
    rows: list[dict[str, Any]] = []
    code = 0
    for text, row in modules:

        def step(read: Input, row: ModuleRow = row) -> dict[str, Any]:
            found.append(Studied(row, read))
            return {"name": row.name, "module": read.module.name}

        more, status = each_input([text], step)
        rows += more
        code = max(code, status)
    return found, rows, code


def _fill(study: Study, found: Sequence[Studied], runner: StudyRunner) -> None:
    """Make all cells, the device innermost: those for which passes decide alike share their work."""
    wanted = [
        (one, strategy, device.name)
        for one in found
        for strategy in study.rows(one.row.name)
        for device in study.devices
    ]

    def called(cell: tuple[Studied, Strategy, str]) -> str:
        one, strategy, device = cell
        return f"{one.row.name}, {strategy.name}, {device}"

    try:
        with progress(wanted, called) as each:
            for one, strategy, device in each:
                study.cells.append(runner.cell(one, strategy, device))
    except KeyboardInterrupt:
        if not study.cells:
            raise
        interrupted(len(study.cells), len(wanted), "cells")
        _leave_out(study, wanted[len(study.cells) :])


def _leave_out(study: Study, rest: Sequence[tuple[Studied, Strategy, str]]) -> None:
    """Mark the cells that were not made, and leave out modules that have no others."""
    begun = {cell.module for cell in study.cells}
    study.modules = [row for row in study.modules if row.name in begun]
    study.cells += [
        Cell(
            one.row.name,
            strategy.name,
            device,
            way_of(device),
            problem="interrupted",
            code=INTERRUPTED,
        )
        for one, strategy, device in rest
        if one.row.name in begun
    ]


def _code(study: Study, verdicts: Sequence[tuple[RatioGate, Sequence[Reached]]], code: int) -> int:
    """Results that differ first, then modules and cells that failed, then gates, each reported on stderr."""
    missed = 0
    gone = {cell.device: cell.problem for cell in study.cells if cell.missing}
    for gate, reached in verdicts:
        for device, problem in gone.items():
            missed = _NO_DEVICE
            click.echo(f"gate {gate.text}: nothing was measured on {device}: {problem}", err=True)
        if not reached and not gone:
            missed = missed or _GATE_FAILED
            click.echo(f"gate missed: {gate.text}: no module has a time for it", err=True)
        for one in reached:
            if not one.passed:
                missed = missed or _GATE_FAILED
                click.echo(f"gate missed: {gate.line(one)}", err=True)
    if not study.passed:
        return _DIFFER
    return max([code, *(cell.code for cell in study.cells)]) or missed
