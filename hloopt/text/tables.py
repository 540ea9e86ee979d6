"""The parser's tables as plain data, kept between processes: making them takes a second.

They are JSON, because a cache must not be able to run code, and named after everything they depend on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import lark

from hloopt.text import cache

__all__ = ["Tables", "file_name", "load", "save"]

# Part of the file's name: tables of another form go into another file.
_FORM = 2


class Tables(NamedTuple):
    """An LALR automaton and its lexers.  Numbers are places in the lists beside them.

    terminals   name, ``"str"`` or ``"re"``, value, flags, priority, in the grammar's order
    symbols     name, whether it is a terminal, whether it is left out of what a rule is given
    rules       symbol of the origin, symbols of the expansion, alias, ``keep_all_tokens``, ``expand1``
    names       symbols as ``rows`` name them
    rows        for each state: a name, what it leads to, the next name ...; 2 n shifts to state n,
                2 n + 1 reduces by rule n
    starts      first state of each rule that is read on its own; ``ends`` is its last one
    lexers      the terminals of each in the order in which they are tried, and pairs of a terminal
                and those that are meant in its place where the whole token is one of theirs
    lexer_of    the lexer of each state; that of no state, with all terminals, is the last
    newlines    names of the terminals that may contain a line end
    ignored     names of the terminals that are passed over
    """

    terminals: list[tuple[str, str, str, list[str], int]]
    symbols: list[tuple[str, bool, bool]]
    rules: list[tuple[int, list[int], str | None, bool, bool]]
    names: list[str]
    rows: list[list[int]]
    starts: dict[str, int]
    ends: dict[str, int]
    lexers: list[tuple[list[int], list[tuple[int, list[int]]]]]
    lexer_of: list[int]
    newlines: list[str]
    ignored: list[str]


def file_name(grammar: Path, starts: Sequence[str]) -> str:
    """The file for this grammar, these starts and this version of Lark."""
    parts = [repr((_FORM, lark.__version__, tuple(starts))).encode()]
    for file in sorted(grammar.glob("*.lark")):
        parts += [file.name.encode(), file.read_bytes()]
    return f"grammar-{cache.digest(*parts)}.json"


def load(name: str) -> Tables | None:
    """The tables in a file of the cache, or None where there is no such file or it is damaged."""
    body = cache.read(name)
    return None if body is None else Tables(*json.loads(body))


def save(name: str, tables: Tables) -> None:
    """Keep the tables for other processes."""
    cache.write(name, json.dumps(tables, separators=(",", ":")).encode())
