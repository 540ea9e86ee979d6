"""Shell completion: names, and instructions of the file before on the line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from hloopt.spelling import nearest

__all__ = [
    "Completion",
    "OneOf",
    "complete",
    "complete_files",
    "complete_fuel",
    "complete_instruction",
    "complete_kernel",
    "complete_limits",
    "complete_model",
    "complete_opcode",
    "complete_pass",
    "complete_pipeline",
    "complete_place",
    "complete_planned",
    "complete_preset",
    "complete_strategy",
    "complete_target",
    "one_of",
    "typed_paths",
]

if TYPE_CHECKING:
    from pathlib import Path

    from click.shell_completion import CompletionItem

    _Choice: TypeAlias = click.Choice[str]
    _ParamType: TypeAlias = click.ParamType[str]
else:
    _Choice, _ParamType = click.Choice, click.ParamType  # not generic in click 8.1

Completion: TypeAlias = Callable[[click.Context, click.Parameter, str], list[str]]

_FEW = 8  # words that a message lists

_LAST_ENTRY = re.compile(r"[^,(=]*\Z")
_FILE = re.compile(r"\b(FILE|PATH|OUT|TRACE|FUNCTION)\b")
_COMPUTATION = re.compile(
    rb"^(?:ENTRY[ \t]+)?%?([A-Za-z_][\w.-]*)[ \t]+(?:\(.*\)[ \t]+->.*)?\{[ \t]*$", re.MULTILINE
)
_PATHS = ("files", "file", "paths", "before", "after", "base", "head")
_SOON_PLANNED = 300_000  # bytes of HLO whose kernels are chosen in some seconds
_NAME = re.compile(rb"^[ \t]*(?:ROOT[ \t]+)?%?([A-Za-z_][\w.-]*)[ \t]+=[ \t]", re.MULTILINE)


def complete(module: str, names: str) -> Completion:
    """Completes the names in a collection, or in what a function returns, of a module loaded only for that.

    They are strings, or records that have a ``name``.
    """

    def complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        return _beginning(_names(module, names), incomplete.lower())

    return complete_names


class OneOf(_Choice):
    """A choice that names the word most like one that it does not know, and of many words no others."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            close = nearest(str(value), self.choices)
            if not close:
                raise
            known = f"'{value}' is not known" if len(self.choices) > _FEW else error.message
            message = f"{known.rstrip('.')}; did you mean '{close[0]}'?"
            raise click.BadParameter(message, ctx, param) from None


def _names(module: str, names: str) -> list[str]:
    found: Any = getattr(import_module(f"hloopt.{module}"), names)
    return [str(getattr(one, "name", one)) for one in (found() if callable(found) else found)]


def one_of(module: str, names: str) -> Callable[..., Any]:
    """A callback that takes names of a collection, or of several, only; ``complete`` describes it."""

    def check(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        given = (value,) if isinstance(value, str) else value
        if given:
            known = OneOf(_names(module, names))
            for one in given:
                known.convert(one, param, ctx)
        return value

    return check


complete_pass = complete("pipelines", "all_names")
complete_preset = complete("pipelines", "PIPELINES")
complete_target = complete("targets", "names")
complete_opcode = complete("ops", "OPS")
complete_model = complete("cost_models.registry", "model_names")


def complete_pipeline(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The pipelines and passes that the last entry of a pipeline's text may be."""
    entry = _LAST_ENTRY.search(incomplete)
    last = entry[0] if entry is not None else ""
    before = incomplete.removesuffix(last)
    known = (*_names("pipelines", "PIPELINES"), *_names("pipelines", "all_names"))
    return [before + name for name in _beginning(known, last)]


def complete_fuel(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """``PASS=``."""
    return [f"{name}=" for name in complete_pass(ctx, param, incomplete)]


def complete_kernel(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """``PATTERN=``, which may be an instruction of the file, and the kernels of the device on the line."""
    pattern, equals, start = incomplete.rpartition("=")
    if not equals:
        return [f"{name}=" for name in _instructions(ctx, incomplete)]
    kernels = import_module("hloopt.kernels.registry").kernels
    is_native = _given(ctx, "device") == "native" or _given(ctx, "target") == "host"
    found = kernels("native" if is_native else "gpu")
    return [f"{pattern}={name}" for name in _beginning((one.name for one in found), start)]


def complete_strategy(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of the strategies before on the line; those of a study without any."""
    given = [text.partition("=")[0] for text in ctx.params.get("strategy") or ()]
    return _beginning(given or ["O0", "O1", "O2", "O3"], incomplete)


def complete_limits(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The figures that the last of the limits may be about."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _beginning(_names("report.gate", "FIGURES"), last)]


class _Files(_ParamType):
    """A text that names a file, or a folder: the shell completes it."""

    name = "text"

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Leave it to the shell."""
        item = import_module("click.shell_completion").CompletionItem
        return [item(incomplete, type=self.kind)]


_KINDS = {"file": _Files("file"), "dir": _Files("dir")}


def complete_files(params: Iterable[click.Parameter]) -> None:
    """Have the shell complete the options whose values are called files or folders."""
    for param in params:
        if param.type is click.STRING and param.metavar is not None:
            if param.metavar == "DIR":
                param.type = _KINDS["dir"]
            elif _FILE.search(param.metavar):
                param.type = _KINDS["file"]


def complete_instruction(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The instructions of the file that precedes on the line; files where there is none."""
    if any(path.is_file() for path in typed_paths(ctx)):
        return _instructions(ctx, incomplete)
    return [str(path) for path in sorted(import_module("pathlib").Path().glob(f"{incomplete}*"))]


def complete_place(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The computations and instructions of the file that precedes on the line."""
    return [
        *_instructions(ctx, incomplete, _COMPUTATION),
        *_instructions(ctx, incomplete),
    ]


def complete_planned(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The kernels of the file that precedes on the line, planned with the options there.

    Of a large file, which would take a while, the instructions.
    """
    files = [path for path in typed_paths(ctx) if path.is_file()]
    if not files or sum(path.stat().st_size for path in files) > _SOON_PLANNED:
        return _instructions(ctx, incomplete)
    api = import_module("hloopt")
    level = _given(ctx, "level")
    passes = _given(ctx, "passes") or (f"O{level}" if level is not None else None)
    try:
        found = api.select_kernels(files[0], pipeline=passes, target=_given(ctx, "target"))
    except api.HlooptError:  # the command itself will say what is wrong
        return _instructions(ctx, incomplete)
    return _beginning([row.instruction for row in found.rows], incomplete)


def typed_paths(ctx: click.Context) -> list[Path]:
    """The files and folders that precede on the command line."""
    from pathlib import Path  # no other option needs it

    given = [ctx.params.get(name) or () for name in _PATHS]
    single = ((words,) if isinstance(words, str) else words for words in given)
    words = (*chain.from_iterable(single), *ctx.args)  # args: not yet taken for files
    return [path for path in map(Path, words) if path.exists()]


def _given(ctx: click.Context, name: str) -> Any:
    """An option of the command, or of one of its groups."""
    groups = (found for found in ctx.meta.values() if isinstance(found, dict) and name in found)
    return next(groups, ctx.params).get(name)


def _instructions(
    ctx: click.Context, incomplete: str, line: re.Pattern[bytes] = _NAME
) -> list[str]:
    sign = "%" if incomplete.startswith("%") else ""
    texts = (path.read_bytes() for path in typed_paths(ctx) if path.is_file())
    names = {match[1].decode() for text in texts for match in line.finditer(text)}
    return [sign + name for name in _beginning(sorted(names), incomplete.removeprefix("%"))]


def _beginning(names: Iterable[str], start: str) -> list[str]:
    return [name for name in names if name.startswith(start)]
