"""Tables that fit a terminal without breaking a word: names stay whole, so that they can be copied."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

__all__ = ["FittedTable"]

_GAP = 2
_INDENT = 4
_SOME_WORDS = 22
_FOLDERS = re.compile(r"\S*/(?=[^/\s]+:\d+$)")
"""The directories of a line in a source file, such as ``/home/me/model.py:12``."""


class FittedTable(Table):
    """A table whose cells are literal: names in a module may look like rich's markup.

    Where its lines are too long for a terminal, source files lose their directories, then the columns
    ``optional`` names are left out, the first one first; then the columns ``below`` move to separate lines
    below each row, the first one first: it holds sentences, the others begin with their headers.  Texts of
    several words take several lines.  Where all that is not enough, lines are longer than the terminal is wide.
    """

    def __init__(
        self,
        *,
        optional: Sequence[str] = (),
        below: str | Sequence[str] = (),
        title: str | None = None,
    ) -> None:
        super().__init__(
            title=title, title_justify="left", box=None, pad_edge=False, header_style="bold"
        )
        self.optional = tuple(optional)
        self.below = (below,) if isinstance(below, str) else tuple(below)

    def add_row(self, *cells: Any, style: Any = None, end_section: bool = False) -> None:
        plain = (Text(cell) if isinstance(cell, str) else cell for cell in cells)
        super().add_row(*plain, style=style, end_section=end_section)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.columns:
            return
        kept, beneath = list(self.columns), list[Column]()
        if console.is_terminal or "COLUMNS" in console._environ:
            kept, beneath = self._narrowed(options.max_width)
        widths = _shared(kept, options.max_width)
        total = sum(widths) + _GAP * (len(widths) - 1)
        wide = options.update(width=max(total, options.max_width))
        every, self.columns = (
            self.columns,
            [
                replace(column, width=width, no_wrap=False, _index=at)
                for at, (column, width) in enumerate(zip(kept, widths, strict=True))
            ],
        )
        try:
            if beneath:
                yield from self._by_rows(console, wide, beneath)
            else:
                yield from super().__rich_console__(console, wide)
        finally:
            self.columns = every

    def _by_rows(
        self, console: Console, options: ConsoleOptions, beneath: Sequence[Column]
    ) -> Iterator[Any]:
        """Each row by itself, the texts of the columns ``beneath`` below it."""
        columns, rows = self.columns, self.rows
        try:
            for number in range(len(rows)):
                self.columns = [
                    replace(column, _cells=[column._cells[number]]) for column in columns
                ]
                self.rows, self.show_header = [rows[number]], number == 0
                yield from super().__rich_console__(console, options)
                for place, column in enumerate(beneath):
                    cell: Any = column._cells[number]
                    if place and isinstance(cell, Text) and cell.plain:
                        cell = Text.assemble(f"{column.header} ", cell)
                    if not isinstance(cell, Text) or cell.plain:
                        yield Padding(cell, (0, 0, 0, _INDENT))
        finally:
            self.rows, self.show_header = rows, True

    def _narrowed(self, width: int) -> tuple[list[Column], list[Column]]:
        """The columns that are shown in a terminal of ``width`` columns, and those that go below."""
        kept = list(self.columns)
        if _comfort(kept) > width:
            kept = [
                replace(column, _cells=[_without_folders(cell) for cell in column._cells])
                for column in kept
            ]
        for name in self.optional:
            if _comfort(kept) > width:
                kept = [column for column in kept if str(column.header).strip() != name]
        beneath: list[Column] = []
        for name in self.below:
            if _comfort(kept) > width:
                beneath += (column for column in kept if str(column.header).strip() == name)
                kept = [column for column in kept if str(column.header).strip() != name]
        return kept, beneath


def _without_folders(cell: Any) -> Any:
    if isinstance(cell, Text) and (match := _FOLDERS.match(cell.plain)):
        return cell[match.end() :]
    return cell


def _comfort(columns: Collection[Column]) -> int:
    """The width, in characters, in which no word is broken and a line of a sentence holds some words."""
    wanted = (
        max(_longest_word(column), min(_longest_line(column), _SOME_WORDS)) for column in columns
    )
    return sum(wanted) + _GAP * (len(columns) - 1)


def _shared(columns: Sequence[Column], width: int) -> list[int]:
    """The width of each column: what its words need, and of what is left as much as its lines want,
    those that want least first.
    """
    least = [_longest_word(column) for column in columns]
    wanted = [_longest_line(column) for column in columns]
    left = max(0, width - sum(least) - _GAP * (len(columns) - 1))
    widths = list(least)
    order = sorted(range(len(columns)), key=lambda at: wanted[at] - least[at])
    for rank, at in enumerate(order):
        more = min(wanted[at] - least[at], left // (len(order) - rank))
        widths[at] += more
        left -= more
    return widths


def _texts(column: Column) -> list[Text]:
    header = Text.from_markup(column.header) if isinstance(column.header, str) else column.header
    return [cell for cell in (header, *column._cells) if isinstance(cell, Text)]


def _longest_line(column: Column) -> int:
    return max(
        (line.cell_len for text in _texts(column) for line in text.split(allow_blank=True)),
        default=0,
    )


def _longest_word(column: Column) -> int:
    """The longest word of a column that may be wrapped, ``max_width`` at most; of another one the longest
    line.
    """
    if column.no_wrap:
        return _longest_line(column)
    words = (Text(word).cell_len for text in _texts(column) for word in text.plain.split())
    return min(max(words, default=0), column.max_width or sys.maxsize)
