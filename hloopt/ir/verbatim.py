"""Attribute values that are kept as text: the same value written in one way.

Sharding, frontend attributes, JSON and whatever this version does not know are made of words, strings and
brackets; blanks and comments between them mean nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["one_spelling", "sorted_entries", "without_metadata"]

_TOKEN = re.compile(
    r"""(?P<gap>\s+|/\*.*?\*/|//[^\n]*)
      | (?P<word>"(?:[^"\\]|\\.)*+" | '(?:[^'\\]|\\.)*+' | [^\s"'/{}()\[\],=:<>]++ | ["'/])
      | (?P<opening>[{(\[])
      | (?P<closing>[})\]])
      | (?P<other>[,=:<>])""",
    re.VERBOSE | re.DOTALL,
)
_CACHED = 10_000


@lru_cache(maxsize=_CACHED)
def one_spelling(text: str) -> str:
    """The text without comments, with a blank only between a word and what came before it."""
    return _joined([token for token, _ in _tokens(text)])


@lru_cache(maxsize=_CACHED)
def without_metadata(text: str) -> str:
    """A sharding without the ``metadata={...}`` in it; the text as it is where there is none."""
    if "metadata" not in text:
        return text
    tokens = [token for token, _ in _tokens(text)]
    kept: list[str] = []
    index = 0
    while index < len(tokens):
        if tokens[index : index + 3] == ["metadata", "=", "{"]:
            index = _after_group(tokens, index + 2)
            if kept and kept[-1] == ",":
                kept.pop()
            continue
        kept.append(tokens[index])
        index += 1
    return _joined(kept)


@lru_cache(maxsize=_CACHED)
def sorted_entries(text: str) -> str:
    """``{b="2", a="1"}`` as ``{a="1",b="2"}``, in one spelling."""
    entries: list[list[str]] = [[]]
    depth = 0
    tokens = [token for token, _ in _tokens(text)]
    for piece, kind in list(_tokens(text))[1:-1]:
        depth += (kind == "opening") - (kind == "closing")
        if piece == "," and depth == 0:
            entries.append([])
        else:
            entries[-1].append(piece)
    inner = ",".join(sorted(_joined(entry) for entry in entries if entry))
    return f"{tokens[0]}{inner}{tokens[-1]}"


def _tokens(text: str) -> list[tuple[str, str]]:
    return [
        (match[0], match.lastgroup or "")
        for match in _TOKEN.finditer(text)
        if match.lastgroup != "gap"
    ]


def _joined(tokens: list[str]) -> str:
    parts: list[str] = []
    before = ""
    for piece in tokens:
        if before and before not in "{([,=:<>" and piece not in "{([})],=:<>":
            parts.append(" ")
        parts.append(piece)
        before = piece
    return "".join(parts)


def _after_group(tokens: list[str], start: int) -> int:
    """The place behind a group in braces; in a value that is not understood others need not match."""
    depth = 0
    for index in range(start, len(tokens)):
        depth += (tokens[index] == "{") - (tokens[index] == "}")
        if depth == 0:
            return index + 1
    return len(tokens)
