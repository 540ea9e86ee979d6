"""What differs between two compilations beside their modules: flags, and the program the frontend gave."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

import numpy as np

from hloopt.analysis.differences import literal_texts
from hloopt.analysis.recompilation.reason import Reason
from hloopt.dumps.beside import TOPOLOGY, Beside
from hloopt.types import DTYPES, ArrayShape, Literal

__all__ = ["flag_reasons", "frontend_reason"]

_DENSE: Final = re.compile(r'.*\bdense<"0x([0-9A-Fa-f]*)"> : tensor<((?:\d+x)*)(\w+)>\s*')
_SPELT: Final = re.compile(r"(u?)i(\d{1,2})")
"""Integers as MLIR writes them: ``i32``, ``ui8``."""
_DEVICES: Final = frozenset(("replica_device_ids", "num_replicas", "num_partitions"))
_LONGEST: Final = 100


def flag_reasons(before: Beside, after: Beside) -> Iterator[Reason]:
    """The flags and options whose values differ, of the kinds of files that both compilations have.

    A flag that occurs in several files is reported once, with its value in the first of them.
    """
    reported: set[str] = set()
    for file in before.flags.keys() & after.flags.keys():
        first, second = before.flags[file], after.flags[file]
        for path in sorted(first.keys() | second.keys()):
            name = path.rpartition(".")[2]
            if first.get(path) == second.get(path) or name in reported:
                continue
            reported.add(name)
            known = first.get(path, before.flag(name)), second.get(path, after.flag(name))
            if known[0] != known[1]:
                old, new = (_brief(value) or "the default" for value in known)
                is_device = file == TOPOLOGY or name in _DEVICES
                yield Reason("devices" if is_device else "flag", name, old, new)


def frontend_reason(before: Beside, after: Beside) -> Reason | None:
    """The first line in which the frontend's programs differ, source locations aside; None where none does.

    Of constants written as bytes it is the first element.
    """
    if before.program is None or after.program is None or before.program == after.program:
        return None
    pairs = zip(before.program, after.program, strict=False)
    common = min(len(before.program), len(after.program))
    at = next((number for number, (old, new) in enumerate(pairs) if old != new), common)
    old, new = (side.program[at : at + 1] for side in (before, after) if side.program is not None)
    where = f"{PurePath(after.program_file).name}:{at + 1}"
    if old and new:
        values = _elements(old[0], new[0])
        if values is not None:
            return Reason("constant", where, *values)
    first, second = (_brief(line[0].strip()) if line else "" for line in (old, new))
    return Reason("frontend", where, first, second)


def _elements(old: str, new: str) -> tuple[str, str] | None:
    """The first element that differs of two constants that are written as bytes; None of other lines."""
    matches = _DENSE.fullmatch(old), _DENSE.fullmatch(new)
    if (
        matches[0] is None
        or matches[1] is None
        or matches[0].groups()[1:] != matches[1].groups()[1:]
    ):
        return None
    dtype = DTYPES.get(_SPELT.sub(lambda found: f"{found[1] or 's'}{found[2]}", matches[0][3]))
    shape = ArrayShape(dtype, tuple(map(int, matches[0][2].split("x")[:-1]))) if dtype else None
    held = [bytes.fromhex(match[1]) for match in matches if match is not None]
    if dtype is None or shape is None or {len(text) for text in held} != {shape.byte_size}:
        return None
    arrays = (np.frombuffer(text, dtype.numpy).reshape(shape.dims) for text in held)
    return literal_texts(*(Literal(shape, array) for array in arrays))


def _brief(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
