"""What the rows of ``attributes.py`` see of an instruction: a proto being read, one being written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hloopt.ir import Computation, Instruction
from hloopt.proto import ProtoProblem, within
from hloopt.proto.messages import decode, new
from hloopt.proto.shapes import ShapeReader, ShapeWriter
from hloopt.text.attributes import verbatim
from hloopt.text.problem import Problem
from hloopt.types import Shape, Verbatim

__all__ = ["ProtoSource", "ProtoTarget", "Reading", "Writing", "kept", "said"]

_T = TypeVar("_T")


class Reading:
    """What is shared by all instructions of a module that is read."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.shapes = ShapeReader(self.warnings)
        self.payloads: list[bytes] = []
        self._known: dict[tuple[Callable[..., Any], tuple[Any, ...]], Any] = {}

    def once(self, read: Callable[..., Any], *given: Any) -> Any:
        """What ``read`` makes of bytes and the list of warnings; equal bytes are read once."""
        key = (read, given)
        if key not in self._known:
            self._known[key] = read(*given, self.warnings)
        return self._known[key]


def kept(name: str, text: str) -> Verbatim:
    """An attribute that keeps its text, made of the text; raises ``ProtoProblem``."""
    try:
        return verbatim(name, text)
    except Problem as problem:
        raise ProtoProblem(f"{name}={text}: {problem.message}") from None


def said(name: str, value: Verbatim, kind: type[_T]) -> _T:
    """What an attribute that keeps its text says; raises ``ProtoProblem`` for a form that is not known."""
    record = value.value
    if record is None:  # made as a text
        record = kept(name, value.text).value
    if not isinstance(record, kind):
        raise ProtoProblem(f"{name}={value} has no form that the proto has fields for")
    return record


class ProtoSource:
    """An instruction of a proto, its operands and the computations it calls."""

    __slots__ = ("called", "opcode", "operands", "proto", "reading", "shape")

    def __init__(
        self,
        reading: Reading,
        proto: Any,
        opcode: str,
        shape: Shape,
        operands: tuple[Instruction, ...],
        called: tuple[Computation, ...],
    ) -> None:
        self.reading = reading
        self.proto = proto
        self.opcode = opcode
        self.shape = shape
        self.operands = operands
        self.called = called

    def message(self, kind: str, field: str) -> Any:
        """The message in a field, an empty one where the field is not there."""
        with within(field):
            return self.reading.once(decode, kind, getattr(self.proto, field))


class Writing:
    """What is shared by all instructions of a module that is written."""

    def __init__(self) -> None:
        self.shapes = ShapeWriter()
        self._known: dict[tuple[Callable[..., Any], Any], bytes] = {}

    def once(self, write: Callable[[Any], Any], value: Any) -> bytes:
        """The bytes of the message ``write`` makes of a value; equal values are written once."""
        key = (write, value)
        data = self._known.get(key)
        if data is None:
            data = self._known[key] = write(value).SerializeToString()
        return data


class ProtoTarget:
    """An instruction and the proto it goes to.

    Messages that several attributes share are collected in ``parts`` and put in when all are there.
    """

    __slots__ = ("instruction", "parts", "proto", "writing")

    def __init__(self, writing: Writing, instruction: Instruction, proto: Any) -> None:
        self.writing = writing
        self.instruction = instruction
        self.proto = proto
        self.parts: dict[str, Any] = {}

    def message(self, kind: str, field: str) -> Any:
        """The message that goes to a field, made at the first call."""
        found = self.parts.get(field)
        if found is None:
            found = self.parts[field] = new(kind)
        return found

    def finish(self) -> None:
        """Put the collected messages into their fields."""
        for field, part in self.parts.items():
            setattr(self.proto, field, part.SerializeToString())
