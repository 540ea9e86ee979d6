"""Errors as messages and as JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from hloopt.errors import EvaluationError, HlooptError, ParseError, SourceError, VerifyError

if TYPE_CHECKING:
    from hloopt.ir import Module

__all__ = [
    "each_error",
    "error_json",
    "show_defect",
    "show_error",
    "show_errors",
    "show_warnings",
]

_MOST_WARNINGS = 20
_TRACEBACK = "HLOOPT_TRACEBACK"


def each_error(error: HlooptError) -> tuple[HlooptError, ...]:
    """The error and what was found beside it, in the order of the text."""
    return (error, *error.others) if isinstance(error, ParseError) else (error,)


def show_error(error: HlooptError) -> None:
    """An error on stderr, with all that were found beside it."""
    more = isinstance(error, ParseError) and error.more
    show_errors(each_error(error), more=more)


def show_defect(error: Exception, name: str = "hloopt") -> None:
    """An exception that is no answer, on stderr; with its traceback where the environment wants it."""
    if os.environ.get(_TRACEBACK, "0") != "0":
        import traceback

        traceback.print_exception(error)
    # What was added to an error on its way: which pass was running.
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    click.echo(
        f"{name}: internal error: {type(error).__name__}: {error}{notes}\n"
        "This is a defect of hloopt; please report it with the module that shows it "
        "(--traceback prints where it happened).",
        err=True,
    )


def show_errors(errors: Sequence[HlooptError], *, more: bool = False) -> None:
    """Errors of one text on stderr: with place and excerpt where they have one; of several the count.

    A last line names the command that explains the constraints they are about.
    """
    sys.stdout.flush()
    for error in errors:
        click.echo(_message(error), err=True)
    if len(errors) > 1 or more:
        name = next((error.name for error in errors if isinstance(error, SourceError)), "hloopt")
        count = (
            f"the first {len(errors)} errors; there are more" if more else f"{len(errors)} errors"
        )
        click.echo(f"{name}: {count}", err=True)
    rules = dict.fromkeys(one.rule for one in errors if isinstance(one, VerifyError) and one.rule)
    if len(rules) == 1:
        click.echo(f"hloopt help {next(iter(rules))} explains this", err=True)
    elif rules:
        click.echo(f"hloopt help CODE explains each: {', '.join(rules)}", err=True)


def _message(error: HlooptError) -> str:
    if isinstance(error, SourceError):
        return str(error)
    if isinstance(error, EvaluationError) and error.place:
        return f"{error.place}: error: {error.reason}\n{error.excerpt}".rstrip("\n")
    return f"hloopt: error: {error}"


def show_warnings(module: Module, name: str) -> None:
    """What was read otherwise than XLA does, on stderr; of many warnings the first ones.

    ``name`` is the file's; what was no text has no places.
    """
    for offset, message in module.warnings[:_MOST_WARNINGS]:
        place = name
        if module.source is not None and offset >= 0:
            line, column = module.source.line_column(offset)
            place = f"{name}:{line}:{column}"
        click.echo(f"{place}: warning: {message}", err=True)
    rest = len(module.warnings) - _MOST_WARNINGS
    if rest > 0:
        click.echo(f"{name}: {rest} more warnings (hloopt check lists them)", err=True)


def error_json(error: HlooptError, *, alone: bool = False) -> dict[str, Any]:
    """An error as JSON values: ``line`` and ``column`` where it has a place, ``notes`` where it has some.

    An offence of the verifier has the name of the constraint under ``rule``.
    Unless it is to stand alone, ``others`` are what was found beside it, and ``more`` says whether the
    reading stopped there.
    """
    found: dict[str, Any] = {"kind": type(error).__name__, "message": error.message}
    if isinstance(error, EvaluationError):
        found["message"] = error.reason
    if isinstance(error, (SourceError, EvaluationError)) and error.line:
        found |= {"line": error.line, "column": error.column}
    if isinstance(error, SourceError) and error.notes:
        found["notes"] = list(error.notes)
    if isinstance(error, VerifyError) and error.rule:
        found["rule"] = error.rule
    if isinstance(error, ParseError) and error.others and not alone:
        found["others"] = [error_json(other) for other in error.others]
        found["more"] = error.more
    return found
