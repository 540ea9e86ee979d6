"""What a bisection found: a table of what was examined, and what gives other results."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from rich.console import Console

from hloopt.prover.bisection import Bisection, ChangedInstruction, Culprit, Examined
from hloopt.report.comparing import difference_lines
from hloopt.report.console import say, table

__all__ = ["show_bisection"]

_WORDS: Final = {
    "first": "run",
    "same": "same module",
    "equal": "equal",
    "within": "within its class",
    "differs": "differs",
    "not run": "cannot be run",
    "unreadable": "cannot be read",
    "skipped": "not compared",
    "passes": "right",
    "fails": "wrong",
}
_QUIET: Final = frozenset({"first", "same", "equal", "passes"})
_EXAMINED: Final = {"pipeline": "run", "kernels": "run", "eager": "input"}
_MOST: Final = 12
_WIDTH: Final = 80
_FOLDER: Final = re.compile(r"(?<=^          )\S*/(?=\S+:\d+:\d+$)")
"""The folder of the text that a line is in: a stage's name says which text that is."""
_STAGE: Final = re.compile(
    r"(?:\S*\.)?(?P<number>\d{4,})\.[^.]+\.(?P<after>after_\S+)\.before_[^.:]+(?:\.[\w.]+)?(?P<rest>:\d+:\d+|)"
)
"""The stage of a pass, or its file with a line."""


def show_bisection(found: Bisection, console: Console, *, every: bool = False) -> None:
    """Print what was found; of what was examined what is not simply equal, or all of it."""
    say(console, (found.module, "bold"), f"  {found.file}")
    if found.inputs:
        say(console, f"inputs: {', '.join(found.inputs[:_MOST])}{_more(found.inputs)}")
    what = _EXAMINED.get(found.kind, "stage")
    _show_examined(found.examined, console, what, every=every)
    for culprit in found.culprits:
        _show_culprit(culprit, console)
    for note in found.notes:
        first, *rest = _lines(f"note {note}", console)
        say(console, ("note", "yellow"), first.removeprefix("note"))
        for line in rest:
            say(console, line)
    if not found.culprits:
        _prose(console, found.summary, "yellow" if found.failed else "green", indent="")


def _more(items: Sequence[str]) -> str:
    return f" and {len(items) - _MOST} more" if len(items) > _MOST else ""


def _show_examined(
    examined: Sequence[Examined], console: Console, what: str, *, every: bool
) -> None:
    shown = [one for one in examined if every or one.outcome not in _QUIET]
    quiet = len(examined) - len(shown)
    made = table(what, "results", "why", left=3, below="why")
    for (outcome, note), group in groupby(shown, key=lambda one: (one.outcome, one.note)):
        first, *rest = group
        line = first.place.partition(f"{first.name}.")[2].partition(":")[2]
        why = f"line {line}: {note}" if line else note
        made.add_row(_short(first.name), _WORDS[outcome], why)
        if rest:
            made.add_row(f"  and {len(rest)} more, to {_short(rest[-1].name)}", "", "")
    if shown:
        console.print(made)
    if quiet:
        count = f"{quiet} {'more ' if shown else ''}{what}{'s' * (quiet > 1)}"
        passed = any(one.outcome == "passes" for one in examined)
        verb = "is right" if quiet == 1 else "are right"
        say(console, f"{count} {verb if passed else _gives(quiet)}")


def _short(stage: str) -> str:
    """What tells stages apart: the number and the pass, without the pipeline and the next pass."""
    match = _STAGE.fullmatch(stage)
    return f"{match['number']}.{match['after']}" if match else stage


def _fitted(line: str) -> str:
    """A line whose stage has no name of the module, pipeline and next pass where it is too long."""
    return line if len(line) <= _WIDTH else _STAGE.sub(r"\g<number>.\g<after>\g<rest>", line)


def _gives(count: int) -> str:
    return f"give{'s' * (count == 1)} equal results"


def _show_culprit(culprit: Culprit, console: Console) -> None:
    say(console, "")
    gap = "  " if len(culprit.name) + len(culprit.where) + 2 <= _WIDTH else "\n  "
    say(console, (culprit.name, "bold red"), f"{gap}{culprit.where}")
    _prose(console, culprit.reason)
    for name, compared in culprit.results:
        _prose(console, f"{name}: {compared.reason}")
    for line in culprit.first:
        _prose(console, line)
    for difference in culprit.differences:
        for line in difference_lines(difference):
            _prose(console, _fitted(_FOLDER.sub("", line)))
    sides = {one.side for one in culprit.rewritten}
    for side in ("before", "after"):
        entries = [one for one in culprit.rewritten if one.side == side]
        if entries:
            say(console, f"  {side} it:" if len(sides) > 1 else "  instructions:")
        for one in entries:
            say(console, f"    {one.text}{_place(one)}")
    if culprit.remedy:
        say(console, f"  without it: {culprit.remedy}")
    if culprit.remedy_note:
        _prose(console, ("  " if culprit.remedy else "") + culprit.remedy_note)
    for note in culprit.notes:
        _prose(console, note)


def _prose(console: Console, text: str, style: str = "", indent: str = "  ") -> None:
    """Print a sentence in lines of 80 columns, or fewer where the console has fewer."""
    for line in _lines(text, console, indent):
        say(console, (line, style))


def _lines(text: str, console: Console, indent: str = "") -> list[str]:
    words = text.lstrip()
    indent += " " * (len(text) - len(words))
    return textwrap.wrap(
        words,
        min(console.width, _WIDTH),
        initial_indent=indent,
        subsequent_indent=indent + "  " * bool(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _place(one: ChangedInstruction) -> str:
    line = f"line {one.place.rpartition(':')[2]}" if one.place else ""
    parts = [part for part in (line, one.user.rpartition("/")[2]) if part]
    return f"  ({', '.join(parts)})" if parts else ""
