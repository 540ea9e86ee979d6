"""The text of the user's program around the lines that instructions come from, out of one folder.

A module names any file it likes, so only files below the folder that the user gave are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path, PureWindowsPath
from typing import Final

from hloopt.errors import UsageError

__all__ = ["source_texts"]

_AROUND: Final = 2
"""Lines shown before and after one that is named."""
_MOST_BYTES: Final = 4 << 20
"""Of a file: longer ones are not programs written by people."""
_LONGEST: Final = 400
"""Characters shown of a line."""


def source_texts(lines: Iterable[str], folder: Path) -> dict[str, dict[int, str]]:
    """The texts of lines by file and number, for each ``file:line`` and the two lines before and after it.

    A file is looked for under ``folder`` by its own path, and, as a dump may come from another machine, by
    the longest end of its path that exists there; an end of one part counts only behind the folder's name.
    Files that are missing, are not text, or have fewer lines are left out.

    Raises ``UsageError`` where ``folder`` is not a directory.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a directory: --sources takes the program's folder")
    root = folder.resolve()
    wanted: dict[str, set[int]] = defaultdict(set)
    for line in lines:
        file, _, number = line.rpartition(":")
        if number.isascii() and number.isdigit() and len(number) < 9:
            wanted[file].add(int(number))
    found = {}
    for file, numbers in wanted.items():
        texts = _lines_of(file, root)
        if numbers and texts and min(numbers) >= 1 and max(numbers) <= len(texts):
            found[file] = {
                at: texts[at - 1][:_LONGEST]
                for number in sorted(numbers)
                for at in range(max(1, number - _AROUND), min(len(texts), number + _AROUND) + 1)
            }
    return found


def _lines_of(file: str, root: Path) -> list[str]:
    """The lines of the file; none where it is not below ``root``."""
    for path in _candidates(file, root):
        try:
            real = path.resolve()
            if real.is_relative_to(root) and real.is_file() and real.stat().st_size <= _MOST_BYTES:
                return real.read_text(encoding="utf-8").splitlines()
        # A name that the system refuses, bytes that are not text, links in a circle.
        except (OSError, ValueError, RuntimeError):
            continue
    return []


def _candidates(file: str, root: Path) -> Iterator[Path]:
    windows = "\\" in file
    path = Path(PureWindowsPath(file).as_posix()) if windows else Path(file)
    yield root / path
    parts = path.parts[1:] if path.is_absolute() or windows else path.parts
    for at in range(len(parts) - 1):
        yield root.joinpath(*parts[at:])
        yield root.parent.joinpath(*parts[at:])
