"""Errors as a person and as a script reads them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from hloopt.errors import HlooptError, SourceError

if TYPE_CHECKING:
    from hloopt.ir import Module

__all__ = ["error_json", "show_error", "show_warnings"]

_MOST_WARNINGS = 20


def show_error(error: HlooptError) -> None:
    """One error on stderr: with its place and excerpt where it has one."""
    sys.stdout.flush()
    text = str(error) if isinstance(error, SourceError) else f"hloopt: error: {error}"
    click.echo(text, err=True)


def show_warnings(module: Module) -> None:
    """What was read otherwise than XLA does, on stderr; of many warnings the first ones."""
    if module.source is None:
        return
    for offset, message in module.warnings[:_MOST_WARNINGS]:
        line, column = module.source.line_column(offset)
        click.echo(f"{module.source.name}:{line}:{column}: warning: {message}", err=True)
    rest = len(module.warnings) - _MOST_WARNINGS
    if rest > 0:
        click.echo(
            f"{module.source.name}: {rest} more warnings (hloopt check lists them)", err=True
        )


def error_json(error: HlooptError) -> dict[str, Any]:
    """An error as JSON values; ``line`` and ``column`` where it has a place."""
    found: dict[str, Any] = {"kind": type(error).__name__, "message": error.message}
    if isinstance(error, SourceError) and error.line:
        found |= {"line": error.line, "column": error.column}
    return found
