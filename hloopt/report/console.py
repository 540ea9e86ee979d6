"""Where reports go, stdout for the product and stderr for everything else; and the tables they consist of."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import StringIO
from textwrap import fill
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from hloopt.dataclass import dataclass
from hloopt.report.fit import FittedTable
from hloopt.visible_text import visible

__all__ = [
    "ONE_LINE",
    "Console",
    "TableColumn",
    "capturing",
    "messages",
    "paragraph",
    "plain_text",
    "product",
    "records_table",
    "say",
    "show_name",
    "table",
]

_PIPE_WIDTH = 120

ONE_LINE = 1 << 16
"""Width of tables in a pipe: every row is one line there, so that grep finds whole names."""


def product(width: int = _PIPE_WIDTH) -> Console:
    """A console on stdout; in a pipe, lines have ``width`` columns unless the environment says how many."""
    return _console(stderr=False, pipe_width=width)


def capturing(width: int) -> Console:
    """A console that prints nothing and remembers all, for its ``export`` methods."""
    return _Console(
        file=StringIO(),
        record=True,
        width=width,
        highlight=False,
        force_terminal=True,
        force_jupyter=False,
        color_system="truecolor",
    )


def messages() -> Console:
    """A console on stderr."""
    return _console(stderr=True)


class _Console(Console):
    """A console that truncates no line, survives a closed pipe, and escapes control characters."""

    def print(self, *objects: Any, crop: bool = False, **options: Any) -> None:
        """As ``rich`` prints, but a line that is too long stays whole."""
        super().print(*objects, crop=crop, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """As rich's, with what a module holds made visible; rich's own controls stay."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(visible(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Leave it to the entry point, as with everything else that is written."""
        raise BrokenPipeError


def _console(*, stderr: bool, pipe_width: int = _PIPE_WIDTH) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    # Below what makes texts visible: the colours of a table are meant.
    stream = getattr(stream, "unfiltered", stream)
    if stream.isatty():
        # rich would still print bold and italic.
        if os.environ.get("NO_COLOR"):
            return _Console(file=stream, highlight=False, color_system=None)
        return _Console(file=stream, highlight=False)
    width = Console().width if _columns_given() else pipe_width
    return _Console(file=stream, highlight=False, width=width)


def _columns_given() -> bool:
    return os.environ.get("COLUMNS", "").isdigit()


def table(
    *columns: str,
    title: str | None = None,
    left: int = 1,
    optional: Sequence[str] = (),
    below: str | Sequence[str] = (),
) -> FittedTable:
    """A plain table; the first ``left`` columns are texts, the others numbers.

    ``optional`` names the columns that a narrow terminal does without, the least important one first;
    ``below`` the column of sentences that stand below each row there, or those that follow it, in order.
    """
    made = FittedTable(title=title, optional=optional, below=below)
    for number, name in enumerate(columns):
        if number < left:
            made.add_column(name)
        else:
            made.add_column(name, justify="right", no_wrap=True)
    return made


def say(console: Console, *parts: str | tuple[str, str] | Text) -> None:
    """Print a line, however long; a part may have a style."""
    console.print(Text.assemble(*parts), soft_wrap=True)


def paragraph(console: Console, text: str, width: int, indent: str = "") -> None:
    """Print sentences in lines of ``width``; names are not broken."""
    lines = fill(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    say(console, lines)


def show_name(module: str, file: str, console: Console) -> None:
    """Print which module a report is about."""
    say(console, f"{file}  " if file else "", (module, "bold"))


def plain_text(value: Any) -> str:
    """A value as it is; empty for None."""
    return "" if value is None else str(value)


@dataclass(frozen=True)
class TableColumn:
    """The figures of one key below a heading.

    ``text`` turns a value into a cell; without a ``key`` it gets the whole record.
    """

    heading: str
    key: str
    text: Callable[[Any], str] = plain_text


def records_table(
    columns: Iterable[TableColumn],
    records: Iterable[Mapping[str, Any]],
    *,
    left: int = 1,
    optional: Sequence[str] = (),
    title: str | None = None,
) -> FittedTable:
    """A row for each record, which is what JSON has of it; the other arguments as ``table`` takes them."""
    shown = [*columns]
    headings = [column.heading for column in shown]
    made = table(*headings, title=title, left=left, optional=optional)
    for record in records:
        cells = (record[column.key] if column.key else record for column in shown)
        made.add_row(*(column.text(cell) for column, cell in zip(shown, cells, strict=True)))
    return made
