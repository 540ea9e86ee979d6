"""Traces made from spans, in the three formats that profilers write."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hloopt.proto.messages import new


class Made(NamedTuple):
    """An execution of an instruction: nanoseconds, its names, and the thread or stream it ran on."""

    start: int
    length: int
    op: str
    run: int = 1
    module: str = "jit_f"
    number: int = 6
    kernel: str = ""
    thread: str = "tf_XLA/1"


def xplane(
    spans: Sequence[Made], modules: dict[str, bytes] | None = None, plane: str = "/host:CPU"
) -> bytes:
    """An XSpace with these spans and the HloProto of programs called ``jit_f(6)``."""
    space = new("XSpace")
    host = space.planes.add(name=b"/host:metadata")
    _stat_name(host, 1, "Hlo Proto")
    for number, (label, module) in enumerate((modules or {}).items(), 1):
        event = host.event_metadata.add(key=number).value
        event.id, event.name = number, label.encode()
        event.stats.add(metadata_id=1, bytes=module)
    device = space.planes.add(name=plane.encode())
    names = {"hlo_op": 1, "hlo_module": 2, "program_id": 3, "run_id": 4, "other": 5}
    for name, number in names.items():
        _stat_name(device, number, name)
    refs: dict[str, int] = {}
    events: dict[str, int] = {}
    lines: dict[str, Any] = {}
    for made in spans:
        for name in (made.op, made.module):
            if name not in refs:
                refs[name] = 100 + len(refs)
                _stat_name(device, refs[name], name)
        title = made.kernel or made.op
        if title not in events:
            events[title] = len(events) + 1
            entry = device.event_metadata.add(key=events[title]).value
            entry.id, entry.name = events[title], title.encode()
        if made.thread not in lines:
            line = device.lines.add(name=made.thread.encode(), timestamp_ns=1000)
            lines[made.thread] = line
        event = lines[made.thread].events.add(
            metadata_id=events[title], offset_ps=made.start * 1000, duration_ps=made.length * 1000
        )
        event.stats.add(metadata_id=5, text=b"no matter")
        event.stats.add(metadata_id=1, ref=refs[made.op])
        event.stats.add(metadata_id=2, ref=refs[made.module])
        event.stats.add(metadata_id=3, int64=made.number)
        event.stats.add(metadata_id=4, int64=made.run)
    data: bytes = space.SerializeToString()
    return data


def _stat_name(plane: Any, number: int, name: str) -> None:
    entry = plane.stat_metadata.add(key=number).value
    entry.id, entry.name = number, name.encode()


def chrome(spans: Sequence[Made]) -> bytes:
    """Chrome's JSON as jax.profiler writes it, with all numbers of ``args`` as texts."""
    events: list[dict[str, Any]] = [
        {
            "ph": "M",
            "pid": 1,
            "tid": made.thread,
            "name": "thread_name",
            "args": {"name": made.thread},
        }
        for made in spans
    ]
    for made in spans:
        arguments = {"hlo_op": made.op, "hlo_module": made.module, "run_id": str(made.run)}
        times = {"ts": made.start / 1e3, "dur": made.length / 1e3}
        name = made.kernel or made.op
        where = {"ph": "X", "pid": 1, "tid": made.thread}
        events.append({**where, "name": name, **times, "args": arguments})
    return json.dumps({"traceEvents": events}).encode()


def nsight(path: Path, spans: Sequence[Made], *, ranges: bool = True) -> Path:
    """Nsight's SQLite: a launch for each span, within the ranges that XLA opens, unless left out."""
    database = sqlite3.connect(path)
    database.executescript(
        """
        CREATE TABLE StringIds (id INTEGER, value TEXT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL
            (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER,
             shortName INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME
            (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER);
        """
    )
    runs: dict[int, list[Made]] = {}
    for made in spans:
        runs.setdefault(made.run, []).append(made)
    if ranges:
        database.execute(
            "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, "
            "textId INTEGER, globalTid INTEGER)"
        )
    clock = 0
    for call, made in enumerate((one for run in runs.values() for one in run), 1):
        if made is runs[made.run][0]:
            begin, clock = clock, clock + 1
            label = f"XlaModule:#prefix=jit(f),hlo_module={made.module},program_id={made.number}#"
            if ranges:
                end = begin + 10 * len(runs[made.run]) + 5
                row = (begin, end, 59, label, None, 7)
                database.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", row)
        thunk = f"TSL:Thunk:#name=x,hlo_op={made.op},unique_hlo_op_id=3#"
        if ranges:
            number = 1000 + call
            database.execute("INSERT INTO StringIds VALUES (?, ?)", (number, thunk))
            row = (clock, clock + 8, 59, None, number, 7)
            database.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", row)
        runtime = (clock + 1, clock + 3, 7, call)
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?)", runtime)
        database.execute("INSERT INTO StringIds VALUES (?, ?)", (call, made.kernel or made.op))
        kernel = (made.start, made.start + made.length, 0, 13, call, call)
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?)", kernel)
        clock += 10
    database.commit()
    database.close()
    return path
