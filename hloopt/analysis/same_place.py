"""Whether a slice reads the very elements that an update writes."""

from __future__ import annotations

from hloopt.ir import Instruction

__all__ = ["is_same_place"]


def is_same_place(
    read: Instruction,
    update: Instruction,
    reader: Instruction | None = None,
    writer: Instruction | None = None,
) -> bool:
    """Whether a slice, static or dynamic, takes what a dynamic-update-slice writes.

    ``reader`` and ``writer`` are what the two stand in: parameters of a fusion are its operands.
    """
    if read.opcode not in ("slice", "dynamic-slice"):
        return False
    if read.array.dims != update.operands[1].array.dims:
        return False
    if read.opcode == "slice":
        return all(
            taken.stride == 1 and _outside(start, writer).constant_integer == taken.start
            for taken, start in zip(read.attributes["slice"], update.operands[2:], strict=False)
        ) and len(read.attributes["slice"]) + 2 == len(update.operands)
    starts = zip(read.operands[1:], update.operands[2:], strict=False)
    return len(read.operands) + 1 == len(update.operands) and all(
        _is_same_number(_outside(taken, reader), _outside(written, writer))
        for taken, written in starts
    )


def _is_same_number(left: Instruction, right: Instruction) -> bool:
    value = left.constant_integer
    return left is right or (value is not None and value == right.constant_integer)


def _outside(value: Instruction, home: Instruction | None) -> Instruction:
    """The operand of a fusion that one of its parameters stands for; other values as they are."""
    if value.opcode == "parameter" and home is not None and home.opcode == "fusion":
        return home.operands[value.parameter_number]
    return value
