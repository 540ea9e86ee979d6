"""Nsight Systems: the SQLite that ``nsys export --type sqlite`` writes.

A kernel belongs to the instruction whose NVTX range encloses the call that launched it: XLA opens a range
``Thunk:#...hlo_op=NAME...#`` around each instruction's work, within one ``XlaModule:#...#`` for each run of a
program.  Where there are no such ranges, kernels have their own names alone.  Tables and columns that a
recording does not need are not in its file.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

from hloopt.dataclass import dataclass
from hloopt.errors import FileError
from hloopt.profiles.spans import Span, SpanRow, TraceProfile, summed

__all__ = ["read_nsight"]

_KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
_MOVES: Final = {
    "CUPTI_ACTIVITY_KIND_MEMCPY": "memcpy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "memset",
}
_CALLS: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_RANGES: Final = "NVTX_EVENTS"
_STRINGS: Final = "StringIds"
_PUSHED: Final = 59  # the type of a range that was pushed and popped
_OP: Final = re.compile(r"Thunk:#(?:.*?[#,])?hlo_op=([^,#]+)")
_MODULE: Final = re.compile(r"XlaModule:#(.*?)#")
_STEPS: Final = 10_000  # of SQLite's machine between two looks at the budget
_STEPS_PER_BYTE: Final = 20


class _Range(NamedTuple):
    """A range of a thread; ``module`` is name and number of a program where it is a run of one."""

    start: int
    end: int
    op: str = ""
    module: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class _Launch:
    """Where a kernel was launched from; ``run`` is the start of the run."""

    op: str = ""
    program: str = ""
    number: str = ""
    run: int | None = None


def read_nsight(path: Path) -> TraceProfile:
    """The times of kernels, copies and fills.

    Raises ``FileError`` for a database that is damaged, is none of Nsight's, or has no kernels.
    """
    name = str(path)
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as database:
            _limit(database, path.stat().st_size)
            return summed(name, "nsight", [_Reader(database, name).rows()])
    except sqlite3.OperationalError as error:
        raise FileError(f"this database cannot be read: {error}", name=name) from error
    except sqlite3.DatabaseError as error:
        raise FileError(f"this database is damaged: {error}", name=name) from error


def _limit(database: sqlite3.Connection, size: int) -> None:
    """Stop what takes more steps than reading so many bytes needs; run nothing that the file defines."""
    left = [100 + size * _STEPS_PER_BYTE // _STEPS]

    def tick() -> bool:
        left[0] -= 1
        return left[0] < 0

    database.set_progress_handler(tick, _STEPS)
    database.execute("PRAGMA trusted_schema=OFF")
    database.text_factory = lambda data: data.decode("utf-8", "surrogateescape")


class _Reader:
    def __init__(self, database: sqlite3.Connection, name: str) -> None:
        self._database = database
        self._name = name
        self._tables = {
            str(table): self._columns(str(table))
            for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if table in {_KERNELS, *_MOVES, _CALLS, _RANGES, _STRINGS}
        }
        self._strings = dict(self._select(_STRINGS, "id", "value"))

    def rows(self) -> list[SpanRow]:
        """A row for each stream."""
        if _KERNELS not in self._tables:
            raise FileError(
                f"this database has no table {_KERNELS}: record with nsys profile -t cuda,nvtx",
                name=self._name,
            )
        launches = self._launches()
        found: defaultdict[object, list[Span]] = defaultdict(list)
        for table in (_KERNELS, *_MOVES):
            columns = ("start", "end", "correlationId", "streamId", "deviceId")
            naming = self._naming(table)
            for start, end, call, stream, device, title in self._select(table, *columns, naming):
                if not (isinstance(start, int) and isinstance(end, int) and start <= end):
                    continue
                kernel = _MOVES.get(table) or str(self._strings.get(title, title or ""))
                at = launches.get(call, _NOWHERE)
                span = Span(start, end, at.op, kernel, at.program, at.number, at.run)
                found[device, stream].append(span)
        return [SpanRow(str(key), spans) for key, spans in found.items()]

    def _naming(self, table: str) -> str:
        known = ("shortName", "demangledName", "mangledName")
        return next((column for column in known if column in self._tables.get(table, ())), "NULL")

    def _columns(self, table: str) -> frozenset[str]:
        return frozenset(
            str(row[1]) for row in self._database.execute(f"PRAGMA table_info({table})")
        )

    def _select(self, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a table, none where there is no such table; None for columns that it lacks."""
        known = self._tables.get(table)
        if known is None:
            return
        words = [f'"{column}"' if column in known else "NULL" for column in columns]
        # The names of tables and columns are those of this file, never the database's.
        query = f"SELECT {', '.join(words)} FROM {table}"  # noqa: S608
        yield from self._database.execute(query)

    def _launches(self) -> dict[object, _Launch]:
        """Where each call of CUDA was made, by its correlation."""
        ranges = self._ranges()
        calls: defaultdict[object, list[tuple[int, Any]]] = defaultdict(list)
        for start, thread, call in self._select(_CALLS, "start", "globalTid", "correlationId"):
            if isinstance(start, int) and thread in ranges:
                calls[thread].append((start, call))
        return {
            call: launch
            for thread, made in calls.items()
            for call, launch in _enclosing(ranges[thread], sorted(made, key=lambda one: one[0]))
        }

    def _ranges(self) -> dict[object, list[_Range]]:
        """The ranges of each thread that XLA opened."""
        found: defaultdict[object, list[_Range]] = defaultdict(list)
        columns = ("start", "end", "globalTid", "text", "textId", "eventType")
        for start, end, thread, label, number, kind in self._select(_RANGES, *columns):
            label = label if label is not None else self._strings.get(number)
            if not (isinstance(start, int) and isinstance(end, int) and isinstance(label, str)):
                continue
            op, module = _OP.search(label), _MODULE.search(label)
            if kind in (None, _PUSHED) and (op or module):
                program = _program(module[1]) if module else ("", "")
                found[thread].append(_Range(start, end, op[1] if op else "", program))
        return found


_NOWHERE: Final = _Launch()


def _program(payload: str) -> tuple[str, str]:
    """Name and number in ``prefix=jit(f),hlo_module=jit_f,program_id=6``."""
    fields = dict(word.partition("=")[::2] for word in payload.split(","))
    return fields.get("hlo_module", ""), fields.get("program_id", "")


def _enclosing(
    ranges: Sequence[_Range], calls: Sequence[tuple[int, Any]]
) -> Iterator[tuple[Any, _Launch]]:
    """What each call of a thread was made for; ranges are nested, the innermost one counts."""
    ordered = sorted(ranges, key=lambda one: (one.start, -one.end))
    around: list[tuple[int, _Launch]] = []
    at = 0
    for start, call in calls:
        while at < len(ordered) and ordered[at].start <= start:
            here = ordered[at]
            around = [one for one in around[-_DEEPEST:] if one[0] > here.start]
            outer = around[-1][1] if around else _NOWHERE
            if here.op:
                launch = _Launch(here.op, outer.program, outer.number, outer.run)
            else:
                launch = _Launch("", *here.module, here.start)
            around.append((here.end, launch))
            at += 1
        while around and around[-1][0] <= start:
            around.pop()
        yield call, around[-1][1] if around else _NOWHERE


_DEEPEST: Final = 100  # ranges of XLA within one another
