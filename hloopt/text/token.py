"""A token: its text, and where it stands."""

from __future__ import annotations

from typing import Self

__all__ = ["Token"]


class Token(str):
    """The text between two offsets; ``type`` is the name of its terminal."""

    __slots__ = ("begin", "end", "type")

    type: str
    begin: int
    end: int

    def __new__(cls, kind: str, text: str, begin: int, end: int) -> Self:
        """The text of a terminal, and its place."""
        made = super().__new__(cls, text)
        made.type = kind
        made.begin = begin
        made.end = end
        return made
