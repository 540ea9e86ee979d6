"""Where reports go: stdout is the product, stderr everything else."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["ONE_LINE", "SCHEMA", "messages", "product", "table", "write_json"]

SCHEMA = 1
"""Raised when a field of any command's JSON changes its meaning or goes away."""

_PIPE_WIDTH = 120

ONE_LINE = 1 << 16
"""Columns for tables whose every row shall be one line in a pipe, so that grep finds whole names."""


def product(width: int = _PIPE_WIDTH) -> Console:
    """A console on stdout; in a pipe, lines have ``width`` columns unless the environment says how many."""
    return _console(stderr=False, pipe_width=width)


def messages() -> Console:
    """A console on stderr."""
    return _console(stderr=True)


class _Console(Console):
    """A console whose reader may go away."""

    def on_broken_pipe(self) -> None:
        """Leave it to the entry point, as with everything else that is written."""
        raise BrokenPipeError


def _console(*, stderr: bool, pipe_width: int = _PIPE_WIDTH) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    if stream.isatty():
        return _Console(file=stream, highlight=False)
    width = Console().width if _columns_given() else pipe_width
    return _Console(file=stream, highlight=False, width=width)


def _columns_given() -> bool:
    import os

    return os.environ.get("COLUMNS", "").isdigit()


class _Table(Table):
    """A table whose cells are what they say: names in a module may look like rich's markup."""

    def add_row(self, *cells: Any, style: Any = None, end_section: bool = False) -> None:
        plain = (Text(cell) if isinstance(cell, str) else cell for cell in cells)
        super().add_row(*plain, style=style, end_section=end_section)


def table(*columns: str, title: str | None = None, left: int = 1) -> Table:
    """A plain table; the first ``left`` columns are texts, the others numbers."""
    made = _Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(columns):
        if number < left:
            made.add_column(name, overflow="fold")
        else:
            made.add_column(name, justify="right", no_wrap=True)
    return made


def write_json(command: str, content: dict[str, Any]) -> None:
    """One JSON object on one line: the schema number, the command, and what it found."""
    json.dump({"schema": SCHEMA, "command": command, **content}, sys.stdout, allow_nan=False)
    sys.stdout.write("\n")
