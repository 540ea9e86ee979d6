"""A mistake found somewhere in a text, before line and column are known."""

from __future__ import annotations

__all__ = ["Expected", "Problem", "Undefined", "shortened"]

_LONGEST = 500


def shortened(text: str, longest: int = 24) -> str:
    """A text, or its beginning where it is longer."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


class Problem(Exception):  # noqa: N818 - not an error yet: the parser gives it a place in the source
    """``offset`` counts characters from the start of the text being read, ``width`` those that are wrong.

    Readers of a part of a text raise it relative to that part; where the part begins is added (``moved``).
    """

    def __init__(
        self, offset: int, message: str, width: int | str = 1, *, notes: tuple[str, ...] = ()
    ) -> None:
        # A name or a number in it may be megabytes long.
        message = shortened(message, _LONGEST)
        super().__init__(message)
        self.offset = offset
        self.message = message
        self.width = len(width) if isinstance(width, str) else width
        self.notes = notes

    def moved(self, base: int) -> Problem:
        """The same mistake, with the offset counted from ``base`` characters earlier."""
        self.offset += base
        return self


class Expected(Problem):
    """``words`` are what could have stood in the place of what was ``found``."""

    def __init__(self, offset: int, words: str, found: str, width: int = 1) -> None:
        super().__init__(offset, f"expected {words}, found {found}", width)
        self.words = words


class Undefined(Problem):
    """A name that nothing before it has; ``where`` is the computation the name was looked up in, None
    for the name of a computation.
    """

    def __init__(self, offset: int, name: str, where: str | None, width: int | str) -> None:
        what = "computation" if where is None else "instruction"
        super().__init__(offset, f"no {what} {name!r} before this one", width)
        self.name = name
        self.where = where
