"""Why functions were compiled again: a row for each reason, and what to do about each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from rich.console import Console

from hloopt.analysis.recompilation import REMEDIES, Recompilation
from hloopt.dataclass import dataclass
from hloopt.display import Displayed
from hloopt.report.console import TableColumn, records_table, say
from hloopt.report.module_pairs import GivenModule

__all__ = [
    "CompiledFunction",
    "RecompiledFunctions",
    "RecompiledPairs",
    "show_functions",
    "show_pairs",
]

_MOST: Final = 12
_SAME: Final = "nothing"
_KEY: Final = "JAX_EXPLAIN_CACHE_MISSES=1 makes JAX log what its own key has otherwise"


@dataclass(frozen=True)
class CompiledFunction:
    """A function of a dump: how often it was compiled, and why each time but the first."""

    name: str
    compilations: int
    again: tuple[Recompilation, ...]

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "function": self.name,
            "compilations": self.compilations,
            "recompilations": [one.to_json() for one in self.again],
        }


@dataclass(frozen=True)
class RecompiledFunctions(Displayed):
    """The functions of a dump that were compiled several times; ``compilations`` is the number of all."""

    functions: tuple[CompiledFunction, ...]
    compilations: int

    @property
    def same(self) -> bool:
        """Whether no function was compiled again."""
        return not self.functions

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "functions": [one.to_json() for one in self.functions],
            "compilations": self.compilations,
        }


@dataclass(frozen=True)
class RecompiledPairs(Displayed):
    """The modules of two sides that belong together, and what is left of either."""

    pairs: tuple[Recompilation, ...]
    before: tuple[GivenModule, ...] = ()
    after: tuple[GivenModule, ...] = ()

    @property
    def same(self) -> bool:
        """Whether nothing known makes any compilation of the second side necessary."""
        return all(one.same for one in self.pairs) and not self.after

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "same": self.same,
            "pairs": [one.to_json() for one in self.pairs],
            "only_before": [one.file for one in self.before],
            "only_after": [one.file for one in self.after],
        }


def show_pairs(found: RecompiledPairs, console: Console) -> None:
    """Print the reasons of each pair, then what to do about them."""
    for one in found.pairs:
        say(console, (_verdict(one), "bold"))
        if one.reasons:
            console.print(_table(_rows(one)))
        _show_calls(one, console)
        console.print()
    for side, rows in (("before", found.before), ("after", found.after)):
        for given in rows:
            say(console, f"only {side}: {given.module.name}, {given.file}")
    _show_remedies(found.pairs, console)


def show_functions(found: RecompiledFunctions, console: Console) -> None:
    """Print the functions that were compiled several times, the most often compiled first."""
    for function in found.functions:
        say(console, (f"{function.name}: compiled {function.compilations} times", "bold"))
        rows = [row for one in function.again for row in _rows(one) or [_same_row(one)]]
        console.print(_table(rows, of_dump=True))
        console.print()
    again = [one for function in found.functions for one in function.again]
    compiled = _count(found.compilations, "compilation")
    say(console, f"{compiled}, {len(again)} of them of a function compiled before")
    _show_remedies(again, console)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


def _verdict(one: Recompilation) -> str:
    name = one.after.module.name
    if one.same:
        sides = one.before.beside, one.after.beside
        parts = ["flags"] if sides[0].flags.keys() & sides[1].flags.keys() else []
        if None not in (side.program for side in sides):
            parts.append("frontend's programs")
        alike = " and ".join(filter(None, (", ".join(["modules", *parts[:-1]]), *parts[-1:])))
        return (
            f"{name}: the {alike} are the same: a cache that missed has something else in its key"
        )
    reasons = [reason for reason in one.reasons if not reason.may_follow]
    return f"{name} had to be compiled again: {_count(len(reasons), 'reason')}"


def _rows(one: Recompilation) -> list[dict[str, Any]]:
    """The reasons as records, of many of one kind the first."""
    rows: list[dict[str, Any]] = []
    counts: dict[str, int] = {}
    for reason in one.reasons:
        counts[reason.kind] = counts.get(reason.kind, 0) + 1
        if counts[reason.kind] <= _MOST:
            rows.append({**_names(one), **reason.to_json()})
    for kind, count in counts.items():
        if count > _MOST:
            blank = dict.fromkeys(("before", "after", "line", "note"))
            text = f"and {count - _MOST} more (--json)"
            rows.append({**_names(one), **blank, "reason": kind, "what": text, "may_follow": False})
    return rows


def _same_row(one: Recompilation) -> dict[str, Any]:
    blank = dict.fromkeys(("before", "after", "line", "note"))
    return {**_names(one), **blank, "reason": "none", "what": _SAME, "may_follow": False}


def _names(one: Recompilation) -> dict[str, Any]:
    return {
        "module": _number(one.after.label),
        "nearest": _number(one.before.label),
        "call": one.calls[1],
    }


def _number(label: str) -> str:
    """``0012`` of ``module_0012.jit_f``; another label as it is."""
    first = label.partition(".")[0]
    number = first.removeprefix("module_")
    return number if first != number and number.isdigit() else label


def _what(row: dict[str, Any]) -> str:
    note = f", {row['note']}" if row["note"] else ""
    return f"{row['what']}{note}{' (may follow)' if row['may_follow'] else ''}"


def _side(this: str, other: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: row[this] or ("none" if row[other] else "")


_REASONS: Final = (
    TableColumn("reason", "reason"),
    TableColumn("what", "", _what),
    TableColumn("before", "", _side("before", "after")),
    TableColumn("after", "", _side("after", "before")),
    TableColumn("from", "line"),
)
_MODULES: Final = (TableColumn("module", "module"), TableColumn("nearest", "nearest"))
_CALL: Final = TableColumn("call", "call")


def _table(rows: Iterable[dict[str, Any]], *, of_dump: bool = False) -> Any:
    columns = (*_MODULES, *_REASONS, _CALL) if of_dump else _REASONS
    return records_table(columns, rows, left=len(columns), optional=("from", "call"))


def _show_calls(one: Recompilation, console: Console) -> None:
    if any(one.calls):
        old, new = (call.rpartition("/")[2] or "elsewhere" for call in one.calls)
        say(console, f"called from {old} before, {new} after")
    if one.others:
        say(
            console,
            f"{_count(one.others, 'more difference')} that may follow from these; hloopt diff lists them",
        )


def _show_remedies(found: Iterable[Recompilation], console: Console) -> None:
    shown = list(found)
    kinds = {reason.kind for one in shown for reason in one.reasons if not reason.may_follow}
    for kind, words in REMEDIES.items():
        if kind in kinds:
            say(console, (f"{kind}: ", "bold"), words)
    if any(one.same for one in shown):
        say(console, _KEY)
