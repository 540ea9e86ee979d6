"""Reading JSON with errors that say where: a path from the outside in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from hloopt.errors import UsageError

__all__ = ["JsonReader"]

_Read = TypeVar("_Read")


class JsonReader:
    """Base of readers: ``what`` begins the errors, which are ``UsageError``."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._path: list[str] = []

    def choice(self, value: dict[str, Any], name: str, known: tuple[str, ...]) -> str:
        """A text that is one of those known."""
        found = value.get(name)
        if found not in known:
            raise self.error(f"'{name}' is {found!r}, not one of {', '.join(known)}")
        return str(found)

    def field(self, value: dict[str, Any], name: str, kind: type[_Read], what: str) -> _Read:
        """What an object has under a name; ``what`` says what is expected there."""
        with self.at(name):
            return self.typed(value.get(name), kind, what)

    def each(
        self, value: dict[str, Any], name: str, read: Callable[[Any], _Read]
    ) -> Iterator[_Read]:
        """The entries of a list, each read."""
        with self.at(name):
            for number, entry in enumerate(self.typed(value.get(name), list, "a list")):
                with self.at(f"[{number}]"):
                    yield read(entry)

    def typed(self, value: Any, kind: type[_Read], what: str) -> _Read:
        """The value, which must be of a kind."""
        # JSON's true is no number, though Python's is.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.error(f"expected {what}")
        return value

    @contextmanager
    def at(self, part: str) -> Iterator[None]:
        """Errors inside name this part; it is not left when one is on its way."""
        self._path.append(part)
        yield
        self._path.pop()

    def error(self, message: str) -> UsageError:
        """An error to raise, with the path."""
        place = "".join(part if part.startswith("[") else f".{part}" for part in self._path)
        return UsageError(f"{self._what}{place}: {message}")

    def numbers(self, value: dict[str, Any], name: str, count: int | None) -> tuple[int, ...]:
        """A list of numbers, ``count`` of them where that is given."""
        found = self.field(value, name, list, "a list of numbers")
        if not all(isinstance(part, int) for part in found) or (count or len(found)) != len(found):
            raise self.error(f"'{name}' is not {count or 'a list of'} numbers")
        return tuple(found)
