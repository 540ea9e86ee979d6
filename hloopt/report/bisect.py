"""What a bisection found: a table of what was examined, and what gives other results."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from rich.console import Console

from hloopt.prover.bisection import Bisection, ChangedInstruction, Culprit, Examined
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
_EXAMINED: Final = {"pipeline": "run", "kernels": "run"}
_MOST: Final = 12


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
        say(console, ("note", "yellow"), f" {note}")
    colour = "red" if found.culprits else "yellow" if found.failed else "green"
    say(console, (found.summary, colour))


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
        made.add_row(first.name, _WORDS[outcome], why)
        if rest:
            made.add_row(f"  and {len(rest)} more, to {rest[-1].name}", "", "")
    if shown:
        console.print(made)
    if quiet:
        count = f"{quiet} {'more ' if shown else ''}{what}{'s' * (quiet > 1)}"
        passed = any(one.outcome == "passes" for one in examined)
        verb = "is right" if quiet == 1 else "are right"
        say(console, f"{count} {verb if passed else _gives(quiet)}")


def _gives(count: int) -> str:
    return f"give{'s' * (count == 1)} equal results"


def _show_culprit(culprit: Culprit, console: Console) -> None:
    say(console, "")
    say(console, (culprit.name, "bold red"), f"  {culprit.where}")
    say(console, f"  {culprit.reason}")
    for name, compared in culprit.results:
        say(console, f"  {name}: {compared.reason}")
    for line in culprit.first:
        say(console, f"  {line}")
    sides = {one.side for one in culprit.rewritten}
    for side in ("before", "after"):
        entries = [one for one in culprit.rewritten if one.side == side]
        if entries:
            say(console, f"  {side} it:" if len(sides) > 1 else "  instructions:")
        for one in entries:
            say(console, f"    {one.text}{_place(one)}")
    if culprit.remedy:
        say(console, f"  without it: {culprit.remedy}  ({culprit.remedy_note})")
    elif culprit.remedy_note:
        say(console, f"  {culprit.remedy_note}")
    for note in culprit.notes:
        say(console, f"  {note}")


def _place(one: ChangedInstruction) -> str:
    line = f"line {one.place.rpartition(':')[2]}" if one.place else ""
    parts = [part for part in (line, one.user.rpartition("/")[2]) if part]
    return f"  ({', '.join(parts)})" if parts else ""
