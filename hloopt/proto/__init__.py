"""HLO as protocol buffers: modules and snapshots as XLA dumps them, in and out.

The messages are described by our own table (``schema.py``); the ``protobuf`` package is loaded when one is
read or written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hloopt.errors import ParseError

if TYPE_CHECKING:
    import numpy as np

    from hloopt.ir import Module
    from hloopt.proto.snapshot import Snapshot

__all__ = [
    "ProtoProblem",
    "is_proto",
    "read_proto",
    "read_snapshot",
    "within",
    "write_module",
    "write_snapshot",
]

_CALLED = {
    "Module": "module",
    "Hlo": "hlo",
    "Snapshot": "snapshot",
    "UnoptimizedSnapshot": "snapshot",
    "DelimitedSnapshot": "snapshot",
}


def is_proto(data: bytes) -> str | None:
    """What bytes are, judged by their structure.

    ``module`` for a HloModuleProto, ``hlo`` for a HloProto, ``snapshot`` for a HloSnapshot or a
    HloUnoptimizedSnapshot; None for anything else, a message that is cut off among it.
    """
    from hloopt.proto.sniff import kind_of

    kind = kind_of(data)
    return None if kind is None else _CALLED[kind]


def read_proto(data: bytes, name: str) -> Module:
    """The module in a HloModuleProto, a HloProto or a snapshot.

    ``name`` is the file's.  ``module.warnings`` names what has no text form and is left out, at offset -1.
    Raises ``ParseError`` naming the field that is wrong.
    """
    from hloopt.proto.reader import read_module
    from hloopt.proto.sniff import kind_of, part

    kind = kind_of(data)
    if kind == "Module":
        return read_module(data, name)
    if kind == "Hlo":
        return read_module(part(data, 1) or b"", name)
    return read_snapshot(data, name).module


def read_snapshot(data: bytes, name: str) -> Snapshot:
    """A module with the inputs and results of one run, from a HloSnapshot or a HloUnoptimizedSnapshot.

    Raises ``ParseError`` naming the field that is wrong.
    """
    from hloopt.proto.snapshot import read_snapshot_of
    from hloopt.proto.sniff import kind_of

    kind = kind_of(data)
    if kind is None or not kind.endswith("Snapshot"):
        raise _no_module(data, name)
    return read_snapshot_of(kind, data, name)


def _no_module(data: bytes, name: str) -> ParseError:
    from hloopt.proto.wire import entries

    try:
        for _ in entries(data):
            pass
    except ProtoProblem as problem:
        return ParseError(f"this is not a complete protocol buffer: {problem}", name=name)
    return ParseError("this is not a protocol buffer of HLO, or it has no module", name=name)


def write_module(module: Module) -> bytes:
    """A HloProto, as XLA dumps it and reads it.

    Raises ``UnsupportedError`` with the place of an instruction that has no form in a proto.
    """
    from hloopt.proto.messages import new
    from hloopt.proto.writer import module_proto

    proto = new("Hlo")
    proto.hlo_module = module_proto(module).SerializeToString()
    data: bytes = proto.SerializeToString()
    return data


def write_snapshot(
    module: Module,
    inputs: Sequence[np.ndarray[Any, Any]],
    results: Sequence[np.ndarray[Any, Any]],
) -> bytes:
    """A HloSnapshot: the module, arrays for its parameters in order, and the arrays of its result.

    Raises ``EvaluationError`` where the arrays are not those of the module, ``UnsupportedError`` for what has
    no form in a proto.
    """
    from hloopt.proto import snapshot

    return snapshot.write_snapshot(module, inputs, results)


class ProtoProblem(Exception):  # noqa: N818 - not an error yet: the file gives it its name
    """A defect and the path of the field it is in, the innermost part first."""

    def __init__(self, message: str, *path: str) -> None:
        super().__init__(message)
        self.message = message
        self.path = list(path)

    def within(self, part: str) -> ProtoProblem:
        """The same defect, seen from the message around it."""
        self.path.append(part)
        return self

    def __str__(self) -> str:
        return f"{'.'.join(reversed(self.path))}: {self.message}" if self.path else self.message


class within:  # noqa: N801 - a statement's word
    """Adds the name of a field to the defects found while it is read."""

    __slots__ = ("part",)

    def __init__(self, part: str) -> None:
        self.part = part

    def __enter__(self) -> None:
        """Nothing is needed before."""

    def __exit__(self, kind: object, found: object, trace: object) -> None:
        """A defect gets another part of its path."""
        if isinstance(found, ProtoProblem):
            found.within(self.part)
