"""The output of a study: optimised modules and lock files in a folder, the page."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from hloopt.cli.outputs import hlo_text
from hloopt.dataclass import dataclass
from hloopt.driver.writing import is_folder, write_text
from hloopt.errors import UsageError

if TYPE_CHECKING:
    from hloopt.study.optimised import Optimised

__all__ = ["Folder", "Keep", "check_folder", "check_page"]

_ODD = re.compile(r"[^\w.+-]+")


class Keep:
    """Where optimised modules and their lock files go; this one keeps nothing."""

    def module(self, module: str, strategy: str, target: str | None, better: Optimised) -> None:
        """Keep a module that was optimised for a target, None for what passes decide for by themselves."""

    def kernels(self, module: str, strategy: str, device: str, lock: str) -> None:
        """Keep which kernels ran on a device."""

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

    def module(self, module: str, strategy: str, target: str | None, better: Optimised) -> None:
        key = (module, strategy, *([target] if target else []))
        stem = self._stem(*key)
        write_text(f"{stem}.hlo", hlo_text(better.module), module)
        self._texts[key] = Path(f"{stem}.hlo")
        if better.lock:
            write_text(f"{stem}.lock.toml", better.lock, module)

    def kernels(self, module: str, strategy: str, device: str, lock: str) -> None:
        stem = self._stem(module, strategy, device)
        write_text(f"{stem}.kernels.toml", lock, module)

    def texts(self, page: str) -> dict[tuple[str, ...], str]:
        start = Path(page).resolve().parent
        return {
            key: os.path.relpath(path.resolve(), start).replace(os.sep, "/")
            for key, path in self._texts.items()
        }

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
