"""The tables of a study file: what their keys hold, with the place of whatever makes no sense."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeVar

from hloopt.errors import FileError, UsageError
from hloopt.rewrite.spec import did_you_mean
from hloopt.rewrite.toml_places import KeyPath, KeyPlaces

__all__ = ["Table"]

Found = TypeVar("Found")


class Table:
    """One table, which stands at ``at`` in the text; paths of methods are relative to it.

    ``what`` is what it is called in messages.  Raises ``FileError`` for what is not a table, and for a key that
    is none of ``keys``.
    """

    def __init__(
        self, value: Any, places: KeyPlaces, at: KeyPath, what: str, keys: Collection[str]
    ) -> None:
        self.places, self.at = places, at
        if not isinstance(value, dict):
            raise self.value_error(f"{what} is a table")
        self.value: dict[str, Any] = value
        for key in value:
            if key not in keys:
                raise self.key_error(f"{what} has no '{key}'{did_you_mean(key, keys)}", key)

    def __contains__(self, key: str) -> bool:
        return key in self.value

    def get(self, key: str) -> Any:
        """The value of a key, None where there is none."""
        return self.value.get(key)

    def key_error(self, message: str, *path: str | int) -> FileError:
        """An error at a key, without one at the table."""
        return self.places.key_error((*self.at, *path), message)

    def value_error(self, message: str, *path: str | int) -> FileError:
        """An error at a value."""
        return self.places.value_error((*self.at, *path), message)

    def unknown(self, what: str, name: object, known: Sequence[str], *path: str | int) -> FileError:
        """An error at an unknown name."""
        hint = did_you_mean(str(name), known)
        return self.value_error(f"no {what} is called '{name}'{hint}", *path)

    def text(self, key: str) -> str:
        """The text of a key, empty where there is none."""
        value = self.value.get(key, "")
        if not isinstance(value, str):
            raise self.value_error(f"'{key}' is a text", key)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """The texts of a key, whose value is one of them or a list."""
        value = self.value.get(key, [])
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list):
            raise self.value_error(f"'{key}' is a text or a list of texts", key)
        for number, one in enumerate(found):
            if not isinstance(one, str):
                raise self.value_error(f"'{key}' holds texts", key, number)
        return tuple(found)

    def tables(self, key: str, what: str, keys: Collection[str]) -> Iterator[Table]:
        """The tables of an array of tables."""
        found = self.value.get(key, [])
        if not isinstance(found, list):
            raise self.value_error(f"write [[{key}]]: there may be several", key)
        for number, entry in enumerate(found):
            yield Table(entry, self.places, (*self.at, key, number), what, keys)

    def placed(self, step: Callable[[], Found], *path: str | int) -> Found:
        """What ``step`` gives; its ``UsageError`` becomes a ``FileError`` at the value of a path."""
        try:
            return step()
        except FileError:
            raise
        except UsageError as error:
            raise self.value_error(error.message.removeprefix("--kernel: "), *path) from error
