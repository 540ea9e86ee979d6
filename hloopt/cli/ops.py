"""``hloopt ops``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.options import json_option
from hloopt.cli.words import OneOf, complete_opcode, complete_target

__all__ = ["command"]


@click.command("ops", cls=GroupedCommand)
@click.argument("opcodes", nargs=-1, metavar="[OPCODE]...", shell_complete=complete_opcode)
@click.option("--unsupported", is_flag=True, help="Only opcodes that cannot be evaluated yet.")
@click.option(
    "--device",
    type=OneOf(["gpu", "native"]),
    help="List the kernels of gpu or native. And for which element types, and why others have none.",
)
@click.option(
    "--target",
    metavar="NAME|FILE",
    default="h200",
    show_default=True,
    shell_complete=complete_target,
    help="The GPU of --device gpu.",
)
@json_option
def command() -> None:
    """List the opcodes of HLO, or some: family, operands, attributes, and whether they can be evaluated.

    \b
    Example:
      hloopt ops --unsupported
      hloopt ops scatter sort --device gpu
    """
