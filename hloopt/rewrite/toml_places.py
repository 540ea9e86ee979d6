"""The offsets of keys and values in a TOML text: ``tomllib`` gives the values, not their places.

The text is one that ``tomllib`` has read: what is scanned here is known to be valid.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.errors import FileError
from hloopt.source import Source
from hloopt.toml_text import parse_toml

__all__ = ["KeyPath", "KeyPlace", "KeyPlaces", "read_table"]

KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys and, in lists, numbers: ``("strategy", 1, "passes", 0)``."""

_BLANK = re.compile(r"[ \t]*+(?:#[^\n]*+)?+")
_BLANKS = re.compile(r"(?:[ \t\r\n]++|#[^\n]*+)*+")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"\d{4}-\d\d-\d\d \d\d:[^\s,\]}#]*|[^\s,\]}#]+")


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """Offset and width of a key (of a table: its header) and of its value."""

    key: tuple[int, int]
    value: tuple[int, int]


class KeyPlaces:
    """The places of one text by their paths."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: dict[KeyPath, KeyPlace] = {}
        self._at = 0
        self._lists: dict[KeyPath, int] = {}
        self._document()

    def key_error(self, path: KeyPath, message: str) -> FileError:
        """An error at a key, or at the nearest thing around it that stands in the text."""
        offset, width = self._nearest(path).key
        return self.source.error(FileError, offset, message, width=width)

    def value_error(self, path: KeyPath, message: str) -> FileError:
        """An error at a value."""
        place = self._nearest(path)
        offset, width = place.value if path in self.found else place.key
        return self.source.error(FileError, offset, message, width=width)

    def _nearest(self, path: KeyPath) -> KeyPlace:
        while path and path not in self.found:
            path = path[:-1]
        return self.found.get(path, KeyPlace((0, 1), (0, 1)))

    @property
    def _text(self) -> str:
        return self.source.text

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        assert match is not None, "blanks may be none"
        self._at = match.end()

    def _document(self) -> None:
        table: KeyPath = ()
        self._skip(_BLANKS)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANKS)

    def _header(self) -> KeyPath:
        is_list = self._text.startswith("[[", self._at)
        self._at += 2 if is_list else 1
        self._skip(_BLANK)
        start = self._at
        keys = self._keys()
        width = self._at - start
        path: KeyPath = ()
        for key in keys[:-1]:
            path = self._entered((*path, key))
        path = (*path, keys[-1])
        if is_list:
            self.found.setdefault(path, KeyPlace((start, width), (start, width)))
            self._lists[path] = self._lists.get(path, -1) + 1
            path = (*path, self._lists[path])
        self.found[path] = KeyPlace((start, width), (start, width))
        self._skip(_BLANK)
        self._at += 2 if is_list else 1
        return path

    def _entered(self, path: KeyPath) -> KeyPath:
        return (*path, self._lists[path]) if path in self._lists else path

    def _keys(self) -> list[str]:
        """A dotted key; the end of it is where reading goes on."""
        keys: list[str] = []
        while True:
            match = _BARE.match(self._text, self._at) or _STRING.match(self._text, self._at)
            assert match is not None, "a key is bare or quoted"
            quoted = match[0][0] in "\"'"
            keys.append(tomllib.loads(f"k = {match[0]}")["k"] if quoted else match[0])
            self._at = end = match.end()
            self._skip(_BLANK)
            if not self._text.startswith(".", self._at):
                self._at = end
                return keys
            self._at += 1
            self._skip(_BLANK)

    def _pair(self, table: KeyPath) -> None:
        start = self._at
        path = (*table, *self._keys())
        key = (start, self._at - start)
        self._skip(_BLANK)
        self._at += 1
        self._skip(_BLANK)
        value = self._value(path)
        self.found[path] = KeyPlace(key, value)

    def _value(self, path: KeyPath) -> tuple[int, int]:
        start = self._at
        opening = self._text[start]
        if opening in "[{":
            self._at += 1
            closing, number = {"[": "]", "{": "}"}[opening], 0
            self._skip(_BLANKS)
            while self._text[self._at] != closing:
                if opening == "{":
                    self._pair(path)
                else:
                    inner = (*path, number)
                    place = self._value(inner)
                    self.found[inner] = KeyPlace(place, place)
                    number += 1
                self._skip(_BLANKS)
                if self._text[self._at] == ",":
                    self._at += 1
                    self._skip(_BLANKS)
            self._at += 1
            return start, 1
        match = (_STRING if opening in "\"'" else _SCALAR).match(self._text, start)
        assert match is not None, "a value is there"
        self._at = match.end()
        return start, match.end() - start


def read_table(source: Source) -> tuple[dict[str, Any], KeyPlaces]:
    """What a TOML text says, and where.  Raises ``FileError`` at the place of what is not TOML."""
    return parse_toml(source), KeyPlaces(source)
