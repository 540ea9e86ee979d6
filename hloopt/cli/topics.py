"""``hloopt help``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.options import json_option
from hloopt.cli.words import complete

__all__ = ["command"]


@click.command("help", cls=GroupedCommand)
@click.argument("topic", required=False, shell_complete=complete("cli.actions.topics", "topics"))
@json_option
def command() -> None:
    """Explain a command with all its options, a topic, or a code.

    Codes are the reasons that hloopt explain gives for what is not fused, the constraints that errors name in
    brackets, the kinds of findings of hloopt why, the kinds of errors in JSON, and exit codes.

    \b
    Example:
      hloopt help inputs
      hloopt help both-reduce
    """
