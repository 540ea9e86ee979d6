"""Which known words are spelt most like one that is not known."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["nearest"]


def nearest(word: str, known: Iterable[str], count: int = 1, cutoff: float = 0.6) -> list[str]:
    """The ``count`` known words most like ``word``, the best first; none below ``cutoff``."""
    from difflib import get_close_matches  # slow to load, and most words are known

    return get_close_matches(word, list(known), count, cutoff)
