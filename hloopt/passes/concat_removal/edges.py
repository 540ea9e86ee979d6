"""Pieces of what is not cut itself: which operands they come from, and which of them cost nothing."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.passes.concat_removal.splits import Split, start
from hloopt.types import ArrayShape

__all__ = ["is_cut_inside", "is_free", "operand_dim", "operand_dims"]

_SMALL = 64
_DEPTH = 8


def operand_dims(node: Instruction, dim: int) -> list[tuple[Instruction, int]]:
    """The operands that are cut when ``node`` is cut along ``dim``, each with its dimension."""
    found = []
    for number, operand in enumerate(node.operands):
        along = operand_dim(node, number, dim)
        if along is not None:
            found.append((operand, along))
    return found


def operand_dim(node: Instruction, number: int, dim: int) -> int | None:
    """The dimension of an operand that becomes ``dim`` of the result, or None where there is none."""
    shape = node.operands[number].shape
    if not isinstance(shape, ArrayShape):
        return None
    if node.op.family == "elementwise":
        return dim if shape.rank == node.array.rank else None
    if node.opcode == "concatenate":
        return dim
    if number > (1 if node.opcode == "dynamic-update-slice" else 0):
        return None
    dims: tuple[int, ...] = node.attributes.get("dimensions", ())
    if node.opcode == "broadcast":
        return dims.index(dim) if dim in dims else None
    if node.opcode == "transpose":
        return dims[dim]
    if node.opcode == "reduce":
        return [d for d in range(shape.rank) if d not in dims][dim]
    if node.opcode == "reshape":
        return None
    return dim


def is_cut_inside(node: Instruction, operand: Instruction, split: Split) -> bool:
    """Whether cutting ``node`` takes more than one piece of an operand that goes into it.

    An operand of a concatenate, what is padded and what is written in place may be a piece as they are.
    """
    for first, limit in _spans(node, operand, split.dim):
        if any(first < bound < limit for bound in split.bounds):
            return True
    return False


def _spans(node: Instruction, operand: Instruction, dim: int) -> list[tuple[int, int]]:
    """Where the operand lies in the result, once for each place in which it is."""
    size = node.array.dims[dim]
    if node.opcode == "concatenate" and node.dimensions[0] == dim:
        found, offset = [], 0
        for other in node.operands:
            if other is operand:
                found.append((offset, offset + other.array.dims[dim]))
            offset += other.array.dims[dim]
        return found
    if node.opcode == "pad":
        low = node.attributes["padding"][dim].low
        return [(low, low + operand.array.dims[dim])]
    if node.opcode == "dynamic-update-slice" and operand is not node.operands[0]:
        first = start(node, dim) or 0
        return [(first, first + operand.array.dims[dim])]
    return [(0, size)]


def is_free(instruction: Instruction, dim: int, depth: int = 0) -> bool:
    """Whether a piece of an instruction can be made without moving data.

    Of a constant, of an iota, of a broadcast along a new dimension; and of elementwise ops of these that
    nothing else needs.
    """
    opcode = instruction.opcode
    if opcode == "constant":
        return instruction.array.elements <= _SMALL
    if opcode == "iota":
        return dim != instruction.iota_dimension or instruction.array.dtype.is_integer
    if not instruction.is_understood or instruction.shape.is_dynamic or depth > _DEPTH:
        return False
    if opcode == "broadcast":
        return all(is_free(*entry, depth + 1) for entry in operand_dims(instruction, dim))
    if instruction.op.family == "elementwise" and len(instruction.users) == 1:
        return all(is_free(*entry, depth + 1) for entry in operand_dims(instruction, dim))
    return False
