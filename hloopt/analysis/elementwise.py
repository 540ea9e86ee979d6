"""Ops by elements: which compute each at the operands' index, and which a thread computes alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hloopt.ir import Computation, Instruction
from hloopt.ir.walk import called_computations
from hloopt.ops.traits import DEVICE_NUMBERS, ELEMENTAL
from hloopt.types import ArrayShape

__all__ = [
    "first_not_elemental",
    "is_elementwise",
    "is_same_place",
    "keeps_width",
    "plain_opcode",
    "tells_apart",
]

_IN_LOOPS: Final = frozenset({"scatter", "while"})
"""What a thread would take long for, where nothing else is worth a loop in one kernel."""


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


def first_not_elemental(body: Iterable[Instruction], *, loops: bool = False) -> Instruction | None:
    """The first instruction, of those given and of what they call, that no thread computes alone, or None.

    With ``loops`` threads run every ``while`` and scatter, too.
    """
    pending = list(body)
    while pending:
        instruction = pending.pop()
        known = instruction.opcode in ELEMENTAL or (loops and instruction.opcode in _IN_LOOPS)
        if not (instruction.op.is_elementwise or known) or instruction.shape.is_dynamic:
            return instruction
        if tells_apart(instruction):
            return instruction
        for computation in called_computations(instruction):
            pending.extend(computation)
    return None


def tells_apart(instruction: Instruction) -> bool:
    """Whether it is a participant's own number, in a module of several: code for all of them cannot have it."""
    if instruction.opcode not in DEVICE_NUMBERS or instruction.computation is None:
        return False
    module = instruction.computation.module
    counts = ("replica_count", "num_partitions")
    return module is not None and any(module.attributes.get(name, 1) != 1 for name in counts)


def plain_opcode(computation: Computation) -> str:
    """The opcode of a computation that is one elementwise op of its two parameters, in any order.

    Empty for every other one, and where the op takes other types than it gives.
    """
    root, parameters = computation.root, computation.parameters
    if len(parameters) != 2 or not root.op.is_elementwise or len(root.operands) != 2:
        return ""
    if set(root.operands) != set(parameters) or root.shape != parameters[0].shape:
        return ""
    if root.operands[0] is not parameters[0] and not root.op.commutative:
        return ""
    return root.opcode


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
