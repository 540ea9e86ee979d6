"""Attributes beside the fields of a proto that hold them: a row reads and writes one attribute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hloopt.dataclass import dataclass
from hloopt.proto.entry import Entry, Target
from hloopt.proto.messages import new, text
from hloopt.proto.problem import Problem
from hloopt.proto.words import number_of, word_of
from hloopt.types import Text

__all__ = [
    "Row",
    "flag",
    "integers",
    "number",
    "numbers_in",
    "of_message",
    "quoted",
    "shape",
    "word",
    "word_text",
]


@dataclass(frozen=True, slots=True)
class Row:
    """One attribute.

    fields  the fields of ``Instruction`` it is made of
    read    the value, or None where the proto has none; raises ``Problem``
    write   puts a value into the proto; raises ``Problem``
    always  whether it is there even when no field is: the default of a proto's field has no bytes
    """

    name: str
    fields: tuple[str, ...]
    read: Callable[[Entry], Any]
    write: Callable[[Target, Any], None]
    always: bool = False


def number(name: str, field: str = "", *, unless: int | None = None) -> Row:
    """An integer, left out where it is ``unless``."""
    field = field or name

    def read(entry: Entry) -> int | None:
        value: int = getattr(entry.proto, field)
        return None if value == unless else value

    def write(target: Target, value: int) -> None:
        setattr(target.proto, field, value)

    return Row(name, (field,), read, write, unless is None)


def flag(name: str, field: str = "") -> Row:
    """``true``, or nothing."""
    field = field or name

    def read(entry: Entry) -> bool | None:
        return True if getattr(entry.proto, field) else None

    def write(target: Target, value: bool) -> None:
        setattr(target.proto, field, bool(value))

    return Row(name, (field,), read, write)


def integers(name: str, field: str = "", *, optional: bool = False) -> Row:
    """``{1,0}``; where ``optional``, an empty list is left out."""
    field = field or name

    def read(entry: Entry) -> tuple[int, ...] | None:
        return tuple(getattr(entry.proto, field)) or (None if optional else ())

    def write(target: Target, value: tuple[int, ...]) -> None:
        getattr(target.proto, field).extend(value)

    return Row(name, (field,), read, write, not optional)


def numbers_in(name: str, kind: str, field: str, inner: str, *, optional: bool = True) -> Row:
    """A list of integers in a message."""

    def read(entry: Entry) -> tuple[int, ...] | None:
        found = tuple(getattr(entry.message(kind, field), inner))
        return found or (None if optional else ())

    def write(target: Target, value: tuple[int, ...]) -> None:
        getattr(target.message(kind, field), inner).extend(value)

    return Row(name, (field,), read, write, not optional)


def word(name: str, field: str, words: Mapping[int, str], *, unless: int | None = None) -> Row:
    """A word for an enum's number, left out where it is ``unless``."""

    def read(entry: Entry) -> str | None:
        value = getattr(entry.proto, field)
        return None if value == unless else word_of(words, value, field)

    def write(target: Target, value: str) -> None:
        setattr(target.proto, field, number_of(words, value))

    return Row(name, (field,), read, write, unless is None)


def word_text(name: str, field: str) -> Row:
    """A word the proto has as text."""

    def read(entry: Entry) -> str | None:
        return text(getattr(entry.proto, field)) or None

    def write(target: Target, value: str) -> None:
        setattr(target.proto, field, value.encode())

    return Row(name, (field,), read, write)


def quoted(name: str, field: str = "", *, unless: str = "") -> Row:
    """A string in quotes, left out where it is empty or ``unless``."""
    field = field or name

    def read(entry: Entry) -> Text | None:
        value = text(getattr(entry.proto, field))
        return None if value in {"", unless} else Text(value)

    def write(target: Target, value: str) -> None:
        setattr(target.proto, field, str(value).encode("utf-8", "surrogateescape"))

    return Row(name, (field,), read, write)


def shape(name: str, field: str = "") -> Row:
    """A shape."""
    field = field or name

    def read(entry: Entry) -> Any:
        data = getattr(entry.proto, field)
        try:
            return entry.reading.shapes.read(data) if data else None
        except Problem as problem:
            raise problem.within(field) from None

    def write(target: Target, value: Any) -> None:
        setattr(target.proto, field, target.writing.shapes.write(value))

    return Row(name, (field,), read, write)


def of_message(
    name: str,
    field: str,
    kind: str,
    read_message: Callable[[Any], Any],
    write_message: Callable[[Any, Any], None],
) -> Row:
    """An attribute that a message of its own holds; equal messages and values are read and made once."""

    def made(value: Any) -> Any:
        message = new(kind)
        write_message(message, value)
        return message

    def taken(data: bytes, warnings: list[str]) -> Any:
        from hloopt.proto.messages import decode

        return read_message(decode(kind, data, warnings)) or _NOTHING

    def read(entry: Entry) -> Any:
        data = getattr(entry.proto, field)
        if not data:
            return None
        try:
            value = entry.reading.once(taken, data)
        except Problem as problem:
            raise problem.within(field) from None
        return None if value is _NOTHING else value

    def write(target: Target, value: Any) -> None:
        setattr(target.proto, field, target.writing.once(made, value))

    return Row(name, (field,), read, write)


_NOTHING = object()
