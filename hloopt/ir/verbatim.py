"""Attribute values that are kept as text: the same value written in one way.

JSON and whatever this version does not know are made of words, strings and brackets; blanks and comments
between them mean nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache

from hloopt.types import Domain, FrontendAttributes, Sharding, Verbatim

__all__ = ["one_spelling", "sorted_entries", "without_metadata"]

_TOKEN = re.compile(
    r"""(?:\s+|/\*.*?\*/|//[^\n]*)+
      | ("(?:[^"\\]|\\.)*+" | '(?:[^'\\]|\\.)*+' | [^\s"'/{}()\[\],=:<>]++ | .)""",
    re.VERBOSE | re.DOTALL,
)
_CACHED = 10_000


@lru_cache(maxsize=_CACHED)
def one_spelling(text: str) -> str:
    """The text without comments, with a blank only between a word and what came before it."""
    parts: list[str] = []
    before = ""
    for piece in _TOKEN.findall(text):
        if piece and before and before not in "{([,=:<>" and piece not in "{([})],=:<>":
            parts.append(" ")
        parts.append(piece)
        before = piece or before
    return "".join(parts)


def without_metadata(value: Verbatim) -> str:
    """A sharding or a domain without metadata, in one spelling; the text as it is where there is none."""
    record = value.value
    if "metadata" not in value.text or not isinstance(record, Sharding | Domain):
        return value.text
    return one_spelling(str(record.without_metadata()))


def sorted_entries(value: Verbatim) -> str:
    """``{b="2", a="1"}`` as ``{a="1",b="2"}``, in one spelling."""
    record = value.value
    if not isinstance(record, FrontendAttributes):
        return one_spelling(value.text)
    entries = (one_spelling(f"{name}={text}") for name, text in record.written)
    return f"{{{','.join(sorted(entries))}}}"
