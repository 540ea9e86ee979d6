"""``hloopt cache``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.options import json_option

__all__ = ["command"]


@click.command("cache", cls=GroupedCommand)
@click.option("--clear", is_flag=True, help="Remove all entries; the next use makes them again.")
@json_option
def command() -> None:
    """Show where compiled programs and the parser's tables are kept, and how large they are.

    HLOOPT_CACHE_DIR names another folder.  One that belongs to another user, or that others can write to,
    is not used.

    \b
    Example:
      hloopt cache --clear
    """
