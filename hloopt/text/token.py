"""A token: its text, and where it stands."""

from __future__ import annotations

from typing import Self

__all__ = ["Token"]


class Token(str):
    """The text between two offsets; ``type`` is the name of its terminal."""

    __slots__ = ("end_pos", "start_pos", "type")

    type: str
    start_pos: int
    end_pos: int

    def __new__(cls, kind: str, text: str, start_pos: int, end_pos: int) -> Self:
        """The text of a terminal, and its place."""
        made = super().__new__(cls, text)
        made.type = kind
        made.start_pos = start_pos
        made.end_pos = end_pos
        return made
