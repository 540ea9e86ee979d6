"""Products and slices at computed places, planned when the line is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from hloopt.interpret.context import Context
from hloopt.ir import Instruction
from hloopt.kernels.library_problems import blas_problem
from hloopt.runtime.numpy.builder import Builder
from hloopt.runtime.numpy.movement import Emitter
from hloopt.runtime.numpy.plan import Function
from hloopt.types import DotDims, DType

__all__ = ["EMITTERS"]

# A slice of less than this part of its operand is copied, so that the operand can be updated in place.
_SMALL_PART = 4


def _full(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> tuple[int, ...]:
    return builder.all_full(
        (slot, operand.shape) for slot, operand in zip(operands, instruction.operands, strict=True)
    )


def _dot(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int | None:
    """BLAS on operands whose dimensions are put in order by views, where that is possible."""
    result = instruction.array.dtype
    kinds = [operand.array.dtype for operand in instruction.operands]
    if blas_problem(instruction):
        return None
    dims = DotDims.of(instruction.attributes)
    left, right = (operand.array.dims for operand in instruction.operands)
    batch = tuple(left[axis] for axis in dims.lhs_batch)
    left_free = _free(len(left), dims.lhs_batch, dims.lhs_contracting)
    right_free = _free(len(right), dims.rhs_batch, dims.rhs_contracting)
    m = prod(left[axis] for axis in left_free)
    n = prod(right[axis] for axis in right_free)
    k = prod(left[axis] for axis in dims.lhs_contracting)
    lay_left = _laid([*dims.lhs_batch, *left_free, *dims.lhs_contracting], left, (*batch, m, k))
    lay_right = _laid([*dims.rhs_batch, *dims.rhs_contracting, *right_free], right, (*batch, k, n))
    wide_left, wide_right = (_widening(kind, builder.context) for kind in kinds)
    shape = instruction.array.dims
    carrier = builder.context.carrier(result)

    def product(x: Any, y: Any) -> Any:
        total = np.matmul(lay_left(wide_left(x)), lay_right(wide_right(y)))
        return total.reshape(shape).astype(carrier, copy=False)

    full = _full(builder, instruction, operands)
    return builder.line.step(product, full, builder.line.slot(carrier, shape))


def _free(rank: int, *taken: Sequence[int]) -> list[int]:
    return [axis for axis in range(rank) if not any(axis in dims for dims in taken)]


def _laid(order: list[int], dims: Sequence[int], shape: tuple[int, ...]) -> Function:
    """A function that puts dimensions in order and merges them to ``shape``."""
    moves = order != sorted(order)
    merges = tuple(dims[axis] for axis in order) != shape
    if moves and merges:
        return lambda x: x.transpose(order).reshape(shape)
    if moves:
        return lambda x: x.transpose(order)
    return (lambda x: x.reshape(shape)) if merges else _same


def _same(array: Any) -> Any:
    return array


def _widening(kind: DType, context: Context) -> Function:
    wide = kind.compute
    return _same if context.carrier(kind) == wide else lambda x: x.astype(wide)


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
    "dot": _dot,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
}
