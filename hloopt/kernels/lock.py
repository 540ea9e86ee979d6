"""Lock files: the kernels of a program as data, so that the same plan can be had again.

::

    version = 1
    target = "h200"
    device = "gpu"

    [[kernel]]
    module = "jit_f"
    computation = "main"
    instruction = "dot.1"
    signature = "0f3a..."
    kernel = "dot-tiled"
    tile = { m = 64, n = 64 }

``signature`` detects an instruction that has changed since.  Such a file names kernels that are there;
nothing in it is imported.  What is fused stands in the same file (``fusion/lock_file.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.fusion.lock_file import head_text, read_tables, string, text_of
from hloopt.ir import Instruction
from hloopt.kernels.spec import Tile
from hloopt.kernels.standalone import signature
from hloopt.rewrite.spec import did_you_mean

__all__ = ["Lock", "LockEntry", "entry_of", "lock_text", "read_lock"]

_KEYS = ("module", "computation", "instruction", "signature", "kernel", "tile")


@dataclass(frozen=True, slots=True)
class LockEntry:
    """The kernel of one instruction."""

    module: str
    computation: str
    instruction: str
    signature: str
    kernel: str
    tile: Tile

    @property
    def place(self) -> tuple[str, str, str]:
        """Module, computation and instruction."""
        return self.module, self.computation, self.instruction


@dataclass(frozen=True)
class Lock:
    """A lock file: what it is called, the device it is for, and its entries by their places."""

    name: str
    target: str
    device: str
    entries: Mapping[tuple[str, str, str], LockEntry]

    def of(self, instruction: Instruction) -> LockEntry | None:
        """The entry of an instruction."""
        return self.entries.get(_place(instruction))


def _place(instruction: Instruction) -> tuple[str, str, str]:
    computation = instruction.computation
    assert computation is not None, "an instruction of a module"
    assert computation.module is not None, "an instruction of a module"
    return computation.module.name, computation.name, instruction.name


def entry_of(instruction: Instruction, kernel: str, tile: Tile) -> LockEntry:
    """An instruction's entry."""
    return LockEntry(*_place(instruction), signature(instruction), kernel, dict(tile))


def lock_text(entries: Iterable[LockEntry], target: str, device: str) -> str:
    """The text of a lock file; the same entries in the same order give the same text."""
    lines: list[str] = []
    for entry in entries:
        lines += ["", "[[kernel]]"]
        lines += [f"{key} = {string(getattr(entry, key))}" for key in _KEYS[:-1]]
        if entry.tile:
            inner = ", ".join(f"{key} = {value}" for key, value in sorted(entry.tile.items()))
            lines.append(f"tile = {{ {inner} }}")
    head = head_text({"target": target, "device": device})
    return head + "".join(f"{line}\n" for line in lines)


def read_lock(path: str) -> Lock:
    """Read a lock file; what it says about fusion is for ``fusion/lock_file.py``.

    Raises ``UsageError`` with the place of what is not TOML, and naming an entry that is invalid.
    """
    found = read_tables(path)
    entries: dict[tuple[str, str, str], LockEntry] = {}
    for number, row in enumerate(found.get("kernel", ())):
        entry = _entry(row, f"{path}: kernel[{number}]")
        if entry.place in entries:
            raise UsageError(f"{path}: kernel[{number}]: {entry.instruction} stands there twice")
        entries[entry.place] = entry
    if not entries and "target" not in found and "device" not in found:
        return Lock(path, "", "", {})
    target, device = (text_of(found, key, path) for key in ("target", "device"))
    return Lock(path, target, device, entries)


def _entry(row: dict[str, Any], where: str) -> LockEntry:
    for key in row:
        if key not in _KEYS:
            raise UsageError(f"{where}: '{key}' means nothing here{did_you_mean(key, _KEYS)}")
    tile = row.get("tile", {})
    if not isinstance(tile, dict) or not all(type(value) is int for value in tile.values()):
        raise UsageError(f"{where}: 'tile' is a table of integers")
    module, computation, instruction, digest, kernel = (
        text_of(row, key, where) for key in _KEYS[:-1]
    )
    return LockEntry(module, computation, instruction, digest, kernel, tile)
