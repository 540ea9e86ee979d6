"""``hloopt completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from hloopt.cli.help import GroupedCommand
from hloopt.cli.main import cli

__all__ = ["command"]


@click.command("completion", cls=GroupedCommand)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Example:
      hloopt completion bash > ~/.local/share/bash-completion/completions/hloopt
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(cli, {}, "hloopt", "_HLOOPT_COMPLETE").source())
