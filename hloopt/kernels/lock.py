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

``signature`` tells an instruction that is no longer what it was.  Such a file names kernels that are there;
nothing in it is imported.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hloopt.errors import UsageError
from hloopt.ir import Instruction
from hloopt.kernels.spec import Tile
from hloopt.kernels.structure import signature
from hloopt.rewrite.spec import did_you_mean

__all__ = ["Lock", "LockEntry", "entry_of", "lock_text", "read_lock"]

VERSION = 1
_KEYS = ("module", "computation", "instruction", "signature", "kernel", "tile")
_PLACE = re.compile(r" \(at line (\d+), column (\d+)\)$")


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
    lines = [
        "# Which kernel runs which instruction: --lock takes it, --frozen refuses what has changed.",
        f"version = {VERSION}",
        f"target = {_string(target)}",
        f"device = {_string(device)}",
    ]
    for entry in entries:
        lines += ["", "[[kernel]]"]
        lines += [f"{key} = {_string(getattr(entry, key))}" for key in _KEYS[:-1]]
        if entry.tile:
            inner = ", ".join(f"{key} = {value}" for key, value in sorted(entry.tile.items()))
            lines.append(f"tile = {{ {inner} }}")
    return "\n".join(lines) + "\n"


def _string(text: str) -> str:
    """A basic string of TOML, which has JSON's escapes but wants DEL escaped, too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def read_lock(path: str) -> Lock:
    """Read a lock file.

    Raises ``UsageError`` with the place of what is no TOML, and naming the entry that makes no sense.
    """
    try:
        found = tomllib.loads(Path(path).read_bytes().decode())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start} is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        told = str(error)
        match = _PLACE.search(told)
        where = f":{match[1]}:{match[2]}" if match else ""
        raise UsageError(f"{path}{where}: {_PLACE.sub('', told)}") from error
    for key in found:
        if key not in ("version", "target", "device", "kernel"):
            hint = did_you_mean(key, ("version", "target", "device", "kernel"))
            raise UsageError(f"{path}: '{key}' means nothing here{hint}")
    if found.get("version") != VERSION:
        raise UsageError(
            f"{path}: version is {found.get('version')!r}; this hloopt reads {VERSION}"
        )
    rows = found.get("kernel", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UsageError(f"{path}: 'kernel' is a list of tables: [[kernel]]")
    entries: dict[tuple[str, str, str], LockEntry] = {}
    for number, row in enumerate(rows):
        entry = _entry(row, f"{path}: kernel[{number}]")
        if entry.place in entries:
            raise UsageError(f"{path}: kernel[{number}]: {entry.instruction} stands there twice")
        entries[entry.place] = entry
    target, device = (_text(found, key, path) for key in ("target", "device"))
    return Lock(path, target, device, entries)


def _entry(row: dict[str, Any], where: str) -> LockEntry:
    for key in row:
        if key not in _KEYS:
            raise UsageError(f"{where}: '{key}' means nothing here{did_you_mean(key, _KEYS)}")
    tile = row.get("tile", {})
    if not isinstance(tile, dict) or not all(type(value) is int for value in tile.values()):
        raise UsageError(f"{where}: 'tile' is a table of integers")
    module, computation, instruction, digest, kernel = (
        _text(row, key, where) for key in _KEYS[:-1]
    )
    return LockEntry(module, computation, instruction, digest, kernel, tile)


def _text(row: Mapping[str, Any], key: str, where: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise UsageError(f"{where}: '{key}' has to be a text")
    return value
