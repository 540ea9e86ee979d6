"""Ops whose evaluators need more than their operands' sizes: their attributes or shapes refer to bounds.

The rules are XLA's (dynamic dimension inference and padding), except that what it leaves to chance is an
``EvaluationError``: elements past the sizes that an op would read, sizes outside of the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TypeAlias

import numpy as np

from hloopt.interpret.context import Context, Evaluator, Value, array_of, arrays_of
from hloopt.interpret.failures import failure
from hloopt.interpret.indexing import Windows, box, clamped, gather, scatter, start_indices
from hloopt.interpret.movement import broadcast, pad
from hloopt.interpret.reducer import reducer_of
from hloopt.interpret.reshaping import result_sizes
from hloopt.interpret.sizes import marks
from hloopt.ir import Instruction
from hloopt.ops.traits import op_table
from hloopt.types import Array, ArrayShape, GatherDims, ScatterDims, Shape, TupleShape, compatible

__all__ = [
    "EVALUATORS",
    "GUARDS",
    "Guard",
    "check_pad_to_static",
    "check_slice_to_dynamic",
    "pad_to_static",
    "slice_to_dynamic",
]

Guard: TypeAlias = Callable[[Instruction, "tuple[Value, ...]"], "tuple[Value, ...]"]
"""The operands with which an ordinary evaluator may be called; raises where that is impossible."""


def _size(instruction: Instruction, given: Value, dimension: int) -> int:
    """A size that an operand gives, which must be within the bound."""
    size, bound = int(array_of(given)), instruction.array.dims[dimension]
    if not 0 <= size <= bound:
        raise failure(instruction, f"size {size} of dimension {dimension} is not in [0, {bound}]")
    return size


def _dimension(instruction: Instruction) -> int:
    (dimension,) = instruction.attributes["dimensions"]
    return int(dimension)


def _set_dimension_size(
    instruction: Instruction, values: tuple[Value, ...], context: Context
) -> Value:
    operand, dimension = array_of(values[0]), _dimension(instruction)
    size = _size(instruction, values[1], dimension)
    if size == operand.shape[dimension]:
        return operand
    whole = context.known(operand)
    if size > whole.shape[dimension]:
        raise failure(
            instruction,
            f"size {size} of dimension {dimension} brings elements to light that nothing has computed: "
            f"{whole.shape[dimension]} are known",
        )
    sizes = [*operand.shape[:dimension], size, *operand.shape[dimension + 1 :]]
    return context.remember(whole[_upto(sizes)], whole)


def _upto(sizes: Sequence[int]) -> tuple[slice, ...]:
    return tuple(map(slice, sizes))


def _broadcast(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    operand = array_of(values[0])
    dimensions = instruction.attributes.get("dimensions", ())
    sizes = list(instruction.array.dims)
    for axis, dimension in enumerate(dimensions):
        sizes[dimension] = operand.shape[axis]
    return broadcast(operand, dimensions, tuple(sizes))


def _reshape(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    operand = array_of(values[0])
    return operand.reshape(result_sizes(instruction, operand.shape))


def _dynamic_reshape(
    instruction: Instruction, values: tuple[Value, ...], context: Context
) -> Value:
    operand, sizes = array_of(values[0]), list(instruction.array.dims)
    for dimension, mark in enumerate(marks(instruction.shape)):
        if mark:
            sizes[dimension] = _size(instruction, values[dimension + 1], dimension)
    if operand.size != int(np.prod(sizes, dtype=np.int64)):
        raise failure(instruction, f"{operand.size} elements cannot be reshaped to sizes {sizes}")
    return operand.reshape(sizes)


def _pad(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    operand, value = arrays_of(values)
    padding = instruction.attributes["padding"]
    for dimension, (size, entry) in enumerate(zip(operand.shape, padding, strict=True)):
        if entry.low + entry.high + size + max(size - 1, 0) * entry.interior < 0:
            raise failure(
                instruction, f"padding makes dimension {dimension} of size {size} negative"
            )
    return pad(operand, value, padding)


def _slice(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    """The part of the slice within the sizes; one element of a dimension has to be there."""
    operand = array_of(values[0])
    ranges = instruction.attributes["slice"]
    single = [
        dimension
        for dimension, mark in enumerate(marks(instruction.shape))
        if not mark and ranges[dimension].size == 1
    ]
    whole = _reaching(instruction, operand, {dim: ranges[dim].start + 1 for dim in single}, context)
    return np.asarray(whole[tuple(slice(r.start, r.limit, r.stride) for r in ranges)])


def _reaching(
    instruction: Instruction, operand: Array, ends: Mapping[int, int], context: Context
) -> Array:
    """The operand and the elements known past its sizes in some dimensions, of which ``ends`` are read.

    Raises ``EvaluationError`` where that is not known.
    """
    whole = context.known(operand)
    for dimension, end in ends.items():
        if end > whole.shape[dimension]:
            raise failure(
                instruction,
                f"element {end - 1} of dimension {dimension} of operand 0 "
                f"({instruction.operands[0].name}) is read, whose size is "
                f"{operand.shape[dimension]}",
            )
    return whole[
        tuple(
            slice(None if dimension in ends else size)
            for dimension, size in enumerate(operand.shape)
        )
    ]


def _is_whole(shape: ArrayShape, dimension: int, size: int) -> bool:
    """Whether a slice has all elements of a dynamic dimension, however many there are."""
    return marks(shape)[dimension] and size == shape.dims[dimension] and size > 1


def _dynamic_slice(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    operand, shape = array_of(values[0]), instruction.operands[0].array
    sizes = instruction.attributes["dynamic_slice_sizes"]
    # Starts are clamped to the bounds, not to the actual sizes: as XLA does.
    begins = clamped(start_indices(values[1:], shape.rank), shape.dims, sizes)
    ends = {
        dim: begin + size
        for dim, (begin, size) in enumerate(zip(begins, sizes, strict=True))
        if not _is_whole(shape, dim, size)
    }
    whole = _reaching(instruction, operand, ends, context)
    return np.asarray(whole[box(begins, sizes)])


def _dynamic_update_slice(
    instruction: Instruction, values: tuple[Value, ...], context: Context
) -> Value:
    """The update's elements in place of the operand's, also past the sizes.

    An update with the bound of the operand brings its own size along.
    """
    operand, update = arrays_of(values[:2])
    shape, part = (entry.array for entry in instruction.operands[:2])
    begins = clamped(start_indices(values[2:], shape.rank), shape.dims, part.dims)
    full = [bound == size for bound, size in zip(shape.dims, part.dims, strict=True)]
    sizes = [
        update.shape[dim] if full[dim] and (marks(part)[dim] or not mark) else operand.shape[dim]
        for dim, mark in enumerate(marks(shape))
    ]
    if all(full):
        return context.remember(update[_upto(sizes)], update)
    whole = context.known(operand)
    reach = [
        min(whole.shape[dim], update.shape[dim]) if full[dim] else whole.shape[dim]
        for dim in range(shape.rank)
    ]
    for dimension, (size, most) in enumerate(zip(sizes, reach, strict=True)):
        if size > most:
            raise failure(
                instruction,
                f"the update sets size {size} of dimension {dimension}, and brings elements of "
                f"operand 0 ({instruction.operands[0].name}) to light that nothing has computed",
            )
    result = whole[_upto(reach)].copy()
    target = result[box(begins, update.shape)]
    target[...] = update[_upto(target.shape)]
    return context.remember(result[_upto(sizes)], result)


def _gather(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    operand, indices = arrays_of(values)
    shape, dims = instruction.operands[0].array, GatherDims.of(instruction.attributes)
    windows, sizes, ends = Windows.of(indices, dims), list(dims.slice_sizes), {}
    for dim, size in enumerate(dims.slice_sizes):
        if _is_whole(shape, dim, size):
            sizes[dim] = operand.shape[dim]
        elif prod(windows.batch):
            start = windows.starts.get(dim, np.zeros(()))
            ends[dim] = int(np.clip(start, 0, shape.dims[dim] - size).max()) + size
    reached = _reaching(instruction, operand, ends, context)
    return gather(reached, indices, replace(dims, slice_sizes=tuple(sizes)))


def _scatter(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    """Into operands as large as their bounds: a window may lie partly past the sizes."""
    arrays, count = arrays_of(values), len(values) // 2
    shapes = [operand.array for operand in instruction.operands]
    dims = ScatterDims.of(instruction.attributes)
    sizes = list(arrays[count + 1].shape)
    full = set(dims.input_batching_dims)
    for dim, axis in dims.windows(shapes[0].rank).items():
        if shapes[0].dims[dim] == shapes[count + 1].dims[axis]:
            sizes[axis] = shapes[0].dims[dim]
            full.add(dim)
    bounds = [
        arrays[0].shape[dim] if dim in dims.input_batching_dims else bound
        for dim, bound in enumerate(shapes[0].dims)
    ]
    wholes = []
    for array in arrays[:count]:
        whole = context.known(array)
        upto = [array.shape[dim] if dim in full else n for dim, n in enumerate(whole.shape)]
        wholes.append(whole[_upto(upto)])
    results = scatter(
        [_grown(whole, bounds) for whole in wholes],
        arrays[count],
        [_grown(update, sizes) for update in arrays[count + 1 :]],
        dims,
        reducer_of(instruction.attributes["to_apply"], context),
    )
    kept = []
    for result, whole, array in zip(results, wholes, arrays, strict=False):
        result = result[_upto(whole.shape)]
        kept.append(context.remember(result[_upto(array.shape)], result))
    return kept[0] if count == 1 else tuple(kept)


def _grown(array: Array, sizes: Sequence[int]) -> Array:
    """The array with zeros past its sizes, up to ``sizes``."""
    if array.shape == tuple(sizes):
        return array
    result = np.zeros(sizes, array.dtype)
    result[_upto(array.shape)] = array
    return result


def _guard_select_and_scatter(
    instruction: Instruction, values: tuple[Value, ...]
) -> tuple[Value, ...]:
    """The operand has the sizes; the window says how many elements of the source count."""
    operand, source, init = arrays_of(values)
    sizes = instruction.window.positions(operand.shape)
    for dimension, (given, needed) in enumerate(zip(source.shape, sizes, strict=True)):
        if given < needed:
            raise failure(
                instruction,
                f"dimension {dimension} of operand 1 ({instruction.operands[1].name}) has size "
                f"{given}, the window has {needed} places",
            )
    return operand, source[_upto(sizes)], init


def _guard_topk(instruction: Instruction, values: tuple[Value, ...]) -> tuple[Value, ...]:
    size, k = array_of(values[0]).shape[-1], int(instruction.attributes["k"])
    if size < k:
        raise failure(instruction, f"the first {k} of {size} elements")
    return values


def slice_to_dynamic(
    instruction: Instruction, values: tuple[Value, ...], context: Context
) -> Value:
    """``SliceToDynamic``: an array of the bounds and a size for each dimension."""
    whole = array_of(values[0])
    sizes = list(whole.shape)
    for dimension, mark in enumerate(marks(instruction.shape)):
        if mark:
            sizes[dimension] = _size(instruction, values[dimension + 1], dimension)
    return context.remember(whole[_upto(sizes)], whole)


def pad_to_static(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    """``PadToStatic``: the array as large as its bounds, zeros past its sizes, and the sizes."""
    array = array_of(values[0])
    dims = instruction.operands[0].array.dims
    return (_grown(array, dims), *(np.array(size, np.int32) for size in array.shape))


def check_slice_to_dynamic(instruction: Instruction) -> str | None:
    """Why a call of ``SliceToDynamic`` is malformed, or None."""
    shape, operands = instruction.shape, [operand.shape for operand in instruction.operands]
    if operands and _are_sizes(operands[1:], shape) and _alike(operands[0], shape):
        return None
    return f"SliceToDynamic of {_listed(operands)} to {shape} is not an array and its sizes"


def check_pad_to_static(instruction: Instruction) -> str | None:
    """Why a call of ``PadToStatic`` is malformed, or None."""
    shape, operands = instruction.shape, [operand.shape for operand in instruction.operands]
    if isinstance(shape, TupleShape) and len(operands) == 1 and shape.elements:
        whole = shape.elements[0]
        if _are_sizes(shape.elements[1:], operands[0]) and _alike(whole, operands[0]):
            return None
    return f"PadToStatic of {_listed(operands)} to {shape} is not an array and its sizes"


def _listed(shapes: Sequence[Shape]) -> str:
    return ", ".join(map(str, shapes))


def _alike(static: Shape, dynamic: Shape) -> bool:
    """Whether two shapes differ in no more than that one is static."""
    return compatible(static, dynamic) and not any(marks(static))


def _are_sizes(shapes: Sequence[Shape], of: Shape) -> bool:
    """Whether there is an integer for each dimension."""
    return len(shapes) == len(marks(of)) and all(
        isinstance(shape, ArrayShape) and not shape.rank and shape.dtype.is_integer
        for shape in shapes
    )


EVALUATORS: Mapping[str, Evaluator] = op_table(
    {
        "broadcast": _broadcast,
        "dynamic-reshape": _dynamic_reshape,
        "dynamic-slice": _dynamic_slice,
        "dynamic-update-slice": _dynamic_update_slice,
        "gather": _gather,
        "pad": _pad,
        "reshape": _reshape,
        "scatter": _scatter,
        "set-dimension-size": _set_dimension_size,
        "slice": _slice,
    },
    otherwise="its own evaluator is right for actual sizes, too",
)

GUARDS: Mapping[str, Guard] = {
    "select-and-scatter": _guard_select_and_scatter,
    "topk": _guard_topk,
}
