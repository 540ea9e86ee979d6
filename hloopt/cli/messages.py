"""Errors as a person and as a script reads them."""

from __future__ import annotations

import sys
from typing import Any

import click

from hloopt.errors import HlooptError, SourceError

__all__ = ["error_json", "show_error"]


def show_error(error: HlooptError) -> None:
    """One error on stderr: with its place and excerpt where it has one."""
    sys.stdout.flush()
    text = str(error) if isinstance(error, SourceError) else f"hloopt: error: {error}"
    click.echo(text, err=True)


def error_json(error: HlooptError) -> dict[str, Any]:
    """An error as JSON values; ``line`` and ``column`` where it has a place."""
    found: dict[str, Any] = {"kind": type(error).__name__, "message": error.message}
    if isinstance(error, SourceError) and error.line:
        found |= {"line": error.line, "column": error.column}
    return found
