"""``hloopt lsp``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.time_options import target_options

__all__ = ["command"]


@click.command("lsp", cls=GroupedCommand)
@target_options
def command() -> None:
    """Serve HLO to an editor by the language server protocol, on stdin and stdout.

    The editor shows mistakes as you type, what a name is, where it is defined and used, an outline of the
    computations, the time that is predicted for each kernel, and above each array that goes through memory why
    no fusion removes it. It needs pygls (extra lsp). grammar/hlo.tmLanguage.json colours HLO in editors.

    \b
    Example:
      hloopt lsp                  as the command of a language server for *.hlo
      hloopt lsp --target h100
    """
