"""Which lines of the user's program an instruction is from: several, where it was made of several.

They stand where XLA's combiners of collectives put them, as a list in the ``source_file`` of the metadata:
``a.py:3,b.py:5``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from hloopt.ir import Instruction, Module
from hloopt.ir.walk import called_computations
from hloopt.ops.traits import BODIES
from hloopt.rewrite.pattern import splat_literal
from hloopt.types import Metadata

__all__ = ["MOST_LINES", "kernel_lines", "lines_text", "merge_lines"]

MOST_LINES: Final = 64
"""So many lines an instruction names at most: merges into one do not copy longer and longer lists."""

_NOTHING = ("parameter", "constant")


def merge_lines(kept: Instruction, gone: Iterable[Instruction]) -> None:
    """Let ``kept``, which does now what ``gone`` did as well, name their lines behind its own.

    Constants, and broadcasts of a number, keep their own: nothing is computed in the lines that write one.
    """
    module = kept.computation.module if kept.computation is not None else None
    mine, others = kept.metadata, [entry.metadata for entry in gone if entry.metadata is not None]
    if module is None or all(other == mine for other in others) or not _computes(kept):
        return
    known = module.user_lines(mine)
    if len(known) >= MOST_LINES:
        return
    lines = dict.fromkeys(known)
    for other in others:
        lines.update(dict.fromkeys(module.user_lines(other)))
    if len(lines) == len(known):
        return
    first = mine or next(other for other in others if module.user_lines(other))
    if len(lines) > 1 or not module.user_lines(first):
        file = ",".join([*lines][:MOST_LINES])
        own, first = first.own, Metadata.of(_with_file(first.fields, file))
        first.own = own
    kept.metadata = first


def _with_file(fields: Mapping[str, Any], file: str) -> dict[str, Any]:
    """The fields with another ``source_file``, where XLA's texts have it, without another line."""
    kept = {name: value for name, value in fields.items() if not name.startswith("source_")}
    names = [name for name in ("op_type", "op_name") if name in kept]
    return {**{name: kept.pop(name) for name in names}, "source_file": file, **kept}


def _computes(instruction: Instruction) -> bool:
    return instruction.opcode not in _NOTHING and splat_literal(instruction) is None


def kernel_lines(module: Module, kernel: Instruction) -> tuple[str, ...]:
    """Every line of the user's program that a kernel computes something of.

    First that of the kernel itself, then of a fusion those of its root and of what is before it.
    """
    found = dict.fromkeys(module.user_lines(kernel.metadata))
    pending = [kernel] if kernel.opcode == "fusion" else []
    while pending:
        for body in called_computations(pending.pop()):
            for entry in (body.root, *reversed(body)):
                if _computes(entry):
                    found.update(dict.fromkeys(module.user_lines(entry.metadata)))
            pending += [entry for entry in body if entry.opcode in BODIES]
    return tuple(found)


def lines_text(lines: Sequence[str]) -> str:
    """``model.py:12 and 2 more``."""
    more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    return next(iter(lines), "") + more
