"""Attributes beside the fields of a proto that hold them: a row reads and writes one attribute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields as dataclass_fields
from operator import attrgetter
from typing import Any

from hloopt.dataclass import dataclass
from hloopt.proto import within
from hloopt.proto.entry import ProtoSource, ProtoTarget
from hloopt.proto.messages import decode, encoded, new, text
from hloopt.proto.schema import named
from hloopt.proto.words import number_of, word_of
from hloopt.types import Text

__all__ = [
    "ProtoRow",
    "field",
    "flag",
    "integers",
    "number",
    "of_message",
    "plain",
    "put",
    "quoted",
    "records",
    "word",
    "word_text",
]


@dataclass(frozen=True, slots=True)
class ProtoRow:
    """One attribute.

    fields  the fields of ``Instruction`` it is made of
    read    the value, or None where the proto has none; raises ``Problem``
    write   puts a value into the proto; raises ``Problem``
    always  whether it is there even when no field is: the default of a proto's field has no bytes
    """

    name: str
    fields: tuple[str, ...]
    read: Callable[[ProtoSource], Any]
    write: Callable[[ProtoTarget, Any], None]
    always: bool = False


def field(
    name: str,
    path: str,
    take: Callable[[Any], Any],
    give: Callable[[Any], Any],
    *,
    always: bool = False,
) -> ProtoRow:
    """An attribute in one field, which a ``path`` with dots finds in a message.

    ``take`` makes the value of what is there, or None; ``give`` is its inverse.
    """
    outer, *inner = (path or name).split(".")
    kind = named("Instruction")[outer].kind
    found = attrgetter(".".join(inner or [outer]))
    *way, last = inner or [outer]

    def read(entry: ProtoSource) -> Any:
        return take(found(entry.message(kind, outer) if inner else entry.proto))

    def write(target: ProtoTarget, value: Any) -> None:
        holder = target.message(kind, outer) if inner else target.proto
        for part in way:
            holder = getattr(holder, part)
        put(holder, last, give(value))

    return ProtoRow(name, (outer,), read, write, always)


def put(message: Any, name: str, value: Any) -> None:
    """Set a field; a tuple goes into one that is repeated."""
    if isinstance(value, tuple):
        getattr(message, name).extend(value)
    else:
        setattr(message, name, value)


def number(name: str, path: str = "", *, unless: int | None = None) -> ProtoRow:
    """An integer, left out where it is ``unless``."""
    return field(
        name, path, lambda value: None if value == unless else value, int, always=unless is None
    )


def flag(name: str, path: str = "", *, always: bool = False) -> ProtoRow:
    """``true``, or nothing, unless it is there ``always``."""
    return field(
        name, path, lambda value: value or (False if always else None), bool, always=always
    )


def integers(name: str, path: str = "", *, optional: bool = False) -> ProtoRow:
    """``{1,0}``; where ``optional``, an empty list is left out."""
    empty = None if optional else ()
    return field(name, path, lambda value: tuple(value) or empty, tuple, always=not optional)


def word(name: str, path: str, words: Mapping[int, str], *, unless: int | None = None) -> ProtoRow:
    """A word for an enum's number, left out where it is ``unless``."""
    outer = path.partition(".")[0]

    def take(value: int) -> str | None:
        return None if value == unless else word_of(words, value, outer)

    return field(name, path, take, lambda value: number_of(words, value), always=unless is None)


def word_text(name: str, path: str) -> ProtoRow:
    """A word the proto has as text."""
    return field(name, path, lambda value: text(value) or None, str.encode)


def quoted(name: str, path: str = "", *, unless: str = "") -> ProtoRow:
    """A string in quotes, left out where it is empty or ``unless``."""

    def take(value: bytes) -> Text | None:
        found = text(value)
        return None if found in {"", unless} else Text(found)

    return field(name, path, take, encoded)


def records(
    make: type[Any], *columns: str
) -> tuple[Callable[[Any], Any], Callable[[Any, Any], None]]:
    """What reads the messages of a repeated field as records, and what writes them.

    ``columns`` are the fields of a message in the order of those of the dataclass ``make``.
    """
    names = [one.name for one in dataclass_fields(make)]

    def read(several: Any) -> Any:
        return tuple(make(*(plain(getattr(one, name)) for name in columns)) for one in several)

    def write(several: Any, values: Any) -> None:
        for value in values:
            given = (getattr(value, name) for name in names)
            several.add(**dict(zip(columns, given, strict=False)))

    return read, write


def plain(value: Any) -> Any:
    """The numbers of a repeated field as a tuple; others as they are."""
    return value if isinstance(value, int) else tuple(value)


def of_message(
    name: str,
    path: str,
    read_message: Callable[[Any], Any],
    write_message: Callable[[Any, Any], None],
) -> ProtoRow:
    """An attribute that is a message in the proto; equal messages and values are read and made once."""
    kind = named("Instruction")[path].kind

    def made(value: Any) -> Any:
        message = new(kind)
        write_message(message, value)
        return message

    def taken(data: bytes, warnings: list[str]) -> Any:
        return read_message(decode(kind, data, warnings)) or None

    def read(entry: ProtoSource) -> Any:
        data = getattr(entry.proto, path)
        with within(path):
            return entry.reading.once(taken, data) if data else None

    def write(target: ProtoTarget, value: Any) -> None:
        setattr(target.proto, path, target.writing.once(made, value))

    return ProtoRow(name, (path,), read, write)
