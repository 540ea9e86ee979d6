"""What ``hloopt study`` does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from hloopt import __version__
from hloopt.cli.files import Input, InputText, each_input
from hloopt.cli.given import given_tolerance, pass_options
from hloopt.cli.json_out import write_json
from hloopt.cli.study_cells import CellMaker, Wanted, called
from hloopt.cli.study_out import Folder, Keep, check_folder, check_page
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
from hloopt.study.cell_rows import with_first
from hloopt.study.cells import Cell
from hloopt.study.devices import way_of
from hloopt.workers.pool import Workers, parse_workers

if TYPE_CHECKING:
    from hloopt.report.study_gate import RatioGate, Reached
    from hloopt.study.plan import ModuleRow

__all__ = ["execute"]


_DIFFER, _NO_DEVICE, _GATE_FAILED = 1, 5, 6


@click.pass_context
def execute(ctx: click.Context, /, files: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """What ``hloopt study`` does."""
    if ctx.get_parameter_source("seed") is ParameterSource.DEFAULT:
        given["seed"] = None
    given["gates"] = tuple(map(parse_gate, given["gates"]))
    given["workers"] = _workers(**{name: given[name] for name in ("workers", "timeout", "memory")})
    options = StudyOptions(pass_options(), **given, **_recorded(given_tolerance()))
    plan = chosen_plan(options)
    modules = chosen_modules(files, plan, options)
    devices, predictors = chosen_devices(options, plan)
    check_folder(options.out)
    check_page(options.html, [text.path for text, _ in modules if text.path is not None])
    runner = StudyRunner.of(options, plan, predictors)
    keep = Keep() if options.out is None else Folder(Path(options.out))
    found, rows, code = _read(modules)
    study = Study(plan.title, plan.baseline, [one.row for one in found], plan.strategies, devices)
    _fill(study, found, CellMaker(options, runner, keep))
    verdicts = [(gate, gate.check(study)) for gate in options.gates]
    if as_json:
        gate_rows = [gate.json(reached) for gate, reached in verdicts]
        write_json("study", {"read": rows, **study_json(study), "gates": gate_rows})
    else:
        show_study(study, product())
    if options.html is not None:
        now = datetime.now().astimezone()
        made = f"Made by hloopt {__version__}, {now:%Y-%m-%d %H:%M}."
        page = study_page(study, made, keep.texts(options.html))
        write_text(options.html, page, options.html)
    ctx.exit(_code(study, verdicts, code))


def _workers(workers: str | None, timeout: float | None, memory: float | None) -> Workers | None:
    """The workers that make the cells: one where only limits are given, None for this process itself."""
    if workers is None:
        return None if timeout is None and memory is None else 1
    return parse_workers(workers)


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

        def step(read: Input, row: ModuleRow = row, text: InputText = text) -> dict[str, Any]:
            found.append(Studied(row, read, text))
            return {"name": row.name, "module": read.module.name}

        more, status = each_input([text], step)
        rows += more
        code = max(code, status)
    return found, rows, code


def _fill(study: Study, found: Sequence[Studied], maker: CellMaker) -> None:
    """Make all cells, the device innermost: those for which passes decide alike share their work."""
    wanted = [
        (one, strategy, device.name)
        for one in found
        for strategy in study.rows(one.row.name)
        for device in study.devices
    ]
    made: dict[str, Cell] = {}
    try:
        with (
            progress(range(len(wanted)), lambda at: maker.doing or called(wanted[at])) as each,
            closing(maker.all(wanted)) as making,
        ):
            for _, (one, cell) in zip(each, making, strict=True):
                made[called(one)] = cell
    except KeyboardInterrupt:
        if not made:
            raise
        interrupted(len(made), len(wanted), "cells")
        if maker.options.cells is not None:
            click.echo(f"the same command goes on from {maker.options.cells}", err=True)
        begun = {cell.module for cell in made.values()}
        study.modules = [row for row in study.modules if row.name in begun]
        wanted = [one for one in wanted if one[0].row.name in begun]
    study.cells += with_first(made.get(called(one)) or _interrupted(one) for one in wanted)


def _interrupted(wanted: Wanted) -> Cell:
    """The mark of a cell that was not made, in a module of which others were."""
    one, strategy, device = wanted
    problem, code = "interrupted", INTERRUPTED
    return Cell(one.row.name, strategy.name, device, way_of(device), problem=problem, code=code)


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
