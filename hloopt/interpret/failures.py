"""Errors of an evaluation that has begun: they name the instruction and its place."""

from __future__ import annotations

from hloopt.errors import EvaluationError
from hloopt.ir import Instruction

__all__ = ["failure", "place"]


def failure(instruction: Instruction, message: str) -> EvaluationError:
    """An error to raise: ``file:line:col: name: message``."""
    return EvaluationError(f"{place(instruction)}{instruction.name}: {message}")


def place(instruction: Instruction) -> str:
    """``file:line:col: ``, the module's name where it was not read, or nothing outside a module."""
    computation = instruction.computation
    module = computation.module if computation is not None else None
    return f"{module.place(instruction)}: " if module is not None else ""
