"""``hloopt defuse``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.options import PICKED, files_argument, json_option
from hloopt.cli.output_options import PRINT
from hloopt.cli.words import OneOf

__all__ = ["command"]


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
    type=OneOf(["hlo", "proto"]),
    default="hlo",
    show_default=True,
    help="Form of the output. proto is an HloProto, as for OUT called .pb.",
)
@PRINT
@json_option
def command() -> None:
    """Expand the fusions of modules again and print the modules as HLO.

    Every fusion is replaced by the instructions in it, whatever its kind, whether hloopt made it or XLA (in
    what it dumps after optimisation). Several results are read where they are computed; a fusion that runs
    asynchronously is computed where its result was waited for; a schedule is dropped. Library calls stay.

    \b
    Example:
      hloopt defuse dump --stage after | hloopt optimize --passes priority-fusion
      hloopt defuse samples/dump --stage after --simplify --no-metadata
    """
