"""Message classes made of the table in ``schema.py``, in a pool and a package of our own.

XLA, TensorFlow and JAX register their own descriptors under the same file names; ours never meet them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from hloopt.proto import ProtoProblem
from hloopt.proto.schema import MESSAGES, Field, fields
from hloopt.proto.wire import inspect

if TYPE_CHECKING:
    from google.protobuf import descriptor_pb2

__all__ = ["decode", "encoded", "new", "text"]

_PACKAGE = "hloopt.proto"


def new(message: str) -> Any:
    """An empty message."""
    return _classes()[message]()


def decode(message: str, data: bytes, warnings: list[str] | None = None) -> Any:
    """The message in ``data``; raises ``ProtoProblem`` with the path of the field that is wrong.

    Fields the table does not know are left out and named in ``warnings``, if there is such a list.
    """
    from google.protobuf.message import DecodeError

    found = new(message)
    try:
        found.ParseFromString(data)
    except DecodeError:
        inspect(message, data, warnings or [])
        raise ProtoProblem("the message cannot be decoded") from None
    if warnings is None:
        return found
    size = found.ByteSize()
    found.DiscardUnknownFields()
    if found.ByteSize() != size:
        inspect(message, data, warnings)
    return found


def text(value: bytes) -> str:
    """A string of a proto: UTF-8, and whatever else its bytes are."""
    return value.decode("utf-8", "surrogateescape")


def encoded(value: str) -> bytes:
    """The inverse of ``text``."""
    return value.encode("utf-8", "surrogateescape")


@cache
def _classes() -> dict[str, type[Any]]:
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in MESSAGES
    }


def _file() -> descriptor_pb2.FileDescriptorProto:
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(
        name="hloopt/proto/schema.proto", package=_PACKAGE, syntax="proto2"
    )
    for name in MESSAGES:
        message = file.message_type.add(name=name)
        for field in fields(name).values():
            _describe(message.field.add(), field)
    return file


def _describe(row: descriptor_pb2.FieldDescriptorProto, field: Field) -> None:
    row.number = field.number
    row.name = field.name
    row.label = row.LABEL_REPEATED if field.repeated else row.LABEL_OPTIONAL
    if field.packed or field.lazy or field.kind in {"text", "bytes"}:
        row.type = row.TYPE_BYTES
    elif field.is_message:
        row.type = row.TYPE_MESSAGE
        row.type_name = f".{_PACKAGE}.{field.kind}"
    else:
        row.type = row.Type.Value(f"TYPE_{field.kind.upper()}")
        row.options.packed = field.repeated
