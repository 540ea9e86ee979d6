"""The parser's tables as plain data, kept between processes: making them takes a second.

They are JSON in the user's cache folder, named after everything they depend on.  JSON, because a cache
must not be able to run code; a file that cannot be written or read costs only the second.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import lark
import platformdirs

__all__ = ["Tables", "load", "path", "save"]

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


def path(grammar: Path, starts: Sequence[str]) -> Path:
    """The file for this grammar, these starts and this version of Lark."""
    digest = blake2b(digest_size=16)
    digest.update(repr((_FORM, lark.__version__, tuple(starts))).encode())
    for file in sorted(grammar.glob("*.lark")):
        digest.update(file.name.encode() + b"\\0" + file.read_bytes() + b"\\0")
    folder = os.environ.get("HLOOPT_CACHE_DIR") or platformdirs.user_cache_dir("hloopt", False)
    return Path(folder) / f"grammar-{digest.hexdigest()}.json"


def load(file: Path) -> Tables | None:
    """The tables in ``file``, or None where there is no such file or it is damaged."""
    try:
        checksum, _, body = file.read_bytes().partition(b"\n")
    except OSError:
        return None
    return Tables(*json.loads(body)) if checksum == _checksum(body) else None


def save(file: Path, tables: Tables) -> None:
    """Write the tables where the folder can be written; a reader never sees half of them."""
    body = json.dumps(tables, separators=(",", ":")).encode()
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(_checksum(body) + b"\n" + body)
            Path(temporary).replace(file)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise


def _checksum(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).hexdigest().encode()
