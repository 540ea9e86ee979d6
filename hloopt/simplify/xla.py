"""XLA's algebraic simplifier, entry by entry: which rules here do the same, and what is left out."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from hloopt.dataclass import dataclass

__all__ = ["ENTRIES", "SimplifierEntry", "own_rules"]


@dataclass(frozen=True, slots=True)
class SimplifierEntry:
    """One thing XLA's algebraic simplifier does, and what hloopt does about it.

    number      its place in the list, from 1
    equation    what XLA rewrites, as an equation
    rules       equations of the rules of ``simplify`` that do it
    passes      names of other passes that do it
    reason      what is left out, and why; empty where rules or passes do all of it
    """

    number: int
    equation: str
    rules: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()
    reason: str = ""


_FOUND: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())

ENTRIES: Final[tuple[SimplifierEntry, ...]] = tuple(
    SimplifierEntry(
        row["number"],
        row["equation"],
        tuple(row.get("rules", ())),
        tuple(row.get("passes", ())),
        row.get("reason", ""),
    )
    for row in _FOUND["entry"]
)


def own_rules(names: Iterable[str]) -> tuple[str, ...]:
    """Of the equations of rules those that XLA's simplifier for GPUs has not, or not as far."""
    had = {rule for entry in ENTRIES for rule in entry.rules}.union(_FOUND["other_passes"])
    return tuple(name for name in names if name not in had or name in _FOUND["further"])
