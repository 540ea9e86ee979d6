"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from hloopt.ir import Module

__all__ = [
    "JSON_WANTED",
    "STRICT",
    "files_argument",
    "hlo_text",
    "json_option",
    "pipeline_options",
    "pipeline_text",
    "print_options",
    "strict_option",
]

Function = TypeVar("Function", bound=Callable[..., Any])

files_argument = click.argument("files", nargs=-1, metavar="[FILE]...", shell_complete=None)
JSON_WANTED = "hloopt.json"
"""Set in ``click.Context.meta`` by ``--json``: errors that end a command are JSON then, too."""


def _want_json(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    ctx.meta[JSON_WANTED] = value
    return value


json_option = click.option(
    "--json", "as_json", is_flag=True, callback=_want_json, help="Print JSON for scripts."
)


STRICT = "hloopt.strict"
"""Set in ``click.Context.meta`` by ``--strict``: how ``files.read_module`` reads."""


def _read_strictly(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.meta[STRICT] = value


def strict_option(*, default: bool = False) -> Callable[[Function], Function]:
    """``--strict``: what XLA's own parser refuses is an error; otherwise some of it is a warning."""
    return click.option(
        "--strict/--no-strict",
        default=default,
        show_default=True,
        expose_value=False,
        callback=_read_strictly,
        help="Refuse opcodes and attributes that XLA does not have.",
    )


_PRINTED = "hloopt.printed"
"""In ``click.Context.meta``: what ``print_options`` ask for, as keywords of ``Module.to_text``."""


def print_options(function: Function) -> Function:
    """``--no-metadata``, ``--no-layouts`` and ``--canonical``: how ``hlo_text`` prints."""

    def option(name: str, keyword: str, wanted: bool, text: str) -> None:
        def ask(ctx: click.Context, param: click.Parameter, value: bool) -> None:
            if value:
                ctx.meta.setdefault(_PRINTED, {})[keyword] = wanted

        nonlocal function
        function = click.option(name, is_flag=True, expose_value=False, callback=ask, help=text)(
            function
        )

    option(
        "--canonical",
        "canonical",
        True,
        "Print equal modules equally: names, computations and independent instructions in an order "
        "that the graph decides, defaults and usual spellings, no metadata.",
    )
    option(
        "--no-layouts",
        "layouts",
        False,
        "Leave out the layouts of shapes, of the entry and of custom calls' operands; a reader takes "
        "the usual ones, which matters to bitcasts.",
    )
    option(
        "--no-metadata",
        "metadata",
        False,
        "Leave out what serves debugging only: metadata, stack tables, origin, statistics.",
    )
    return function


def hlo_text(module: Module) -> str:
    """A module as the ``print_options`` of the command want it printed."""
    return module.to_text(**click.get_current_context().meta.get(_PRINTED, {}))


def pipeline_options(function: Function) -> Function:
    """``-O0`` .. ``-O3`` and ``--passes``."""
    function = click.option(
        "--passes", "passes", metavar="TEXT", help="A pipeline, such as 'simplify,fix(cse,dce)'."
    )(function)
    return click.option(
        "-O",
        "level",
        type=click.Choice(["0", "1", "2", "3"]),
        help="A named pipeline: -O0 does nothing, -O2 is the default.",
    )(function)


def pipeline_text(level: str | None, passes: str | None) -> str:
    """The pipeline that the two options ask for; raises ``click.UsageError`` when both are given."""
    if level is not None and passes is not None:
        raise click.UsageError(f"-O{level} and --passes both name a pipeline: give one of them")
    return passes if passes is not None else f"O{level or '2'}"
