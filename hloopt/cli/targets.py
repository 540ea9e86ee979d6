"""``hloopt targets``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.options import json_option
from hloopt.cli.words import complete_target

__all__ = ["command"]


@click.command("targets", cls=GroupedCommand)
@click.argument("name", required=False, shell_complete=complete_target)
@json_option
def command() -> None:
    """List the devices hloopt knows, or every number of one with its source.

    NAME may also be the path of a description of your own: TOML with the keys that --json shows
    (base = "h200" takes all others from that device), or XLA's GpuTargetConfigProto as text (.txtpb).
    Every --target takes the same names and paths.

    \b
    Example:
      hloopt targets h200
      hloopt kernels dump.txt --target h200
    """
