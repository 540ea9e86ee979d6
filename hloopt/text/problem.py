"""A mistake found somewhere in a text, before line and column are known."""

from __future__ import annotations

__all__ = ["WHOLE", "Problem"]

# The offset of a mistake that is not at one place of the part: the whole instruction is meant.
WHOLE = -1


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
        if self.offset != WHOLE:
            self.offset += base
        return self

    def at_instruction(self, offset: int, name: str) -> Problem:
        """The same mistake, at the instruction's name when the whole instruction was meant."""
        if self.offset == WHOLE:
            self.offset, self.width = offset, len(name)
        return self
