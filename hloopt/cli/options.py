"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from hloopt.dumps import Dump
    from hloopt.ir import Module

__all__ = [
    "JSON_WANTED",
    "PICK",
    "STRICT",
    "files_argument",
    "folders_argument",
    "hlo_proto",
    "hlo_text",
    "json_option",
    "pick_options",
    "print_options",
    "strict_option",
]

Function = TypeVar("Function", bound=Callable[..., Any])

PICK = "hloopt.pick"
"""In ``click.Context.meta``: what ``--module`` and ``--stage`` pick from a dump directory, by these names."""


def _pick(
    ctx: click.Context, param: click.Parameter, value: str | tuple[str, ...] | None
) -> str | tuple[str, ...] | None:
    for one in (value,) if isinstance(value, str) else value or ():
        try:
            re.compile(one)
        except re.error as error:
            raise click.BadParameter(f"{one!r} is no regular expression: {error}") from error
    if value:
        ctx.meta.setdefault(PICK, {})[str(param.name)] = value
    return value


def _complete(
    what: Callable[[Dump], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Completes from the dump directories that stand before on the command line."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        from hloopt.dumps import read_dump

        typed = (*(ctx.params.get("files") or ()), *ctx.args)  # args: not yet taken for files
        folders = [Path(name) for name in typed if Path(name).is_dir()]
        found = (word for folder in folders for word in what(read_dump(folder)))
        return sorted({word for word in found if word.startswith(incomplete)})

    return complete


def _stage_words(dump: Dump) -> Iterable[str]:
    for module in dump.modules:
        for stage in module.stages:
            if stage.kind == "pass":
                yield stage.label.partition(".after_")[2].partition(".before_")[0]
            elif stage.kind != "given":
                yield stage.label if stage.kind == "other" else stage.kind


_module_option = click.option(
    "--module",
    metavar="REGEX",
    expose_value=False,
    callback=_pick,
    shell_complete=_complete(lambda dump: (entry.name for entry in dump.modules)),
    help="Of a dump directory: only modules with a match in their name.",
)
_stage_option = click.option(
    "--stage",
    metavar="STAGE",
    multiple=True,
    expose_value=False,
    callback=_pick,
    shell_complete=_complete(_stage_words),
    help="Of a dump directory: before, after, snapshot, or a regex for passes (see hloopt ls); "
    "before by default (may be repeated).",
)


def folders_argument(function: Function) -> Function:
    """Dump directories, and ``--module`` and ``--stage``, which ``files.open_texts`` obeys."""
    named = click.argument("files", nargs=-1, metavar="[DIR]...", type=click.Path())
    return named(_module_option(_stage_option(function)))


def pick_options(function: Function) -> Function:
    """``--module`` and ``--stage``, which ``files.open_texts`` obeys."""
    return _module_option(_stage_option(function))


def files_argument(function: Function) -> Function:
    """Files and dump directories, and ``--module`` and ``--stage``, which ``files.open_texts`` obeys."""
    named = click.argument("files", nargs=-1, metavar="[FILE|DIR]...", type=click.Path())
    return named(_module_option(_stage_option(function)))


JSON_WANTED = "hloopt.json"
"""Set in ``click.Context.meta`` by ``--json``: errors that end a command are JSON then, too."""


def _want_json(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    ctx.meta[JSON_WANTED] = value
    return value


json_option = click.option(
    "--json", "as_json", is_flag=True, callback=_want_json, help="Print JSON for scripts."
)


STRICT = "hloopt.strict"
"""Set in ``click.Context.meta`` by ``--strict``: how ``files.read_input`` reads."""


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


def hlo_proto(module: Module) -> bytes:
    """A module as an HloProto, as the ``print_options`` of the command want it."""
    from hloopt.proto import write_module

    if click.get_current_context().meta.get(_PRINTED):
        from hloopt.text.parser import parse_module

        module = parse_module(hlo_text(module), module.name)
    return write_module(module)
