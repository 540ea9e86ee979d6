"""``hloopt stats``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hloopt.cli.files import Input, each_input, open_texts
from hloopt.cli.help import GroupedCommand
from hloopt.cli.json_out import end
from hloopt.cli.options import files_argument, json_option
from hloopt.cli.predicting import predictor, target_options
from hloopt.cli.profile_option import Measuring, profile_option
from hloopt.dumps.content import assigned_bytes
from hloopt.report.console import product
from hloopt.report.stats import module_stats

if TYPE_CHECKING:
    from hloopt.report.prediction import By

__all__ = ["command"]


@click.command("stats", cls=GroupedCommand)
@files_argument
@click.option(
    "--buffers",
    default=10,
    show_default=True,
    type=click.IntRange(0),
    help="List N of the largest buffers. And of those alive where most memory is needed.",
)
@target_options
@profile_option
@click.option(
    "--by",
    type=click.Choice(["kernel", "source", "opcode"]),
    default="kernel",
    show_default=True,
    metavar="WHAT",
    help="Rows: kernel, source or opcode. With --target or --profile; source is a line of the program.",
)
@click.option(
    "--top",
    default=20,
    show_default=True,
    type=click.IntRange(0),
    help="List N rows, those that take longest. 0 for all; with --target or --profile.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    buffers: int,
    target: str | None,
    cost_model: str,
    profile: str | None,
    by: By,
    top: int,
    as_json: bool,
) -> None:
    """Show what is in a module: opcodes, flops, bytes, the largest buffers.

    With --target: how long each kernel will take there, what it is bound by and its share of the whole.
    Launches include loop iterations, where the module shows the trip count; sums are of one run of the entry.

    With --profile: how long each instruction took in a real run, from a profiler's trace, beside what --target
    predicts. Without FILE the modules are those that the trace holds (.xplane.pb).

    \b
    Example:
      hloopt optimize dump.txt | hloopt stats
      hloopt optimize -O2 dump.txt | hloopt stats --target h200 --by source
      hloopt stats --profile host.xplane.pb --module jit_step
    """
    predicting = predictor(target, cost_model, refuses=() if profile else ("by", "top"))
    measuring = None if profile is None else Measuring.of(profile, files)
    texts = open_texts(files) if measuring is None else measuring.texts

    def step(found: Input) -> dict[str, Any]:
        predicted = predicting if measuring is None else None
        assigned = assigned_bytes(Path(found.name))
        stats = module_stats(found.module, buffers=buffers, predictor=predicted, xla_bytes=assigned)
        if measuring is None:
            if not as_json:
                stats.show(product(), file=found.name, by=by, top=top)
            return stats.to_json()
        stats = replace(stats, measured=measuring.measured(found, predicting))
        if not as_json:
            stats.show(product(), file=found.name, by=by, top=top)
        return stats.to_json()

    rows, code = each_input(texts, step, "counting in")
    end(ctx, rows, code)
