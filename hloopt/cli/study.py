"""``hloopt study``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from hloopt import __version__
from hloopt.cli.files import Input, InputText, each_input
from hloopt.cli.help import GroupedCommand
from hloopt.cli.json_out import write_json
from hloopt.cli.options import PICKED, files_argument, json_option
from hloopt.cli.pipeline_options import PASSES, pass_options
from hloopt.cli.study_out import check_folder, check_page
from hloopt.cli.study_runner import Studied, StudyRunner
from hloopt.cli.study_setup import StudyOptions, chosen_devices, chosen_modules, chosen_plan
from hloopt.cli.tolerance_options import TOLERANCE, given_tolerance
from hloopt.cli.waiting import progress
from hloopt.cli.words import complete, complete_model
from hloopt.driver.writing import write_text
from hloopt.errors import UsageError
from hloopt.report.console import product
from hloopt.report.study import Study, study_json
from hloopt.report.study_gate import parse_gate
from hloopt.report.study_page import study_page
from hloopt.report.study_table import show_study
from hloopt.runtime.tolerance import Tolerance

if TYPE_CHECKING:
    from hloopt.report.study_gate import RatioGate, Reached
    from hloopt.study.plan import ModuleRow, Strategy

__all__ = ["command"]

_DIFFER, _NO_DEVICE, _GATE_FAILED = 1, 5, 6


def _gates(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[RatioGate, ...]:
    return tuple(map(parse_gate, values))


@click.command(
    "study",
    cls=GroupedCommand,
    groups={
        "Strategies": ("strategies", "strategy", "baseline", "pass_file", "fusion_rule"),
        "Input": (*PICKED, "seed"),
        "Devices": ("device", "cost_model", "repeat"),
        "Verification": ("verify", "verify_limit", "emulate_limit", *TOLERANCE.names),
        "Output": ("gates", "html", "out", "as_json"),
    },
)
@files_argument
@click.option(
    "--strategies",
    metavar="FILE.toml",
    help="A file of what is compared. Strategies, ladders, ablations, and modules and devices, too.",
)
@click.option(
    "--strategy",
    multiple=True,
    metavar="[NAME=]PASSES",
    help="Compare this, too: O2 or mine=simplify,cse. Without any: O0 to O3 (may be repeated).",
)
@click.option(
    "--baseline",
    metavar="NAME",
    help="What the others are compared with [the first]. The name of a strategy.",
)
@PASSES.only("pass_file", "fusion_rule")
@click.option(
    "--device",
    multiple=True,
    metavar="NAME",
    shell_complete=complete("study.devices", "device_names"),
    help="Measure on a device, or predict for a target. cpu, native, gpu, xla-cpu: measured; emulator: "
    "verified; a target (h200, a100, ...): predicted (may be repeated; cpu by default).",
)
@click.option(
    "--cost-model",
    metavar="NAME",
    shell_complete=complete_model,
    help="What predicts times [xla-2026].",
)
@click.option(
    "--repeat",
    type=click.IntRange(1),
    metavar="N",
    help="Timed runs of each cell [5]. Fewer where 5 would take more than 10 seconds.",
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Seed of inputs. Without it NAME.npz beside NAME.hlo is used, where there is one.",
)
@click.option(
    "--verify/--no-verify",
    default=True,
    show_default=True,
    help="Compare with the interpreter. The results of every cell, and with recorded ones.",
)
@click.option(
    "--verify-limit",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="Elements the interpreter may compute [4e10]. To verify a module; larger ones are not verified.",
)
@click.option(
    "--emulate-limit",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="Elements the emulator may compute [4e8].",
)
@TOLERANCE
@click.option(
    "--gate",
    "gates",
    multiple=True,
    metavar="[NAME=]RATIO",
    callback=_gates,
    help="Exit with 6 unless it is so much faster. The strategy, or without NAME the fastest one, has to "
    "be so many times as fast as the baseline, for each module on each device (may be repeated).",
)
@click.option(
    "--html", metavar="OUT.html", help="Write one page with bars, tables and all figures."
)
@click.option(
    "--out",
    metavar="DIR",
    help="Keep the optimised modules. And lock files of what was fused and which kernels ran.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, /, files: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Compare pipelines: what each pass buys, on which module and device, with every result verified.

    Every module is optimised by every strategy for every device. Times are measured on cpu (NumPy), native
    (C++), gpu and xla-cpu (XLA itself, by the Python that HLOOPT_XLA_PYTHON names), and predicted for every
    target by a cost model: the sum over kernels with their launches, loop iterations included, as hloopt stats
    --target has it. On emulator the CUDA C of the kernels runs on the CPU and is verified, never timed.

    The results of every cell are compared with the interpreter's, and with recorded ones, by the tolerances of
    hloopt run; where times are predicted, the module is run once on the CPU. A cell that fails, or whose device
    is missing, is reported and does not stop the others. Exits with 1 when results differ.

    A study file names strategies. A ladder adds passes of a pipeline one at a time, an ablation leaves each
    out: the column 'bought' shows what a step is worth. The file may also name modules (one as a variant of
    another, whose baseline counts for both) and devices:

    \b
      baseline = "XLA 2022"
      devices = ["cpu", "h200"]
      [[module]]
      file = "rollout.hlo"
      [[strategy]]
      name = "XLA 2022"
      passes = "xla-gpu-2022"
      [[strategy]]
      name = "ours"
      passes = "O3"
      ladder = ["rng-expander", "concat-removal", "loop-fusion"]
      ablation = ["loop-fusion"]

    \b
    Example:
      hloopt study rollout.hlo --device cpu --device h200
      hloopt study rollout.hlo --strategies study.toml --html study.html
      hloopt study *.hlo --strategy O2 --strategy 'mine=O2,cse' --device a100 --gate mine=1.05
    """
    if ctx.get_parameter_source("seed") is ParameterSource.DEFAULT:
        given["seed"] = None
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
        write_text(options.html, study_page(study, made), options.html)
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

    with progress(wanted, called) as each:
        for one, strategy, device in each:
            study.cells.append(runner.cell(one, strategy, device))


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
