"""Tables of records: what JSON has of a row, each figure under its heading and in its form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hloopt.dataclass import dataclass
from hloopt.report.console import table
from hloopt.report.fit import FittedTable

__all__ = ["TableColumn", "plain_text", "records_table"]


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
