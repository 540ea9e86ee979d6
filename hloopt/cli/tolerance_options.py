"""``--tolerance``: how far results may differ, for every command that compares results."""

from __future__ import annotations

from math import isnan
from typing import Any

import click

from hloopt.cli.options import OptionGroup, option
from hloopt.spelling import nearest

__all__ = ["TOLERANCE"]

_WORDS = ("bitwise", "ulp=", "rtol=", "atol=")


def _tolerance(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, Any]:
    """The fields of a ``Tolerance``."""
    if value is None:
        return {}
    found: dict[str, Any] = {}
    for part in value.split(","):
        name, equals, number = (word.strip() for word in part.partition("="))
        if name == "bitwise" and not equals:
            found["bitwise"] = True
            continue
        if f"{name}=" not in _WORDS:
            close = nearest(name, [word.rstrip("=") for word in _WORDS])
            hint = f"; did you mean '{close[0]}'?" if close else ""
            message = f"'{part}' is none of bitwise, ulp=N, rtol=X and atol=X{hint}"
            raise click.BadParameter(message, ctx, param)
        if name in found:
            raise click.BadParameter(f"{name} is given twice", ctx, param)
        found[name] = _number(name, number, ctx, param)
    return found


def _number(name: str, text: str, ctx: click.Context, param: click.Parameter) -> float:
    try:
        number = int(text) if name == "ulp" else float(text)
    except ValueError:
        number = -1.0
    if isnan(number) or number < 0:
        what = "a whole number" if name == "ulp" else "a number"
        raise click.BadParameter(f"{name} needs {what} from 0, not '{text}'", ctx, param)
    return number


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + word for word in _WORDS if word.startswith(last)]


TOLERANCE = OptionGroup(
    "tolerance",
    option(
        "--tolerance",
        metavar="RULE",
        callback=_tolerance,
        shell_complete=_complete,
        help="bitwise, ulp=N, or rtol=X,atol=X. By default an element may be off by what rounding allows "
        "it. rtol=X,atol=X allows atol + rtol * |expected| instead, and one that is not given is 0; "
        "ulp=N allows N units in the last place; bitwise allows no difference, not even in the sign of a "
        "zero.",
    ),
)
