"""Shell completion: names, and instructions of the file before on the line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, TypeAlias

import click

__all__ = [
    "Completion",
    "complete",
    "complete_fuel",
    "complete_instruction",
    "complete_kernel",
    "complete_model",
    "complete_opcode",
    "complete_pass",
    "complete_pipeline",
    "complete_preset",
    "complete_target",
    "one_of",
]

Completion: TypeAlias = Callable[[click.Context, click.Parameter, str], list[str]]

_LAST_ENTRY = re.compile(r"[^,(]*\Z")
_NAME = re.compile(rb"^[ \t]*(?:ROOT[ \t]+)?%?([A-Za-z_][\w.-]*)[ \t]+=[ \t]", re.MULTILINE)


def complete(module: str, names: str) -> Completion:
    """Completes the names in a collection, or in what a function returns, of a module loaded only for that.

    They are strings, or records that have a ``name``.
    """

    def complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        return _beginning(_names(module, names), incomplete.lower())

    return complete_names


def _names(module: str, names: str) -> list[str]:
    found: Any = getattr(import_module(f"hloopt.{module}"), names)
    return [str(getattr(one, "name", one)) for one in (found() if callable(found) else found)]


def one_of(module: str, names: str) -> Callable[..., Any]:
    """A callback that takes names of a collection, or of several, only; ``complete`` describes it."""

    def check(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        given = (value,) if isinstance(value, str) else value
        if given:
            known = click.Choice(_names(module, names))
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
    """``PATTERN=`` and the kernels of the device before on the line."""
    pattern, equals, start = incomplete.rpartition("=")
    if not equals:
        return []
    kernels = import_module("hloopt.kernels.registry").kernels
    found = kernels("native" if ctx.params.get("device") == "native" else "gpu")
    return [f"{pattern}={name}" for name in _beginning((one.name for one in found), start)]


def complete_instruction(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The instructions of the file that precedes on the line; files where there is none."""
    from pathlib import Path  # no other option needs it

    typed = [Path(word) for word in (*(ctx.params.get("files") or ()), *ctx.args)]
    files = [path for path in typed if path.is_file()]
    if not files:
        return [str(path) for path in sorted(Path().glob(f"{incomplete}*"))]
    sign = "%" if incomplete.startswith("%") else ""
    names = {match[1].decode() for path in files for match in _NAME.finditer(path.read_bytes())}
    return [sign + name for name in _beginning(sorted(names), incomplete.removeprefix("%"))]


def _beginning(names: Iterable[str], start: str) -> list[str]:
    return [name for name in names if name.startswith(start)]
