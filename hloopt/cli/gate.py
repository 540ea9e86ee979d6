"""``hloopt gate``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.options import json_option, pick_options
from hloopt.cli.time_options import target_options
from hloopt.cli.words import complete_limits

__all__ = ["command"]


@click.command("gate", cls=GroupedCommand)
@click.argument("base", type=click.Path())
@click.argument("head", type=click.Path())
@click.option(
    "--max",
    "gates",
    multiple=True,
    required=True,
    metavar="GATES",
    shell_complete=complete_limits,
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
def command() -> None:
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
