"""What ``hloopt gate`` does."""

from __future__ import annotations

import json

import click

from hloopt import __version__
from hloopt.cli.json_out import SCHEMA, write_json
from hloopt.cli.options import stages_of_sides
from hloopt.cli.predicting import note_other_devices, predictor, read_both
from hloopt.driver.gating import GATED_STAGES, GATED_TARGET
from hloopt.driver.writing import check_writable, write_text
from hloopt.errors import UsageError
from hloopt.report.console import product
from hloopt.report.gate import parse_gates
from hloopt.report.gated import GateReport
from hloopt.report.gating import gate_modules

__all__ = ["execute"]


_EXCEEDED = 6


_FORMS = (".md", ".sarif", ".json")


@click.pass_context
def execute(
    ctx: click.Context,
    base: str,
    head: str,
    gates: tuple[str, ...],
    total: bool,
    target: str | None,
    cost_model: str,
    outputs: tuple[str, ...],
    as_json: bool,
) -> None:
    """What ``hloopt gate`` does."""
    limits = [gate for text in gates for gate in parse_gates(text)]
    if target is None and any(gate.figure == "time" for gate in limits):
        target = GATED_TARGET
        click.echo(f"note: times are predicted for {target}; --target names another", err=True)
    for output in outputs:
        if not output.endswith(_FORMS):
            raise UsageError(f"-o {output}: the name must end with one of {', '.join(_FORMS)}")
        check_writable(output)
    model = predictor(target, cost_model)
    stages = [one or GATED_STAGES for one in stages_of_sides(ctx)]
    before, after, rows, code = read_both([base, head], stages)
    if model is not None:
        note_other_devices((one.file for one in (*before, *after)), model)
    if code:
        if as_json:
            write_json("gate", {"read": rows})
        ctx.exit(code)
    report = gate_modules(before, after, limits, model, total=total)
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
