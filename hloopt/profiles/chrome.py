"""Chrome's trace events as JSON: ``trace.json.gz`` of jax.profiler, what Perfetto shows, what we write.

An event is of an instruction where ``args`` has ``hlo_op``; ``hlo_module``, ``program_id`` and ``run_id``
beside it are the program's.  A trace that hloopt wrote holds the module that ran.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import isfinite
from typing import Any, Final

from hloopt.errors import FileError
from hloopt.profiles.spans import (
    MODULES,
    OPS,
    ProgramTimes,
    Span,
    SpanRow,
    SpanTimes,
    TraceProfile,
    run_key,
    summed,
)
from hloopt.profiles.trace_events import METADATA

__all__ = ["read_chrome"]

_Thread = tuple[str, str]
_NANOSECONDS: Final = 1e3  # in a microsecond, the unit of the format


def read_chrome(content: bytes, name: str) -> TraceProfile:
    """The times in Chrome's JSON, an object with ``traceEvents`` or a list of events.

    Raises ``FileError`` with line and column where it is no JSON, and where nothing in it is of an instruction.
    """
    try:
        found = json.loads(content)
    except json.JSONDecodeError as error:
        message = f"this is not whole JSON: {error.msg}"
        raise FileError(message, name=name, line=error.lineno, column=error.colno) from error
    except (RecursionError, ValueError) as error:
        raise FileError(f"this JSON cannot be read: {error}", name=name) from error
    events = found.get("traceEvents") if isinstance(found, dict) else found
    if not isinstance(events, list):
        raise FileError("this JSON is no trace: it has no list 'traceEvents'", name=name)
    rows = _rows([event for event in events if isinstance(event, dict)])
    metadata = found.get("metadata") if isinstance(found, dict) else None
    own = metadata.get(METADATA) if isinstance(metadata, dict) else None
    if not isinstance(own, dict):
        return summed(name, "chrome", rows)
    try:
        return _with_module(own, name, rows)
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"'metadata' of this trace is damaged: {error}", name=name) from error


def _with_module(own: Mapping[str, Any], name: str, rows: list[list[SpanRow]]) -> TraceProfile:
    """The times of a trace that hloopt wrote; of one with more executions than events, its sums."""
    key = str(own["program"]), str(own["program_id"])
    module = b64decode(own["module"], validate=True)
    profile = summed(name, "chrome", rows, {key: module} if module else {})
    if not own["left_out"]:
        return profile
    sums: dict[str, SpanTimes] = {}
    for one, participant, count, seconds in own["times"]:
        times = sums.setdefault(str(one), SpanTimes(str(one), ""))
        times.seconds[run_key(1, participant)] = float(seconds)
        times.executions += int(count)
    program = ProgramTimes(*key, tuple(sums.values()), module)
    others = [one for one in profile.programs if (one.name, one.number) != key]
    return replace(profile, programs=(program, *others))


def _rows(events: Iterable[Mapping[str, Any]]) -> list[list[SpanRow]]:
    """The rows of each process."""
    names: dict[_Thread, str] = {}
    spans: defaultdict[_Thread, list[Span]] = defaultdict(list)
    begun: defaultdict[_Thread, list[Mapping[str, Any]]] = defaultdict(list)
    kept = list[tuple[_Thread, Mapping[str, Any], float, float]]()
    for event in events:
        thread = str(event.get("pid", "")), str(event.get("tid", ""))
        phase = event.get("ph")
        if phase == "M" and event.get("name") == "thread_name":
            names[thread] = str(_arguments(event).get("name", ""))
        elif phase == "X":
            start, length = _time(event, "ts"), _time(event, "dur")
            kept.append((thread, event, start, start + max(length, 0.0)))
        elif phase == "B":
            begun[thread].append(event)
        elif phase == "E" and begun[thread]:
            opened = begun[thread].pop()
            start = _time(opened, "ts")
            kept.append((thread, opened, start, max(start, _time(event, "ts"))))
    for thread, event, start, end in kept:
        span = _span(event, start, end, names.get(thread, ""))
        if span is not None:
            spans[thread].append(span)
    processes: defaultdict[str, list[SpanRow]] = defaultdict(list)
    for thread, found in spans.items():
        processes[thread[0]].append(SpanRow(names.get(thread, ""), found))
    return list(processes.values())


def _span(event: Mapping[str, Any], start: float, end: float, row: str) -> Span | None:
    arguments, title = _arguments(event), str(event.get("name", ""))
    instruction = str(arguments.get("hlo_op", ""))
    if not instruction:
        return Span(start, end, title) if row in (OPS, MODULES) else None
    kernel = "" if title == instruction else title
    program, number = (str(arguments.get(key, "")) for key in ("hlo_module", "program_id"))
    run = run_key(arguments.get("run_id"), arguments.get("device_ordinal"))
    return Span(start, end, instruction, kernel, program, number, run)


def _arguments(event: Mapping[str, Any]) -> Mapping[str, Any]:
    found = event.get("args")
    return found if isinstance(found, dict) else {}


def _time(event: Mapping[str, Any], key: str) -> float:
    """Nanoseconds; what is no number is 0."""
    value = event.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _LONGEST:
        return 0.0
    return value * _NANOSECONDS if isfinite(value) else 0.0


_LONGEST: Final = 1e18  # microseconds: what is longer is no time
