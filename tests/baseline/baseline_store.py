"""Where baselines are kept: a file of rows for each commit, and all texts, compressed, once by their digests."""

from __future__ import annotations

import json
import sqlite3
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from tests.corpus.store import rows

__all__ = ["Key", "Record", "Store"]

Key: TypeAlias = tuple[str, str]
"""The name of a subject and a kind."""
Row: TypeAlias = dict[str, Any]


class Record:
    """What a state of the product gives: rows ``item, kind, part, state, found, cpu``; the last of a key counts.

    ``found`` has the value of each word of the kind; ``state`` is a hash of all that it depends on.  ``header`` says
    where it was made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: Row = {}
        self.rows: dict[Key, Row] = {}
        self._lock = threading.Lock()
        for row in rows(path):
            if "item" in row:
                self.rows[row["item"], row["kind"]] = row
            else:
                self.header = row

    def begin(self, header: Row) -> None:
        """Say where what follows is made."""
        if header != self.header:
            self.header = header
            self._write(header)

    def add(self, row: Row) -> None:
        """Keep a row, at once."""
        with self._lock:
            self.rows[row["item"], row["kind"]] = row
            self._write(row)

    def _write(self, row: Row) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as out:
            out.write(json.dumps(row, separators=(",", ":")) + "\n")


class Store:
    """A folder of records and their texts; may be used by several threads and processes at once."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._lock = threading.Lock()
        self._texts = sqlite3.connect(folder / "texts.sqlite", 60.0, check_same_thread=False)
        with self._lock, self._texts:
            self._texts.execute(
                "CREATE TABLE IF NOT EXISTS texts (digest TEXT PRIMARY KEY, body BLOB)"
            )
            self._texts.execute(
                "CREATE TABLE IF NOT EXISTS drawn (name TEXT PRIMARY KEY, digest TEXT)"
            )

    def record(self, name: str) -> Record:
        """The record of a state by its name, empty where there is none."""
        return Record(self.folder / f"{name}.jsonl")

    def named(self, beginning: str) -> str:
        """The one record that begins so; raises ``ValueError`` where there is none, or several."""
        found = [name for name in self.names() if name.startswith(beginning)]
        exact = [name for name in found if name == beginning]
        if len(exact or found) != 1:
            known = ", ".join(self.names()) or "none"
            what = "several records begin" if found else "no record begins"
            raise ValueError(f"{what} with {beginning!r}; there are: {known}")
        return (exact or found)[0]

    def names(self) -> list[str]:
        """Of all records."""
        return sorted(path.stem for path in self.folder.glob("*.jsonl"))

    def keep(self, texts: Mapping[str, str]) -> None:
        """Texts by their digests; those that are there are not written again."""
        bodies = [(name, _packed(text)) for name, text in texts.items() if not self._has(name)]
        with self._lock, self._texts:
            self._texts.executemany("INSERT OR IGNORE INTO texts VALUES (?, ?)", bodies)

    def text(self, digest: str) -> str:
        """The text of a digest; raises ``KeyError``."""
        row = self._one("SELECT body FROM texts WHERE digest = ?", digest)
        if row is None:
            raise KeyError(digest)
        return zlib.decompress(row[0]).decode("utf-8", "surrogatepass")

    def drawn(self, name: str) -> str | None:
        """The text that was drawn under a name once: generators may change, what is compared may not."""
        row = self._one("SELECT digest FROM drawn WHERE name = ?", name)
        return None if row is None else self.text(row[0])

    def draw(self, name: str, digest: str, text: str) -> None:
        """Keep a drawn text."""
        self.keep({digest: text})
        with self._lock, self._texts:
            self._texts.execute("INSERT OR IGNORE INTO drawn VALUES (?, ?)", (name, digest))

    def close(self) -> None:
        """Close the file of texts."""
        self._texts.close()

    def _has(self, digest: str) -> bool:
        return self._one("SELECT 1 FROM texts WHERE digest = ?", digest) is not None

    def _one(self, query: str, name: str) -> Any:
        with self._lock:
            return self._texts.execute(query, (name,)).fetchone()


def _packed(text: str) -> bytes:
    return zlib.compress(text.encode("utf-8", "surrogatepass"), 6)
