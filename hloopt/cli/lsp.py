"""``hloopt lsp``."""

from __future__ import annotations

import click

from hloopt import __version__
from hloopt.cli.help import GroupedCommand
from hloopt.cli.predicting import predictor, target_options
from hloopt.errors import DeviceError
from hloopt.extras import install_command

__all__ = ["command"]

_TARGET = "h200"


@click.command("lsp", cls=GroupedCommand)
@target_options
def command(target: str | None, cost_model: str) -> None:
    """Serve HLO to an editor by the language server protocol, on stdin and stdout.

    The editor shows mistakes as you type, what a name is, where it is defined and used, an outline of the
    computations, the time that is predicted for each kernel, and above each array that goes through memory why
    no fusion removes it. It needs pygls (extra lsp). grammar/hlo.tmLanguage.json colours HLO in editors.

    \b
    Example:
      hloopt lsp                  as the command of a language server for *.hlo
      hloopt lsp --target h100
    """
    model = predictor(target or _TARGET, cost_model)
    assert model is not None
    try:
        from hloopt.editor.server import make_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"pygls", "lsprotocol"}:
            raise
        raise DeviceError(f"hloopt lsp needs pygls: {install_command('lsp')}") from error
    make_server(model, __version__).start_io()
