"""Slices at computed places, planned when the line is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hloopt.ir import Instruction
from hloopt.runtime.numpy.builder import Builder
from hloopt.runtime.numpy.movement import Emitter
from hloopt.runtime.numpy.plan import Function

__all__ = ["EMITTERS"]

# A slice of less than this part of its operand is copied, so that the operand can be updated in place.
_SMALL_PART = 4


def _full(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> tuple[int, ...]:
    return builder.all_full(
        (slot, operand.shape) for slot, operand in zip(operands, instruction.operands, strict=True)
    )


def _same(array: Any) -> Any:
    return array


def _starts(indices: Sequence[Instruction]) -> Function:
    """One scalar a dimension; the older form has them all in one vector."""
    vector = len(indices) == 1 and indices[0].array.rank == 1
    return (lambda starts: starts[0]) if vector else _same


def _place(starts: Sequence[Any], bounds: Sequence[tuple[int, int]]) -> tuple[slice, ...]:
    """``bounds``: for each dimension the greatest start and the size."""
    begins = [
        min(max(int(start), 0), most) for start, (most, _) in zip(starts, bounds, strict=True)
    ]
    return tuple(
        slice(begin, begin + size) for begin, (_, size) in zip(begins, bounds, strict=True)
    )


def _dynamic_slice(
    builder: Builder, instruction: Instruction, operands: Sequence[int]
) -> int | None:
    shape, whole = instruction.array, instruction.operands[0].array
    if not shape.rank:
        return operands[0]
    sizes = shape.dims
    bounds = [(dim - size, size) for dim, size in zip(whole.dims, sizes, strict=True)]
    flat = _starts(instruction.operands[1:])
    small = shape.elements * _SMALL_PART <= whole.elements

    def take(array: Any, *starts: Any) -> Any:
        part = array[_place(flat(starts), bounds)]
        return part.copy() if small else part

    out = builder.line.slot(builder.context.carrier(shape.dtype), sizes)
    full = _full(builder, instruction, operands)
    return builder.line.step(take, full, out, view=not small)


def _dynamic_update_slice(
    builder: Builder, instruction: Instruction, operands: Sequence[int]
) -> int | None:
    """In place where nobody else needs the operand."""
    shape, update = instruction.array, instruction.operands[1].array
    if not shape.rank:
        return operands[1]
    bounds = [(dim - size, size) for dim, size in zip(shape.dims, update.dims, strict=True)]
    flat = _starts(instruction.operands[2:])

    def put(array: Any, part: Any, *starts: Any) -> Any:
        array[_place(flat(starts), bounds)] = part
        return array

    def put_in_copy(array: Any, part: Any, *starts: Any) -> Any:
        return put(array.copy(), part, *starts)

    def choose(own: frozenset[int]) -> Function:
        return put if own else put_in_copy

    out = builder.line.slot(builder.context.carrier(shape.dtype), shape.dims)
    full = list(_full(builder, instruction, operands))
    full[1] = operands[1]  # an assignment stretches
    return builder.line.step(put_in_copy, tuple(full), out, view=True, writes=(0,), choose=choose)


EMITTERS: Mapping[str, Emitter] = {
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
}
