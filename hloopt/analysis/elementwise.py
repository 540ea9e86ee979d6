"""Whether an instruction computes each result element from the operands' elements at the same index."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.types import ArrayShape

__all__ = ["is_elementwise", "keeps_width"]


def is_elementwise(instruction: Instruction) -> bool:
    """By its row; a bitcast-convert where both element types are equally wide."""
    if instruction.opcode == "bitcast-convert":
        return keeps_width(instruction)
    return instruction.op.is_elementwise


def keeps_width(instruction: Instruction) -> bool:
    """Whether the result's elements are as wide as those of the first operand."""
    source, result = instruction.operands[0].shape, instruction.shape
    return (
        isinstance(source, ArrayShape)
        and isinstance(result, ArrayShape)
        and source.dtype.bits == result.dtype.bits
    )
