"""Whether a slice reads the very elements that an update writes."""

from __future__ import annotations

from hloopt.ir import Instruction

__all__ = ["is_same_place"]


def is_same_place(read: Instruction, update: Instruction) -> bool:
    """Whether a slice, static or dynamic, takes what a dynamic-update-slice writes."""
    if read.opcode not in ("slice", "dynamic-slice"):
        return False
    if read.array.dims != update.operands[1].array.dims:
        return False
    if read.opcode == "slice":
        return all(
            taken.stride == 1 and _constant(start) == taken.start
            for taken, start in zip(read.attributes["slice"], update.operands[2:], strict=False)
        ) and len(read.attributes["slice"]) + 2 == len(update.operands)
    starts = zip(read.operands[1:], update.operands[2:], strict=False)
    return len(read.operands) + 1 == len(update.operands) and all(
        taken is written or _is_same_constant(taken, written) for taken, written in starts
    )


def _is_same_constant(left: Instruction, right: Instruction) -> bool:
    value = _constant(left)
    return value is not None and value == _constant(right)


def _constant(instruction: Instruction) -> int | None:
    literal = instruction.literal
    if literal is None or literal.array is None or literal.array.size != 1:
        return None
    return int(literal.array.reshape(-1)[0])
