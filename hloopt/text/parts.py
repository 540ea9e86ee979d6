"""What a broken text consists of, as its outline shows it."""

from __future__ import annotations

import re
from dataclasses import field

from hloopt.dataclass import dataclass
from hloopt.text.grammar import pattern
from hloopt.text.problem import Problem

__all__ = [
    "CUT_OFF",
    "NAME",
    "SKIP",
    "TARGET",
    "ComputationOutline",
    "Outline",
    "Piece",
    "TentativeProblem",
    "left_out",
    "skip",
]

NAME = pattern("NAME").pattern
# A NUL in a comment is reported where the grammar meets it; it hides nothing that follows.
SKIP = f"(?:{pattern('SPACE').pattern})?+".replace(r"\0", "")
TARGET = re.compile(rf"(?:ROOT(?=[ \t\r\n%])[ \t\r\n]*+)?+({NAME})")
CUT_OFF = "the text may have been cut off"


@dataclass(frozen=True, slots=True)
class Piece:
    """What is taken for one instruction and is not an ordinary line; ``unclosed`` is about the bracket or
    quote at ``opened`` that does not end.  ``cut`` is set where the text ends within it.
    """

    start: int
    end: int
    unclosed: Problem | None = None
    opened: int = -1
    cut: bool = False


class TentativeProblem(Problem):
    """A bracket opened at ``start`` of an instruction that seems to end with the body, at ``end``."""

    def __init__(self, opened: int, kind: str, start: int, end: int) -> None:
        super().__init__(opened, f"this {kind!r} is not closed")
        self.start = start
        self.end = end


@dataclass(slots=True)
class ComputationOutline:
    """A computation: where its heading begins and its body, and where that ends (-1: nowhere).

    ``pieces`` are the offsets of ordinary lines, and ``Piece`` for what is none.  ``lost`` means that
    something of it has been left out of the text, ``headless`` that there is no whole heading.
    """

    name: str
    start: int
    name_at: int
    body: int
    pieces: list[int | Piece] = field(default_factory=list)
    close: int = -1
    after: int = -1
    lost: bool = False
    headless: bool = False
    _names: dict[str, int] | None = None

    def names(self, text: str) -> dict[str, int]:
        """Where each instruction is defined, made when it is first read."""
        if self._names is None:
            self._names = {}
            for piece in self.pieces:
                at = piece if isinstance(piece, int) else piece.start
                match = TARGET.match(text, at)
                if match is not None:
                    self._names.setdefault(match[1].lstrip("%"), match.start(1))
        return self._names


@dataclass(slots=True)
class Outline:
    """``front`` is where the header and the tables end; ``problems`` what is wrong with the whole.
    ``lost`` means that computations have been left out of the text.
    """

    front: int = 0
    lost: bool = False
    parts: list[ComputationOutline] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


_skip = re.compile(SKIP)


def skip(text: str, at: int) -> int:
    """The next offset that is neither blank nor comment."""
    match = _skip.match(text, at)
    assert match is not None, "the pattern matches the empty text"
    return match.end()


def left_out(at: int) -> Problem:
    """A text that was abridged when it was quoted."""
    return Problem(
        at, "a part of the text is left out here", width=3, notes=("the whole text is needed",)
    )
