"""Which of XLA's messages some bytes are: none of them begins with a magic number."""

from __future__ import annotations

from hloopt.proto import ProtoProblem
from hloopt.proto.schema import fields, named
from hloopt.proto.wire import entries, varint

__all__ = ["kind_of", "part"]

_LENGTH = 2  # the wire type of messages and strings


def kind_of(data: bytes) -> str | None:
    """Module, Hlo, Snapshot or UnoptimizedSnapshot: names of messages in ``schema.py``; None for others.

    DelimitedSnapshot is an UnoptimizedSnapshot behind its length, with arrays behind it.
    """
    if not data:
        return None
    if _is_delimited(data):
        return "DelimitedSnapshot"
    if _is_module(data):
        return "Module"
    inner = part(data, 1)
    if inner is None:
        return None
    if _is_module(inner):
        if part(data, 2) is None and _is_made_of(data, "Hlo"):
            return "Hlo"  # which has no field 2
        return "UnoptimizedSnapshot" if _is_made_of(data, "UnoptimizedSnapshot") else None
    innermost = part(inner, 1)
    if innermost is not None and _is_module(innermost) and _is_made_of(inner, "Hlo"):
        return "Snapshot" if _is_made_of(data, "Snapshot") else None
    return None


def _is_delimited(data: bytes) -> bool:
    try:
        length, start = varint(data, 0)
    except ProtoProblem:
        return False
    if start + length > len(data):
        return False
    message = data[start : start + length]
    inner = part(message, 1)
    return inner is not None and _is_module(inner) and _is_made_of(message, "UnoptimizedSnapshot")


def part(data: bytes, wanted: int) -> bytes | None:
    """The bytes of the first field of a number; None where there is none or the message breaks off."""
    try:
        for number, kind, (start, end) in entries(data):
            if number == wanted:
                return data[start:end] if kind == _LENGTH else None
    except ProtoProblem:
        return None
    return None


def _is_module(data: bytes) -> bool:
    """Whether a message has computations with instructions; the first of those is checked."""
    first = part(data, named("Module")["computations"].number)
    if first is None or not _is_made_of(data, "Module"):
        return False
    instruction = part(first, named("Computation")["instructions"].number)
    if instruction is None or not _is_made_of(first, "Computation"):
        return False
    opcode = part(instruction, named("Instruction")["opcode"].number)
    return opcode is not None and opcode.replace(b"-", b"").replace(b"_", b"").isalnum()


def _is_made_of(data: bytes, message: str) -> bool:
    """Whether all known fields of the message have its wire types; a later version may have more."""
    known = fields(message)
    try:
        for number, kind, _ in entries(data):
            field = known.get(number)
            if (
                field is not None
                and kind != field.wire_type
                and not (field.repeated and kind == _LENGTH)
            ):
                return False
    except ProtoProblem:
        return False
    return True
