"""What ``hloopt run`` says at the end of several modules: which are right, and which are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from os.path import commonpath
from pathlib import PurePath
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from hloopt.report.console import table

__all__ = ["show_summary"]

_STYLES: Final = {"ok": "green", "differs": "red", "failed": "red"}


def show_summary(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """A row for each module, from the JSON values of its report or its error, and the counts of all."""
    names = _short([str(row["file"]) for row in rows])
    verdicts = [str(row.get("verdict", "failed")) for row in rows]
    made = table("module", "verdict", "of allowed", "speed-up", left=2)
    for name, verdict, row in zip(names, verdicts, rows, strict=True):
        word = Text(verdict, _STYLES.get(verdict, "yellow"))
        made.add_row(name, word, _share(row), _speed_up(row))
    console.print()
    console.print(made)
    counts = Counter(verdicts)
    told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    console.print(f"{len(rows)} modules: {told}")


def _short(names: Sequence[str]) -> list[str]:
    """The names without the folders that all have."""
    folders = [PurePath(name).parent for name in names]
    if len({folder.is_absolute() for folder in folders}) > 1:
        return list(names)
    shared = commonpath([str(folder) for folder in folders])
    return [str(PurePath(name).relative_to(shared)) if shared else name for name in names]


def _share(row: Mapping[str, Any]) -> str:
    shares = [float(one["share"]) for line in row.get("rows", ()) for one in line["comparisons"]]
    return f"{max(shares):.2g}" if shares else ""


def _speed_up(row: Mapping[str, Any]) -> str:
    """Of the last program that was timed over the baseline."""
    medians = {line["name"]: line["median"] for line in row.get("rows", ()) if line["median"]}
    base = medians.get(row.get("baseline"))
    return f"{base / list(medians.values())[-1]:.2f}x" if base and len(medians) > 1 else ""
