"""``hloopt check``."""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from hloopt.cli.files import Text, open_texts, progress, read_module
from hloopt.cli.messages import each_error, error_json, show_errors
from hloopt.cli.options import files_argument, json_option, strict_option
from hloopt.errors import HlooptError, ParseError

__all__ = ["command"]

_MOST_ERRORS = 20


@click.command("check")
@files_argument
@strict_option(default=True)
@json_option
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], as_json: bool) -> None:
    """Parse and verify modules: a line per file, and every error with its place.

    Exits with 3 when a module cannot be read or is not valid.

    \b
    Example:
      hloopt check dump/*.before_optimizations.txt
    """
    rows = []
    code = 0
    for text in progress(open_texts(files)):
        row: dict[str, Any] = {"file": text.name, "warnings": [], "errors": []}
        rows.append(row)
        errors, more = _errors(text, row["warnings"], quiet=as_json)
        code = max(code, *(error.exit_code for error in errors), 0)
        row["errors"] = [error_json(error, alone=True) for error in errors]
        row["ok"] = not errors
        if more:
            row["more"] = True
        if errors and not as_json:
            show_errors(errors, more=more)
        if row["ok"] and not as_json:
            click.echo(f"{text.name}: ok")
    if as_json:
        from hloopt.report.console import write_json

        write_json("check", {"ok": code == 0, "files": rows})
    ctx.exit(code)


def _errors(
    text: Text, warnings: list[dict[str, Any]], *, quiet: bool
) -> tuple[list[HlooptError], bool]:
    """What is wrong with one text, and whether there is more; warnings are shown and kept on the way."""
    from hloopt.verify import violations

    try:
        module = read_module(text)
    except ParseError as error:
        return list(each_error(error)), error.more
    except HlooptError as error:
        return [error], False
    for offset, message in module.warnings:
        line, column = module.source.line_column(offset) if module.source else (0, 0)
        warnings.append({"line": line, "column": column, "message": message})
        if not quiet:
            click.echo(f"{text.name}:{line}:{column}: warning: {message}", err=True)
    found = list(islice(violations(module), _MOST_ERRORS + 1))
    return [*found[:_MOST_ERRORS]], len(found) > _MOST_ERRORS
