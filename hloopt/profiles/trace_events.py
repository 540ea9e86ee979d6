"""Writing Chrome's trace events, which Perfetto shows and ``chrome`` reads back.

What hloopt knows of a trace beside its events is under ``metadata``: the module that ran, and the sums of what
had no room as events.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Final, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.ir import Module
from hloopt.proto import write_module

__all__ = ["METADATA", "PROGRAM_ID", "TraceEvent", "TraceMetadata", "chrome_trace", "held_module"]

METADATA: Final = "hloopt"
"""The key of ``metadata`` under which a trace has what only hloopt reads."""

PROGRAM_ID: Final = "1"
"""The ``program_id`` of the one program that a trace of hloopt has."""

_MOST_MODULE: Final = 32 << 20  # bytes of a module that goes along in a trace

_Argument: TypeAlias = "str | int | float"


@dataclass(frozen=True, slots=True)
class TraceEvent:
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


@dataclass(frozen=True)
class TraceMetadata:
    """What a trace of one program holds beside its events.

    program   the module's name, as ``hlo_module`` of the events
    number    of the compilation, as ``program_id``
    module    the HloProto of the module that ran; empty where it is too large to go along
    left_out  how many executions have no event
    times     where there are such, of each instruction: its name, the participant, executions and seconds,
              without what ran inside it
    """

    program: str
    number: str
    module: bytes = b""
    left_out: int = 0
    times: Sequence[tuple[str, int, int, float]] = ()

    def to_json(self) -> dict[str, object]:
        """As JSON values; the module in base 64."""
        return {
            "program": self.program,
            "program_id": self.number,
            "module": b64encode(self.module).decode(),
            "left_out": self.left_out,
            "times": [list(row) for row in self.times],
        }


def held_module(module: Module) -> bytes:
    """The HloProto that goes along in a trace of the module; empty where it is too large for that."""
    written = write_module(module)
    return written if len(written) <= _MOST_MODULE else b""


def chrome_trace(
    events: Sequence[TraceEvent], title: str, metadata: TraceMetadata | None = None
) -> dict[str, object]:
    """The trace's JSON object; times are in microseconds, to the nanosecond.

    Rows stand in the order in which they first occur; ``title`` is what the process is called.
    """
    rows = {name: number for number, name in enumerate(dict.fromkeys(one.row for one in events))}
    found: list[dict[str, object]] = [_named("process_name", 0, title)]
    found += [_named("thread_name", number, name) for name, number in rows.items()]
    found += [
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
        for one in events
    ]
    trace: dict[str, object] = {"displayTimeUnit": "ns", "traceEvents": found}
    return trace if metadata is None else {**trace, "metadata": {METADATA: metadata.to_json()}}


def _named(what: str, row: int, name: str) -> dict[str, object]:
    return {"ph": "M", "name": what, "pid": 0, "tid": row, "args": {"name": name}}
