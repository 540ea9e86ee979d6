"""The order in which XLA's GPU compiler runs its passes, and what hloopt has of each: ``presets.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from hloopt.dataclass import dataclass

__all__ = ["XLA_PRESETS", "Row", "Rows", "Step", "preset_rows", "preset_text"]


@dataclass(frozen=True, slots=True)
class Step:
    """A pass of XLA, the entry that stands for it, and why there is none or it does less."""

    xla: str
    entry: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Rows:
    """Passes that XLA repeats until nothing changes."""

    xla: str
    steps: tuple[Step, ...]


Row: TypeAlias = Step | Rows


def _row(row: Any) -> Row:
    if isinstance(row, list):
        return Step(*row)
    return Rows(row["xla"], tuple(Step(*step) for step in row["steps"]))


XLA_PRESETS: Final[Mapping[str, tuple[Row, ...]]] = {
    name: tuple(map(_row, rows))
    for name, rows in tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items()
}


def preset_text(rows: tuple[Row, ...]) -> str:
    """The pipeline text of a preset."""
    return ",".join(filter(None, map(_text, rows)))


def _text(row: Row) -> str:
    if isinstance(row, Step):
        return row.entry
    inner = ",".join(step.entry for step in row.steps if step.entry)
    return f"fix({inner})" if inner else ""


def preset_rows(rows: tuple[Row, ...]) -> Iterator[tuple[str, Step]]:
    """Every step with the name of the group it is in, empty outside of one."""
    for row in rows:
        if isinstance(row, Step):
            yield "", row
        else:
            for step in row.steps:
                yield row.xla, step
