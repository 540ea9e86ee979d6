"""``hloopt ls``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.options import folders_argument, json_option
from hloopt.cli.time_options import target_options
from hloopt.cli.words import complete, one_of

__all__ = ["command"]


@click.command("ls", cls=GroupedCommand)
@folders_argument
@click.option("--stages", is_flag=True, help="List every stage, as for a single module.")
@click.option(
    "--counts/--no-counts",
    default=True,
    show_default=True,
    help="Count instructions. And computations; that reads the files.",
)
@click.option(
    "--sort",
    callback=one_of("report.module_costs", "SORTS"),
    shell_complete=complete("report.module_costs", "SORTS"),
    metavar="KEY",
    help="time, peak, launches or instructions: most first. Each module is priced on --target (h200); "
    "equal names are together.",
)
@target_options
@json_option
def command() -> None:
    """List the modules of XLA's dump directories: stages, formats, sizes, instructions.

    Without DIR it is the current directory.  Every command that reads modules takes such a directory, with
    the same --module and --stage.  Instructions and computations are counted by lines, as XLA prints them.

    \b
    Example:
      hloopt ls dump --module jit_train --stage algsimp
      hloopt ls dump --sort time --target a100
    """
