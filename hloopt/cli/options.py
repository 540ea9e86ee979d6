"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from hloopt.cli.words import typed_paths
from hloopt.errors import UsageError

if TYPE_CHECKING:
    from hloopt.dumps import Dump

__all__ = [
    "JSON_WANTED",
    "PICK",
    "PICKED",
    "SIZES",
    "STRICT",
    "OptionGroup",
    "custom_call_option",
    "files_argument",
    "folders_argument",
    "json_option",
    "option",
    "pick_options",
    "stages_of_sides",
    "strict_option",
]

Function = TypeVar("Function", bound=Callable[..., Any])
Declared: TypeAlias = tuple[tuple[str, ...], dict[str, Any]]


def option(*names: str, **keywords: Any) -> Declared:
    """One option of a group, as ``click.option`` takes it; its ``callback`` makes the value."""
    return names, keywords


class OptionGroup:
    """Options that several commands share, as one decorator, outside of the commands' own parameters.

    ``title`` is the group's name among others; ``names`` are the parameters' for the help of a command.
    """

    def __init__(self, title: str, *options: Declared) -> None:
        self._key = f"hloopt.{title}"
        self._options = {str(click.Option(names).name): (names, known) for names, known in options}
        self.names = tuple(self._options)

    def __call__(self, function: Function) -> Function:
        return self.only(*self.names)(function)

    def only(self, *wanted: str) -> Callable[[Function], Function]:
        """Some of the options, for a command that is about something else."""

        def declare(function: Function) -> Function:
            for name in reversed(wanted):
                names, keywords = self._options[name]
                keep = self._keeping(keywords.get("callback"))
                function = click.option(
                    *names, **{**keywords, "expose_value": False, "callback": keep}
                )(function)
            return function

        return declare

    def _keeping(self, make: Callable[..., Any] | None) -> Callable[..., None]:
        def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
            made = value if make is None else make(ctx, param, value)
            ctx.meta.setdefault(self._key, {})[str(param.name)] = made

        return keep

    def given(self) -> dict[str, Any]:
        """The values that the running command was given, defaults among them, by parameter."""
        return dict(click.get_current_context().meta.get(self._key, {}))


PICK = "hloopt.pick"
"""In ``click.Context.meta``: what ``--module`` and ``--stage`` pick from a dump directory, by these names."""


PICKED = ("module", "stage", "shape")
"""The parameters of ``pick_options``."""


def _pick(
    ctx: click.Context, param: click.Parameter, value: str | tuple[str, ...] | None
) -> str | tuple[str, ...] | None:
    for one in (value,) if isinstance(value, str) else value or ():
        try:
            re.compile(one)
        except re.error as error:
            raise click.BadParameter(f"{one!r} is not a regular expression: {error}") from error
    if value:
        ctx.meta.setdefault(PICK, {})[str(param.name)] = value
    return value


def _complete(
    what: Callable[[Dump], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Completes from the dump directories that precede on the command line."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        from hloopt.dumps import read_dump

        folders = [path for path in typed_paths(ctx) if path.is_dir()]
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
    help="Only modules of a dump whose name matches.",
)
_stage_option = click.option(
    "--stage",
    metavar="STAGE",
    multiple=True,
    expose_value=False,
    callback=_pick,
    shell_complete=_complete(_stage_words),
    help="Stage: before, after, final, snapshot, or a pass. A pass is a regex for the names that hloopt ls "
    "shows; before is the default (may be repeated).",
)


SIZES = "hloopt.sizes"
"""In ``click.Context.meta``: what ``--shape`` says about arguments of StableHLO, for ``files.read_input``."""


def _keep_sizes(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> None:
    if value:
        from hloopt.reading import argument_sizes

        ctx.meta[SIZES] = argument_sizes(value)


_shape_option = click.option(
    "--shape",
    metavar="ARG=SHAPE",
    multiple=True,
    expose_value=False,
    callback=_keep_sizes,
    help="Sizes of an argument of StableHLO. They are needed where its own are open: x=f32[8,16], by its "
    "name or number (may be repeated).",
)


def folders_argument(function: Function) -> Function:
    """Dump directories, and ``--module`` and ``--stage``, which ``files.open_texts`` obeys."""
    named = click.argument("files", nargs=-1, metavar="[DIR]...", type=click.Path())
    return named(_module_option(_stage_option(function)))


def pick_options(function: Function) -> Function:
    """``--module``, ``--stage`` and ``--shape``, which ``files`` obeys."""
    return _module_option(_stage_option(_shape_option(function)))


def stages_of_sides(ctx: click.Context) -> tuple[Sequence[str], Sequence[str]]:
    """The stages of two sides: one ``--stage`` is for both, the second of two for the latter."""
    stages: Sequence[str] = ctx.meta.get(PICK, {}).get("stage", ())
    if len(stages) > 2:
        raise UsageError("--stage may be given twice: for BEFORE, and for AFTER")
    return stages[:1], stages[-1:]


def files_argument(function: Function) -> Function:
    """Files and dump directories, and ``--module``, ``--stage`` and ``--shape``, which ``files`` obeys."""
    named = click.argument("files", nargs=-1, metavar="[FILE|DIR]...", type=click.Path())
    return named(pick_options(function))


JSON_WANTED = "hloopt.json"
"""Set in ``click.Context.meta`` by ``--json``: errors that end a command are JSON then, too."""


def _want_json(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    ctx.meta[JSON_WANTED] = value
    return value


json_option = click.option(
    "--json", "as_json", is_flag=True, callback=_want_json, help="Print JSON for scripts."
)


custom_call_option = click.option(
    "--custom-call",
    "custom_calls",
    metavar="FUNCTION",
    multiple=True,
    help="Evaluate custom calls by a Python function. [TARGET=]MODULE:FUNCTION or "
    "FILE.py:FUNCTION, for one target or for all that the function names (may be repeated).",
)


STRICT = "hloopt.strict"
"""Set in ``click.Context.meta`` by ``--strict``: how ``files.read_input`` reads."""


def _read_strictly(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.meta[STRICT] = value


strict_option = click.option(
    "--strict/--no-strict",
    default=True,
    show_default=True,
    expose_value=False,
    callback=_read_strictly,
    help="Refuse what XLA does not know. Opcodes and attributes: otherwise they are warnings.",
)
"""What XLA's own parser refuses is an error; other commands warn of some of it."""
