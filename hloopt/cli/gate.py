"""``hloopt gate``."""

from __future__ import annotations

import json
from typing import Any

import click

from hloopt import __version__
from hloopt.cli.files import Input, each_input, open_each
from hloopt.cli.help import GroupedCommand
from hloopt.cli.json_out import SCHEMA, write_json
from hloopt.cli.options import json_option, pick_options, stages_of_sides
from hloopt.cli.predicting import note_other_devices, predictor, target_options
from hloopt.driver.gating import GATED_STAGES, GATED_TARGET
from hloopt.driver.writing import check_writable, write_text
from hloopt.errors import UsageError
from hloopt.report.console import product
from hloopt.report.gate import Gate, parse_gates
from hloopt.report.gated import GateReport
from hloopt.report.gating import gate_modules
from hloopt.report.module_pairs import GivenModule

__all__ = ["command"]

_EXCEEDED = 6
_FORMS = (".md", ".sarif", ".json")


def _gates(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[Gate, ...]:
    return tuple(gate for value in values for gate in parse_gates(value))


@click.command("gate", cls=GroupedCommand)
@click.argument("base", type=click.Path())
@click.argument("head", type=click.Path())
@click.option(
    "--max",
    "gates",
    multiple=True,
    required=True,
    metavar="GATES",
    callback=_gates,
    help="The limits: 'kernels<=+0,peak<=+2%,time<=3ms'. Figures: kernels, launches, bytes, peak, flops, "
    "transcendentals, instructions, time. A limit is a number, or with a sign relative to BASE (may be "
    "repeated).",
)
@click.option("--total", is_flag=True, help="Judge the sums of all modules (of peak the largest).")
@target_options
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    metavar="OUT",
    type=click.Path(),
    help="Write the report as .md, .sarif or .json, too. .md is for the summary of a job, .sarif for a "
    "code host (may be repeated).",
)
@pick_options
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    base: str,
    head: str,
    gates: tuple[Gate, ...],
    total: bool,
    target: str | None,
    cost_model: str,
    outputs: tuple[str, ...],
    as_json: bool,
) -> None:
    """Fail when a module costs more than it may beside the one it replaces.

    BASE and HEAD are modules, or directories of modules: texts, protocol buffers, or what XLA dumps, of which
    the stage after optimisation is taken where there is one (final). Modules belong together by the names of
    their files, then by what they compute. Each is judged by itself. Modules that only HEAD has are judged
    by the limits that are not relative. The exit code is 6 where a limit is exceeded.

    \b
    Example:
      hloopt gate main.hlo mine.hlo --max 'kernels<=+0,launches<=+0,bytes<=+2%'
      hloopt gate main/ mine/ --max 'peak<=+2%,time<=+3%' --target h100 -o gate.md
    """
    if target is None and any(gate.figure == "time" for gate in gates):
        target = GATED_TARGET
        click.echo(f"note: times are predicted for {target}; --target names another", err=True)
    for output in outputs:
        if not output.endswith(_FORMS):
            raise UsageError(f"-o {output}: the name must end with one of {', '.join(_FORMS)}")
        check_writable(output)
    model = predictor(target, cost_model)
    stages = [one or GATED_STAGES for one in stages_of_sides(ctx)]
    sides = open_each([base, head], stages)
    if model is not None:
        note_other_devices((text.name for side in sides for text in side), model)
    found: list[GivenModule] = []

    def step(read: Input) -> dict[str, Any]:
        found.append(GivenModule(read.name, read.module))
        return {"module": read.module.name}

    rows, code = each_input([*sides[0], *sides[1]], step)
    if code:
        if as_json:
            write_json("gate", {"read": rows})
        ctx.exit(code)
    count = len(sides[0])
    report = gate_modules(found[:count], found[count:], gates, model, total=total)
    for output in outputs:
        write_text(output, _content(report, output), output)
    if as_json:
        write_json("gate", report.to_json())
    else:
        report.show(product())
    ctx.exit(0 if report.passed else _EXCEEDED)


def _content(report: GateReport, output: str) -> str:
    if output.endswith(".md"):
        return report.markdown()
    if output.endswith(".sarif"):
        return json.dumps(report.sarif(__version__), indent=2) + "\n"
    return json.dumps({"schema": SCHEMA, "command": "gate", **report.to_json()}) + "\n"
