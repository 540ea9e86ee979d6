"""Errors about instructions no kernel can run: they name the instruction and its line."""

from __future__ import annotations

from hloopt.errors import UnsupportedError
from hloopt.ir import Instruction

__all__ = ["unsupported"]


def unsupported(instruction: Instruction, problem: str) -> UnsupportedError:
    """An error to raise: ``file:line:col: error: name: opcode problem``, with the line and a caret."""
    text = f"{instruction.name}: {instruction.opcode} {problem}"
    computation = instruction.computation
    module = computation.module if computation is not None else None
    if module is None:
        return UnsupportedError(text)
    source = module.source
    if source is None or instruction.offset < 0:
        return UnsupportedError(text, name=module.name)
    return source.error(UnsupportedError, instruction.offset, text)
