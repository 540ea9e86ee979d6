"""What is kept of a run that may be stopped at any moment: JSON, a row a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

__all__ = ["digest", "rows"]


def rows(store: Path) -> Iterator[Any]:
    """The rows of a file, none where there is no file."""
    if store.exists():
        for line in store.read_text().splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:  # the run was stopped in the middle of this line
                continue


def digest(paths: list[Path], asked: str = "") -> str:
    """A hash of files' names and contents and of a text."""
    found = blake2b(asked.encode(), digest_size=12)
    for path in paths:
        # The length keeps two files apart from one that holds both.
        content = path.read_bytes()
        found.update(f"{path.name} {len(content)}\n".encode() + content)
    return found.hexdigest()
