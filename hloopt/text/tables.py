"""The parser's tables as plain data, kept between processes: making them takes a second.

They are JSON, because a cache must not be able to run code, and named after everything they depend on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hloopt.text import cache

__all__ = ["Tables", "Terminal", "file_name", "load", "save"]

# Part of the file's name: tables of another form go into another file.
_FORM = 3


class Terminal(NamedTuple):
    """A token's name and regular expression; ``fixed`` is the text where it is always the same."""

    name: str
    expression: str
    fixed: str | None


class Tables(NamedTuple):
    """An LALR automaton and its lexers.  Numbers are places in the lists beside them.

    terminals   in the grammar's order
    names       of rules and terminals, as ``rules`` and ``rows`` number them
    rules       how many parts one has, name of the origin, name of what makes its value, which of the parts
                that is given (minus n - 1 for the parts of part n), None for all, and whether a single one
                is taken as it is
    rows        for each state: a name, what it leads to, the next name ...; 2 n shifts to state n,
                2 n + 1 reduces by rule n
    starts      first state of each rule that is read on its own; ``ends`` is its last one
    lexers      the terminals of each in the order in which they are tried, and pairs of a terminal
                and those that are meant in its place where the whole token is one of theirs
    lexer_of    the lexer of each state
    ignored     the terminals that are passed over
    """

    terminals: list[Terminal]
    names: list[str]
    rules: list[tuple[int, int, str, list[int] | None, bool]]
    rows: list[list[int]]
    starts: dict[str, int]
    ends: dict[str, int]
    lexers: list[tuple[list[int], list[tuple[int, list[int]]]]]
    lexer_of: list[int]
    ignored: list[str]


def file_name(grammar: Path, starts: Sequence[str]) -> str:
    """The file for this grammar and these starts."""
    parts = [repr((_FORM, tuple(starts))).encode()]
    for file in sorted(grammar.glob("*.lark")):
        parts += [file.name.encode(), file.read_bytes()]
    return f"grammar-{cache.digest(*parts)}.json"


def load(name: str) -> Tables | None:
    """The tables in a file of the cache, or None where there is no such file or it is damaged."""
    body = cache.read(name)
    if body is None:
        return None
    found = Tables(*json.loads(body))
    return found._replace(terminals=[Terminal(*one) for one in found.terminals])


def save(name: str, tables: Tables) -> None:
    """Keep the tables for other processes."""
    cache.write(name, json.dumps(tables, separators=(",", ":")).encode())
