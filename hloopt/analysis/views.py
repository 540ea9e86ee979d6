"""Ops that give their operand's bytes another shape."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.types import ArrayShape

__all__ = ["moves_nothing"]


def moves_nothing(instruction: Instruction) -> bool:
    """Whether the result is the operand's bytes under another shape."""
    if instruction.opcode == "bitcast":
        return True
    if instruction.opcode != "reshape":
        return False
    shapes = (instruction.shape, instruction.operands[0].shape)
    return all(
        isinstance(shape, ArrayShape) and (shape.layout is None or shape.layout.is_descending)
        for shape in shapes
    )
