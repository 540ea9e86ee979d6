"""A run as Perfetto and chrome://tracing show it: the trace event format, in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

from hloopt.dataclass import dataclass

__all__ = ["TimedLaunch", "chrome_trace"]

_Argument = str | int | float


@dataclass(frozen=True, slots=True)
class TimedLaunch:
    """Something that ran: ``start`` and ``seconds`` from the beginning of the run.

    name       what the bar is called
    category   what it is coloured by: the kernel's family, ``copy``, ``library`` ...
    row        the line it stands in: one a stream, or ``host``
    arguments  what a click on it shows
    """

    name: str
    start: float
    seconds: float
    category: str = "kernel"
    row: str = "GPU"
    arguments: Mapping[str, _Argument] = field(default_factory=lambda: MappingProxyType({}))


def chrome_trace(launches: Sequence[TimedLaunch], title: str) -> dict[str, object]:
    """The trace's JSON object; times are in microseconds, to the nanosecond.

    Rows stand in the order in which they first occur; ``title`` is what the process is called.
    """
    rows = {name: number for number, name in enumerate(dict.fromkeys(one.row for one in launches))}
    events: list[dict[str, object]] = [_named("process_name", 0, title)]
    events += [_named("thread_name", number, name) for name, number in rows.items()]
    events += [
        {
            "ph": "X",
            "name": one.name,
            "cat": one.category,
            "pid": 0,
            "tid": rows[one.row],
            "ts": round(one.start * 1e6, 3),
            "dur": round(one.seconds * 1e6, 3),
            "args": dict(one.arguments),
        }
        for one in launches
    ]
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _named(what: str, row: int, name: str) -> dict[str, object]:
    return {"ph": "M", "name": what, "pid": 0, "tid": row, "args": {"name": name}}
