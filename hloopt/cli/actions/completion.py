"""What ``hloopt completion`` does."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from hloopt.cli.main import cli

__all__ = ["execute"]


def execute(shell: str) -> None:
    """What ``hloopt completion`` does."""
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(cli, {}, "hloopt", "_HLOOPT_COMPLETE").source())
