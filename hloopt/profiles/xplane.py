"""``.xplane.pb``: what jax.profiler and TensorFlow's profiler record, an XSpace.

A plane is a device, or the host; a line of it a thread or stream; an event says by the stat ``hlo_op`` which
instruction it is.  The plane ``/host:metadata`` has the module of each program as it ran.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from hloopt.errors import FileError
from hloopt.profiles.spans import (
    MODULES,
    OPS,
    Span,
    SpanRow,
    TraceProfile,
    program_of,
    run_key,
    summed,
)
from hloopt.proto import ProtoProblem
from hloopt.proto.messages import decode, text
from hloopt.proto.wire import varint

__all__ = ["is_xspace", "read_xplane"]

_METADATA: Final = "/host:metadata"
_MODULE: Final = "Hlo Proto"
_WANTED: Final = ("hlo_op", "hlo_module", "program_id", "run_id", "device_ordinal")
_VALUES: Final = ("ref", "text", "int64", "uint64", "bytes")
_Names = dict[int, str]


def is_xspace(content: bytes) -> bool:
    """Whether bytes begin as an XSpace does: with a plane, or a part of one, that has a name."""
    if content[:1] != b"\x0a":
        return False
    try:
        length, start = varint(content, 1)
        plane = content[start : start + min(length, 1 << 10)]
        at = 0
        if plane[:1] == b"\x08":
            _, at = varint(plane, 1)
        if plane[at : at + 1] != b"\x12":
            return False
        size, begin = varint(plane, at + 1)
    except ProtoProblem:
        return False
    name = plane[begin : begin + size]
    return len(name) == size and (name.startswith((b"/host:", b"/device:")) or name in _PLANES)


_PLANES: Final = frozenset({b"Task Environment", b"#Chip TPU Non-Core HLO#"})
"""Names of planes without a machine's part in front."""


def read_xplane(content: bytes, name: str) -> TraceProfile:
    """The times in an XSpace.  Raises ``FileError`` where it is damaged or has none."""
    planes = [_Plane(plane) for plane in _space(content, name).planes]
    devices = [list(plane.rows()) for plane in planes]
    return summed(name, "xplane", devices, _modules(planes))


def _space(content: bytes, name: str) -> Any:
    try:
        return decode("XSpace", content)
    except ProtoProblem as problem:
        raise FileError(f"this trace is damaged: {problem}", name=name) from problem


def _modules(planes: list[_Plane]) -> dict[tuple[str, str], bytes]:
    return {
        program_of(label): module
        for plane in planes
        if plane.name == _METADATA
        for label, module in plane.modules()
    }


class _Plane:
    """A plane with the names of its events and stats."""

    def __init__(self, plane: Any) -> None:
        self.name = text(plane.name)
        self._lines = plane.lines
        self._events = {entry.key: entry.value for entry in plane.event_metadata}
        self._names: _Names = {entry.key: text(entry.value.name) for entry in plane.stat_metadata}
        self._keys = {number: word for number, word in self._names.items() if word in _WANTED}
        self._shared: dict[int, dict[str, str | int]] = {}

    def modules(self) -> Iterator[tuple[str, bytes]]:
        """The programs that the plane describes, and their modules."""
        for event in self._events.values():
            for stat in event.stats:
                if self._names.get(stat.metadata_id) == _MODULE and stat.bytes:
                    yield text(event.name), stat.bytes

    def rows(self) -> Iterator[SpanRow]:
        """Each line's spans; of the host, those of threads that run instructions."""
        for line in self._lines:
            name = text(line.name)
            named = name if name in (OPS, MODULES) else ""
            spans = list(self._spans(line, named))
            if spans:
                yield SpanRow(name, spans)

    def _spans(self, line: Any, named: str) -> Iterator[Span]:
        begin = line.timestamp_ns
        for event in line.events:
            number = event.metadata_id
            if number not in self._shared:
                metadata = self._events.get(number)
                self._shared[number] = self._stats(metadata) if metadata is not None else {}
            stats = self._shared[number]
            if event.stats:
                stats = {**stats, **self._stats(event)}
            if not named and "hlo_op" not in stats:
                continue
            title = self._title(number)
            start = begin + event.offset_ps * 1e-3
            instruction = title if named == MODULES else str(stats.get("hlo_op", "")) or title
            yield Span(
                start,
                start + event.duration_ps * 1e-3,
                instruction,
                "" if title == instruction or named else title,
                str(stats.get("hlo_module", "")),
                str(stats.get("program_id", "")) if "hlo_module" in stats else "",
                run_key(stats.get("run_id"), stats.get("device_ordinal")),
            )

    def _title(self, number: int) -> str:
        """The name of an event; that of an instruction may be its whole text."""
        metadata = self._events.get(number)
        if metadata is None:
            return ""
        title = text(metadata.display_name or metadata.name)
        return title.partition(" = ")[0].removeprefix("%")

    def _stats(self, owner: Any) -> dict[str, str | int]:
        found: dict[str, str | int] = {}
        for stat in owner.stats:
            key = self._keys.get(stat.metadata_id)
            if key is not None:
                found[key] = self._value(stat)
        return found

    def _value(self, stat: Any) -> str | int:
        kind = next((kind for kind in _VALUES if stat.HasField(kind)), None)
        if kind == "ref":
            return self._names.get(stat.ref, "")
        value: bytes | int = getattr(stat, kind) if kind else b""
        return text(value) if isinstance(value, bytes) else value
