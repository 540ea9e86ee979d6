"""Source texts and places in them.

A ``Source`` has its name and text; a place is a byte-free character offset.  Lines are counted
only on demand, so that keeping an offset per instruction costs one integer.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from pathlib import Path
from typing import TypeVar
from unicodedata import combining, east_asian_width

from hloopt.errors import SourceError, UsageError
from hloopt.visible_text import blanked

__all__ = ["STDIN", "Source", "columns", "read_source"]

STDIN = "<stdin>"
"""What standard input is called in messages."""

_MAX_EXCERPT = 160
_Error = TypeVar("_Error", bound=SourceError)


def columns(text: str) -> int:
    """How many columns of a terminal a text takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    wide = sum(east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(combining(character) != 0 for character in text)


def read_source(path: str | Path) -> Source:
    """The text of a file.  Raises ``UsageError`` where it cannot be read, or is not UTF-8."""
    try:
        return Source(Path(path).read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start} is not UTF-8") from error


class Source:
    """A text with a name, for messages of the form ``name:line:col``."""

    __slots__ = ("__dict__", "name", "text")

    def __init__(self, text: str, name: str = "<text>") -> None:
        self.text = text
        self.name = name

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        find = self.text.find
        position = find("\n")
        while position >= 0:
            starts.append(position + 1)
            position = find("\n", position + 1)
        return starts

    def line_column(self, offset: int) -> tuple[int, int]:
        """The 1-based line and column of a character offset."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def offset(self, line: int, column: int) -> int:
        """The character offset of a 1-based line and column, within the text whatever these are."""
        start = self._line_starts[min(max(line, 1), len(self._line_starts)) - 1]
        return min(start + max(column, 1) - 1, len(self.text))

    def line(self, offset: int) -> int:
        """The 1-based line of a character offset."""
        return self.line_column(offset)[0]

    def line_text(self, line: int) -> str:
        """The text of a 1-based line, without its line end."""
        start = self._line_starts[line - 1]
        end = self.text.find("\n", start)
        return self.text[start : end if end >= 0 else len(self.text)].rstrip("\r")

    def excerpt(self, offset: int, width: int = 1) -> str:
        """The line around ``offset`` and a caret line below it; long lines are cut on both sides."""
        line, column = self.line_column(offset)
        text = blanked(self.line_text(line))
        start = 0
        if len(text) > _MAX_EXCERPT:
            start = max(0, min(column - 1 - _MAX_EXCERPT // 2, len(text) - _MAX_EXCERPT))
        shown = text[start : start + _MAX_EXCERPT]
        left = "…" if start else ""
        right = "…" if start + _MAX_EXCERPT < len(text) else ""
        at = column - 1 - start
        carets = "^" * max(1, min(width, len(shown) - at))
        return f"{left}{shown}{right}\n{' ' * (columns(shown[:at]) + len(left))}{carets}"

    def error(
        self,
        kind: type[_Error],
        offset: int,
        message: str,
        *,
        width: int = 1,
        notes: tuple[str, ...] = (),
    ) -> _Error:
        """An error of class ``kind`` at ``offset``, with line, column, excerpt and caret."""
        offset = max(0, min(offset, len(self.text)))
        line, column = self.line_column(offset)
        return kind(
            message,
            name=self.name,
            line=line,
            column=column,
            excerpt=self.excerpt(offset, width),
            width=width,
            notes=notes,
        )
