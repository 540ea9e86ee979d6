"""``hloopt passes``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.options import json_option
from hloopt.cli.pipeline_options import PASSES
from hloopt.cli.words import complete_pass, complete_preset

__all__ = ["command"]


@click.command("passes", cls=GroupedCommand)
@click.argument("names", nargs=-1, metavar="[PASS] [RULE]", shell_complete=complete_pass)
@click.option(
    "--preset",
    metavar="NAME",
    shell_complete=complete_preset,
    help="Print a named pipeline, one entry per line.",
)
@click.option(
    "--xla-rules",
    is_flag=True,
    help="List what XLA's algebraic simplifier does. And which rule or pass does it here, or why none "
    "does.",
)
@click.option("--diff", "as_diff", is_flag=True, help="Show examples as a diff.")
@PASSES.only("pass_file")
@json_option
def command() -> None:
    """List passes and pipelines, or explain one with its options and a worked example.

    A rule of simplify is named by its equation.

    \b
    Example:
      hloopt passes instruction-fusion
      hloopt passes 'A + 0 => A' --diff
      hloopt optimize dump.txt --passes "$(hloopt passes --preset xla-gpu-2026)"
    """
