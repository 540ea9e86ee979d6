"""Words in messages: known ones most like one that is not known, and the first of many."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["first_of", "missing", "nearest"]


def nearest(word: str, known: Iterable[str], count: int = 1, cutoff: float = 0.6) -> list[str]:
    """The ``count`` known words most like ``word``, the best first; none below ``cutoff``."""
    from difflib import get_close_matches  # slow to load, and most words are known

    return get_close_matches(word, list(known), count, cutoff)


def first_of(names: Iterable[str], most: int = 3) -> str:
    """The first ``most`` names, and how many there are more."""
    every = [*names]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def missing(name: str, known: Iterable[str], what: str) -> str:
    """``module m has no instruction 'fusoin'; did you mean 'fusion'?``"""
    close = nearest(name.removeprefix("%"), known)
    return f"{what} '{name}'" + (f"; did you mean '{close[0]}'?" if close else "")
