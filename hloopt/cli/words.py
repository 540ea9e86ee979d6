"""What a shell completes: the names of passes, pipelines, and instructions of the file before on the line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import click

__all__ = [
    "complete_fuel",
    "complete_instruction",
    "complete_pass",
    "complete_pipeline",
    "complete_preset",
]

_LAST_ENTRY = re.compile(r"[^,(]*\Z")
_NAME = re.compile(rb"^[ \t]*(?:ROOT[ \t]+)?%?([A-Za-z_][\w.-]*)[ \t]+=[ \t]", re.MULTILINE)


def complete_pass(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The passes that begin so."""
    from hloopt.pipelines import all_names

    return _beginning(all_names(), incomplete)


def complete_preset(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The named pipelines that begin so."""
    from hloopt.pipelines import PIPELINES

    return _beginning(PIPELINES, incomplete)


def complete_pipeline(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The pipelines and passes that the last entry of a pipeline's text may be."""
    from hloopt.pipelines import PIPELINES, all_names

    entry = _LAST_ENTRY.search(incomplete)
    last = entry[0] if entry is not None else ""
    before = incomplete.removesuffix(last)
    return [before + name for name in _beginning((*PIPELINES, *all_names()), last)]


def complete_fuel(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """``PASS=``."""
    return [f"{name}=" for name in complete_pass(ctx, param, incomplete)]


def complete_instruction(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The instructions of the file that stands before on the line; files where there is none."""
    typed = [Path(word) for word in (*(ctx.params.get("files") or ()), *ctx.args)]
    files = [path for path in typed if path.is_file()]
    if not files:
        return [str(path) for path in sorted(Path().glob(f"{incomplete}*"))]
    sign = "%" if incomplete.startswith("%") else ""
    names = {match[1].decode() for path in files for match in _NAME.finditer(path.read_bytes())}
    return [sign + name for name in _beginning(sorted(names), incomplete.removeprefix("%"))]


def _beginning(names: Iterable[str], start: str) -> list[str]:
    return [name for name in names if name.startswith(start)]
