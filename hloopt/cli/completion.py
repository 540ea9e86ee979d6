"""``hloopt completion``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.words import OneOf

__all__ = ["command"]


@click.command("completion", cls=GroupedCommand)
@click.argument("shell", type=OneOf(["bash", "zsh", "fish"]))
def command() -> None:
    """Print the completion script of a shell.

    \b
    Example:
      hloopt completion bash > ~/.local/share/bash-completion/completions/hloopt
    """
