"""The wire format, walked by the table: finds out where a message that cannot be decoded is wrong.

Only for messages the ``protobuf`` package refuses, or that hold fields the table does not know.
"""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.proto import ProtoProblem, within
from hloopt.proto.schema import fields

__all__ = ["entries", "inspect", "varint"]

_DEEPEST = 100
_TYPES = {0: "varint", 1: "8 bytes", 2: "length-delimited", 3: "group", 4: "group", 5: "4 bytes"}
_WIDTHS = {1: 8, 5: 4}


def inspect(message: str, data: bytes, warnings: list[str], depth: int = 0) -> None:
    """Raise ``ProtoProblem`` at the first defect; name unknown fields in ``warnings``, each once."""
    if depth > _DEEPEST:
        raise ProtoProblem(f"messages are nested more than {_DEEPEST} levels deep")
    known = fields(message)
    counts: dict[str, int] = {}
    for number, kind, value in entries(data):
        field = known.get(number)
        if field is None:
            warning = f"{message} has an unknown field {number}; it is left out"
            if warning not in warnings:
                warnings.append(warning)
            continue
        part = field.name
        if field.repeated:
            part = f"{field.name}[{counts.get(field.name, 0)}]"
            counts[field.name] = counts.get(field.name, 0) + 1
        if kind != field.wire_type and not (field.repeated and kind == 2):
            raise ProtoProblem(
                f"has the wire type {_TYPES[kind]}, not {_TYPES[field.wire_type]}", part
            )
        if kind == 2 and field.is_message:
            with within(part):
                inspect(field.kind, data[value[0] : value[1]], warnings, depth + 1)


def entries(data: bytes) -> Iterator[tuple[int, int, tuple[int, int]]]:
    """Number, wire type and extent of each field of a message; raises ``ProtoProblem`` where it breaks off."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if not number or kind not in (0, 1, 2, 5):
            raise ProtoProblem(f"byte {at} of the message begins no field")
        start = at
        if kind == 0:
            _, at = varint(data, at)
        elif kind == 2:
            length, start = varint(data, at)
            at = start + length
        else:
            at += _WIDTHS[kind]
        if at > len(data):
            raise ProtoProblem(
                f"field {number} needs {at - start} bytes, {len(data) - start} are left: "
                "the message is truncated"
            )
        yield number, kind, (start, at)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a byte, and where it ends; raises ``ProtoProblem``."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        shift += 7
        if byte < 128:
            return value, at
    raise ProtoProblem(
        "a number is truncated" if at >= len(data) else "a number is longer than 64 bits"
    )
