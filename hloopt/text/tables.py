"""The parser's tables as plain data: a built package has them; in a checkout they are made on first use.

Making them takes a second, so a checkout's are kept between processes: in the user's cache folder, under a name
that follows from everything they depend on.  They are JSON, because a cache must not be able to run code.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from hloopt.cache_folder import is_own, own_folder
from hloopt.errors import HlooptError

__all__ = ["PACKAGED", "Tables", "Terminal", "encoded", "grammar_folder", "load", "load_tables"]

PACKAGED = "tables.json"
"""The file beside the grammar of a built package."""


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
    sequences   expressions of terminals that are split, with a group for each part
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
    sequences: dict[str, str]


def grammar_folder() -> Path:
    """``hloopt/grammar`` of an installed package, or ``grammar`` beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "grammar", package.parent / "grammar"):
        if (folder / "hlo.lark").is_file():
            return folder
    raise HlooptError(f"the grammar of HLO text is missing: no grammar/hlo.lark beside {package}")


def load_tables(folder: Path) -> Tables:
    """The tables of the grammar in ``folder``: those beside it, else those of the cache, else new ones."""
    with suppress(FileNotFoundError):
        return _decoded((folder / PACKAGED).read_bytes())
    name = _file_name(folder)
    found = load(name)
    if found is None:
        from hloopt.text.lalr_build import build

        found = build(folder)
        _save(name, found)
    return found


def encoded(tables: Tables) -> bytes:
    """The content of a file."""
    return json.dumps(tables, separators=(",", ":")).encode()


def _decoded(content: bytes) -> Tables:
    found = Tables(*json.loads(content))
    return found._replace(terminals=[Terminal(*one) for one in found.terminals])


def _file_name(folder: Path) -> str:
    """After the grammar and what makes tables of it."""
    digest = blake2b(digest_size=16)
    for file in (*sorted(folder.glob("*.lark")), Path(__file__).with_name("lalr_build.py")):
        digest.update(b"%b %d " % (file.name.encode(), file.stat().st_size) + file.read_bytes())
    return f"grammar-{digest.hexdigest()}.json"


def load(name: str) -> Tables | None:
    """The tables in a file of the cache; None where there is none, or it is damaged or not this user's."""
    folder = own_folder()
    if folder is None:
        return None
    try:
        with (folder / name).open("rb") as stream:
            return _decoded(stream.read()) if is_own(os.fstat(stream.fileno())) else None
    except (OSError, TypeError, ValueError):
        return None


def _save(name: str, tables: Tables) -> None:
    """For other processes, where the folder can be written; none of them sees half a file."""
    import tempfile  # loads a good deal, for the first process only

    folder = own_folder(make=True)
    if folder is None:
        return
    with suppress(OSError):
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(encoded(tables))
            Path(temporary).replace(folder / name)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
