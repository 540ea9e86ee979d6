"""Modules and records in a notebook, and in rich: the tables that the command line prints, as HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from hloopt.ir import Module
from hloopt.ir.instruction import brief
from hloopt.report.console import capturing, say, table
from hloopt.report.picture import picture
from hloopt.rewrite.source_lines import lines_text
from hloopt.spelling import first_of

__all__ = ["mimebundle", "rich_lines", "show", "show_module"]

_WIDTH: Final = 120
_MOST_ROWS: Final = 40
_MOST_OPERANDS: Final = 4

_TABLES: Final[Mapping[str, str]] = {
    "Bisection": "bisect.show_bisection",
    "DumpDifference": "diff_dumps.show_dumps",
    "Equivalence": "comparing.show_equivalence",
    "Findings": "findings.show_findings",
    "FusionDifference": "fusion_diff.show_difference",
    "LogsCompared": "log_differences.show_logs",
    "ModulesCompared": "comparing.show_compared",
    "PlansParted": "parted_text.show_parted",
    "RecompiledFunctions": "recompilation.show_functions",
    "RecompiledPairs": "recompilation.show_pairs",
}
"""What prints a record of a room below, by its class; others have a method ``show``, or are a text."""


def mimebundle(shown: Any) -> dict[str, str]:
    """A value by MIME type; a module with a picture of its entry where that is small."""
    console = capturing(_WIDTH)
    show(shown, console)
    plain = console.export_text(clear=False).rstrip()
    style = "line-height:normal;font-family:monospace"
    html = console.export_html(
        inline_styles=True, code_format=f'<pre style="{style}">{{code}}</pre>'
    )
    if not isinstance(shown, Module):
        return {"text/plain": plain, "text/html": html}
    drawn = picture(shown.entry)
    found = {"text/plain": repr(shown), "text/html": html + drawn}
    return {**found, "image/svg+xml": drawn} if drawn else found


def rich_lines(shown: Any, width: int) -> Iterator[Text]:
    """What ``rich.print`` prints of it, in lines of ``width``."""
    console = capturing(width)
    show(shown, console)
    yield Text.from_ansi(console.export_text(styles=True))


def show(shown: Any, console: Console) -> None:
    """Print a record or a module as its command does."""
    if isinstance(shown, Module):
        show_module(shown, console)
        return
    own: Callable[[Console], None] | None = getattr(shown, "show", None)
    if own is not None:
        own(console)
        return
    module, _, name = _TABLES.get(type(shown).__name__, "").partition(".")
    if name:
        getattr(import_module(f"hloopt.report.{module}"), name)(shown, console)
    else:
        say(console, str(shown))


def show_module(module: Module, console: Console) -> None:
    """What there is in a module, and a row for each instruction of its entry."""
    counts = f"{len(module)} computations, {module.instruction_count()} instructions"
    say(console, (module.name, "bold"), f"  {counts}")
    made = table("instruction", "opcode", "shape", "operands", "from", left=5, optional=("from",))
    entry = [*module.entry]
    for one in entry[:_MOST_ROWS]:
        operands = first_of((operand.name for operand in one.operands), _MOST_OPERANDS)
        mark = "ROOT " if one.is_root else ""
        lines = lines_text(module.user_lines(one.metadata))
        made.add_row(mark + one.name, one.opcode, brief(one.shape), operands, lines)
    console.print(made)
    if len(entry) > _MOST_ROWS:
        say(console, f"and {len(entry) - _MOST_ROWS} more instructions of {module.entry.name}")
