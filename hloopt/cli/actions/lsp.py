"""What ``hloopt lsp`` does."""

from __future__ import annotations

from hloopt import __version__
from hloopt.cli.predicting import predictor
from hloopt.errors import DeviceError
from hloopt.extras import install_command

__all__ = ["execute"]


_TARGET = "h200"


def execute(target: str | None, cost_model: str) -> None:
    """What ``hloopt lsp`` does."""
    model = predictor(target or _TARGET, cost_model)
    assert model is not None
    try:
        from hloopt.editor.server import make_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"pygls", "lsprotocol"}:
            raise
        raise DeviceError(f"hloopt lsp needs pygls: {install_command('lsp')}") from error
    make_server(model, __version__).start_io()
