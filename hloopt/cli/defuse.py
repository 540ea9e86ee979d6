"""``hloopt defuse``."""

from __future__ import annotations

from typing import Any

import click

from hloopt.cli.files import Input, each_input, open_texts
from hloopt.cli.help import GroupedCommand
from hloopt.cli.json_out import end
from hloopt.cli.options import PICKED, files_argument, json_option
from hloopt.cli.outputs import PRINT, ModuleOutput
from hloopt.pipelines import parse_pipeline

__all__ = ["command"]

_SIMPLIFICATION = "fix(tuple-simplifier,simplify,cse,dce)"


@click.command(
    "defuse",
    cls=GroupedCommand,
    groups={
        "Input": PICKED,
        "Output": ("output", "emit", *PRINT.names, "as_json"),
    },
)
@files_argument
@click.option(
    "--simplify",
    is_flag=True,
    help="Remove what only served the fusions. Slices of what was concatenated for a common kernel, and "
    "values that several kernels computed, each for itself.",
)
@click.option("-o", "--output", metavar="OUT", help="A file or directory; '-' is stdout.")
@click.option(
    "--emit",
    type=click.Choice(["hlo", "proto"]),
    default="hlo",
    show_default=True,
    help="Form of the output. proto is an HloProto, as for OUT called .pb.",
)
@PRINT
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    simplify: bool,
    output: str | None,
    emit: str,
    as_json: bool,
) -> None:
    """Expand the fusions of modules again and print the modules as HLO.

    Every fusion is replaced by the instructions in it, whatever its kind, whether hloopt made it or XLA (in
    what it dumps after optimisation). Several results are read where they are computed; a fusion that runs
    asynchronously is computed where its result was waited for; a schedule is dropped. Library calls stay.

    \b
    Example:
      hloopt defuse dump --stage after | hloopt optimize --passes priority-fusion
      hloopt defuse samples/dump --stage after --simplify --no-metadata
    """
    pipeline = parse_pipeline(f"defuse,{_SIMPLIFICATION}" if simplify else "defuse")
    texts = open_texts(files)
    product = ModuleOutput.of(output, texts, emit=emit, as_json=as_json)

    def step(found: Input) -> dict[str, Any]:
        module = found.module
        report = pipeline.run(module)
        fusions = report.hits()["defuse"]["inline a fusion"]
        if not as_json:
            click.echo(f"{found.name}: fusions expanded: {fusions}", err=True)
        row = {"module": module.name, "fusions": fusions}
        counts = {"before": report.instructions_before, "after": report.instructions_after}
        return {**row, "instructions": counts, **product.write(module, found.name)}

    rows, code = each_input(texts, step, "defusing")
    end(ctx, rows, code)
