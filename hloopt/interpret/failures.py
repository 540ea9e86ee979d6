"""Errors of an evaluation that has begun: they name the instruction and its place."""

from __future__ import annotations

from hloopt.errors import EvaluationError
from hloopt.ir import Instruction

__all__ = ["failure", "place"]


def failure(instruction: Instruction, message: str) -> EvaluationError:
    """An error to raise: ``file:line:col: name: message``."""
    text = f"{instruction.name}: {message}"
    computation = instruction.computation
    module = computation.module if computation is not None else None
    if module is None:
        return EvaluationError(text)
    source, offset = module.source, instruction.offset
    if source is None or offset < 0:
        return EvaluationError(text, place=module.name)
    line, column = source.line_column(offset)
    return EvaluationError(
        text,
        place=module.place(instruction),
        line=line,
        column=column,
        excerpt=source.excerpt(offset),
    )


def place(instruction: Instruction) -> str:
    """``file:line:col: ``, the module's name where it was not read, or nothing outside a module."""
    computation = instruction.computation
    module = computation.module if computation is not None else None
    return f"{module.place(instruction)}: " if module is not None else ""
