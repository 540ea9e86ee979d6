"""``hloopt diff``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hloopt.cli.files import Input, each_input, one_text, open_texts
from hloopt.cli.options import json_option, pick_options, strict_option
from hloopt.cli.predicting import predictor, target_options
from hloopt.errors import UsageError

if TYPE_CHECKING:
    from hloopt.report.gate import Gate

__all__ = ["command"]

_DIFFERENT = 1
_GATE_FAILED = 6
_SIDES = 2


def _gates(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[Gate, ...]:
    from hloopt.report.gate import parse_gates

    return tuple(gate for value in values for gate in parse_gates(value))


@click.command("diff")
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path())
@pick_options
@strict_option()
@target_options
@click.option(
    "--gate",
    "gates",
    multiple=True,
    metavar="GATES",
    callback=_gates,
    help="Exit with 6 when a figure of AFTER is above its limit: 'kernels<=+0,bytes<=+2%'. Figures: "
    "kernels, launches, bytes, flops, transcendentals, instructions, time (with --target). A limit is a "
    "number, or with a sign relative to BEFORE. May be given several times.",
)
@click.option("--all", "every", is_flag=True, help="List kernels that are the same, too.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    before: str,
    after: str,
    target: str | None,
    cost_model: str,
    gates: tuple[Gate, ...],
    every: bool,
    as_json: bool,
) -> None:
    """Compare two modules: their kernels, what those cost, and each instruction that differs.

    Kernels are matched by what they compute: names, metadata, the order of instructions and the names of
    fusions do not matter. Launches count the trips of loops that the module shows. BEFORE and AFTER are texts,
    protocol buffers or dump directories (--module and --stage pick); one may be '-'. The exit code is 0 for
    equal modules and 1 for others; with --gate the gates alone decide.

    \b
    Example:
      hloopt diff old.hlo new.hlo --gate 'kernels<=+0,launches<=+0,bytes<=+2%'
      hloopt optimize -O2 dump.txt | hloopt diff dump.txt - --target h200
    """
    from hloopt.report.console import product, write_json
    from hloopt.report.fusion_diff import compare, difference_json, figures, show_difference

    if target is None and any(gate.figure == "time" for gate in gates):
        raise UsageError("--gate time is about predicted times: --target says for which device")
    texts = open_texts([before, after])
    if len(texts) > _SIDES:
        for side in (before, after):
            one_text(open_texts([side]), f"{side}: each side of a comparison belongs")
    found: list[Input] = []

    def step(read: Input) -> dict[str, Any]:
        found.append(read)
        return {"module": read.module.name}

    rows, code = each_input(texts, step)
    if code:
        if as_json:
            write_json("diff", {"modules": rows})
        ctx.exit(code)
    difference = compare(found[0].module, found[1].module, predictor(target, cost_model))
    values = [figures(one) for one in difference.totals]
    verdicts = [
        gate.check(values[0].get(gate.figure, 0.0), values[1].get(gate.figure, 0.0))
        for gate in gates
    ]
    if as_json:
        write_json("diff", {"modules": rows, **difference_json(difference, verdicts)})
    else:
        show_difference(difference, verdicts, product(), every=every)
    for verdict in verdicts:
        if not verdict.passed:
            click.echo(f"gate exceeded: {verdict.gate.text}", err=True)
    if verdicts:
        ctx.exit(0 if all(verdict.passed for verdict in verdicts) else _GATE_FAILED)
    ctx.exit(0 if difference.equal else _DIFFERENT)
