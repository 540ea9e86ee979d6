"""A mistake found somewhere in a text, before line and column are known, and what may have been meant."""

from __future__ import annotations

from collections.abc import Iterable

from hloopt.spelling import nearest

__all__ = ["Expected", "Problem", "Undefined", "did_you_mean", "shortened", "type_meant"]

_LONGEST = 500
_MOST_CANDIDATES = 1000
_TYPES_ELSEWHERE = {
    "float": "f32",
    "double": "f64",
    "half": "f16",
    "bfloat16": "bf16",
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    "complex64": "c64",
    "complex128": "c128",
    "int": "s32",
    "uint": "u32",
    "long": "s64",
    "bool": "pred",
    "boolean": "pred",
    "i1": "pred",
    **{
        f"{word}{bits}": f"s{bits}" for word in ("i", "int", "si") for bits in (2, 4, 8, 16, 32, 64)
    },
    **{f"{word}{bits}": f"u{bits}" for word in ("ui", "uint") for bits in (2, 4, 8, 16, 32, 64)},
}


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


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or nothing where no known word is close."""
    word = str(word)
    candidates = [other for other in known if other != word and abs(len(other) - len(word)) <= 3]
    if len(candidates) > _MOST_CANDIDATES:
        candidates = [other for other in candidates if other[:2] == word[:2]][:_MOST_CANDIDATES]
    close = nearest(word, candidates)
    return f"; did you mean {close[0]!r}?" if close else ""


def type_meant(name: str, known: Iterable[str]) -> str:
    """As ``did_you_mean``, for element types; includes the names that others give them."""
    meant = _TYPES_ELSEWHERE.get(name)
    return f"; did you mean {meant!r}?" if meant else did_you_mean(name, known)
