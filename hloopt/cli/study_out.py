"""The output of a study: optimised modules and lock files in a folder, the page."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.driver.writing import is_folder, write_text
from hloopt.errors import UsageError

if TYPE_CHECKING:
    from hloopt.study.optimised import Optimised

__all__ = ["AllNotes", "Folder", "Keep", "Noted", "Notes", "check_folder", "check_page"]

Noted: TypeAlias = tuple[Sequence[str], str, str]
"""The parts of a file's name, its end, and its text."""

_ODD = re.compile(r"[^\w.+-]+")


class Notes:
    """What optimised modules and their lock files are, for ``--out``; this one notes nothing."""

    def module(self, module: str, strategy: str, target: str | None, better: Optimised) -> None:
        """Note a module that was optimised for a target, None for what passes decide for by themselves."""

    def kernels(self, module: str, strategy: str, device: str, lock: str) -> None:
        """Note which kernels ran on a device."""

    def taken(self) -> list[Noted]:
        """What was noted since the last call: the parts of a file's name, its end, and its text."""
        return []


@dataclass
class AllNotes(Notes):
    """Notes all, as JSON values."""

    _found: list[Noted] = field(default_factory=list)

    def module(self, module: str, strategy: str, target: str | None, better: Optimised) -> None:
        parts = (module, strategy, *([target] if target else []))
        self._found.append((parts, ".hlo", better.module.to_text()))
        if better.lock:
            self._found.append((parts, ".lock.toml", better.lock))

    def kernels(self, module: str, strategy: str, device: str, lock: str) -> None:
        self._found.append(((module, strategy, device), ".kernels.toml", lock))

    def taken(self) -> list[Noted]:
        found, self._found = self._found, []
        return found


class Keep:
    """Where what was noted goes; this one keeps nothing."""

    def write(self, noted: Iterable[Noted]) -> None:
        """Write files; one that is there already is replaced."""

    def has(self, names: Iterable[tuple[Sequence[str], str]]) -> bool:
        """Whether all files of these names are there, as an earlier run has written them."""
        return True

    def texts(self, page: str) -> dict[tuple[str, ...], str]:
        """The paths of the modules from the folder of a page, by module, strategy and target."""
        return {}


@dataclass
class Folder(Keep):
    """``DIR/MODULE/STRATEGY[.TARGET].hlo``, what is fused beside it as ``.lock.toml``, and the kernels of
    a device as ``STRATEGY.DEVICE.kernels.toml``.
    """

    folder: Path
    _taken: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _texts: dict[tuple[str, ...], Path] = field(default_factory=dict)

    def write(self, noted: Iterable[Noted]) -> None:
        for parts, end, text in noted:
            write_text(str(self._path(parts, end)), text, parts[0])

    def has(self, names: Iterable[tuple[Sequence[str], str]]) -> bool:
        paths = [self._path(parts, end) for parts, end in names]
        return all(path.is_file() for path in paths)

    def texts(self, page: str) -> dict[tuple[str, ...], str]:
        start = Path(page).resolve().parent
        return {
            key: os.path.relpath(path.resolve(), start).replace(os.sep, "/")
            for key, path in self._texts.items()
        }

    def _path(self, parts: Sequence[str], end: str) -> Path:
        key = tuple(parts)
        path = Path(f"{self._stem(*key)}{end}")
        if end == ".hlo":
            self._texts[key] = path
        return path

    def _stem(self, module: str, *parts: str) -> str:
        """The path without its end; names that would be the same file get a number."""
        path = self.folder / file_name(module) / ".".join(map(file_name, parts))
        key = (module, *parts)
        for number in range(len(self._taken) + 2):
            name = f"{path}-{number}" if number else str(path)
            if self._taken.setdefault(name.lower(), key) == key:
                return name
        raise AssertionError("unreachable: there are fewer names than numbers")


def file_name(name: str) -> str:
    """A name as part of a path."""
    return _ODD.sub("_", name).strip("._") or "_"


def check_folder(path: str | None) -> None:
    """Raise ``UsageError`` where ``--out`` cannot be a folder."""
    if path is not None and (
        path in {"", "-"} or (Path(path).exists() and not Path(path).is_dir())
    ):
        raise UsageError(f"--out needs a folder, not '{path}'")


def check_page(path: str | None, inputs: Iterable[Path]) -> None:
    """Raise ``UsageError`` where ``--html`` is not a file, or one of the modules."""
    if path is None:
        return
    if path in {"", "-"} or is_folder(path):
        raise UsageError(f"--html needs a file, not '{path}'")
    for one in inputs:
        if Path(path).exists() and Path(path).samefile(one):
            raise UsageError(f"--html {path}: this is one of the inputs")
