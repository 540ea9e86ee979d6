"""A mistake found somewhere in a text, before line and column are known."""

from __future__ import annotations

__all__ = ["Problem"]


class Problem(Exception):  # noqa: N818 - not an error yet: the parser gives it a place in the source
    """``offset`` counts characters from the start of the text being read.

    Readers of a part of a text raise it relative to that part; whoever handed the part out adds where
    it started (``moved``).
    """

    def __init__(
        self, offset: int, message: str, *, width: int = 1, notes: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.offset = offset
        self.message = message
        self.width = width
        self.notes = notes

    def moved(self, base: int) -> Problem:
        """The same mistake, with the offset counted from ``base`` characters earlier."""
        self.offset += base
        return self
