"""Ops that only move elements: pure functions of arrays, and their evaluators.

Results may be views of the operands; no evaluator ever writes into an operand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hloopt.interpret.context import Context, Evaluator, Value, array_of, arrays_of
from hloopt.interpret.elementwise import convert
from hloopt.ir import Instruction
from hloopt.ops.traits import MOVING, op_table
from hloopt.types import Array, DType, PaddingDim, SliceRange

__all__ = ["EVALUATORS", "broadcast", "concatenate", "iota", "pad", "place", "slices"]


def broadcast(operand: Array, dimensions: Sequence[int], dims: tuple[int, ...]) -> Array:
    """Operand dimension ``i`` becomes dimension ``dimensions[i]`` of ``dims``; a read-only view."""
    if not operand.ndim:
        return np.broadcast_to(operand, dims) if dims else operand
    order = sorted(range(operand.ndim), key=lambda axis: dimensions[axis])
    expanded = [1] * len(dims)
    for axis, target in enumerate(dimensions):
        expanded[target] = operand.shape[axis]
    return np.broadcast_to(operand.transpose(order).reshape(expanded), dims)


def slices(operand: Array, ranges: Sequence[SliceRange]) -> Array:
    """``operand[start:limit:stride]`` in every dimension; a view."""
    # Of rank 0, NumPy gives a scalar.
    return np.asarray(operand[tuple(slice(r.start, r.limit, r.stride) for r in ranges)])


def concatenate(operands: Sequence[Array], dimension: int) -> Array:
    """The operands one after the other along a dimension."""
    return np.concatenate(operands, axis=dimension)


def place(size: int, low: int, interior: int, result: int, stride: int = 1) -> tuple[slice, slice]:
    """Where the elements of one dimension land: slices of the operand and of the result.

    Element ``i`` of ``size`` goes to position ``low + i * (interior + 1)``; positions outside of
    ``[0, result)`` are dropped, and so are those that ``stride`` does not divide.  Positions in the
    result slice count strides.
    """
    step = interior + 1
    first = max(0, -(low // step)) if low < 0 else 0
    last = min(size, max(0, (result - 1 - low) // step + 1)) if result else 0
    positions = range(low + first * step, low + last * step, step)
    if stride == 1 or not positions:
        skip, every = 0, 1
    else:
        every = stride // int(np.gcd(step, stride))
        skip = next((i for i in range(every) if (low + (first + i) * step) % stride == 0), size)
    kept = range(first + skip, last, every)
    if not kept:
        return slice(0, 0), slice(0, 0)
    start = (low + kept[0] * step) // stride
    move = step * every // stride
    return (
        slice(kept[0], last, every),
        slice(start, start + move * (len(kept) - 1) + 1, move),
    )


def pad(operand: Array, value: Array, padding: Sequence[PaddingDim]) -> Array:
    """``interior`` times ``value`` between elements, then ``low`` and ``high`` at the ends.

    Negative ``low`` and ``high`` crop what interior padding has made.
    """
    dims = [
        p.low + p.high + size + max(size - 1, 0) * p.interior
        for size, p in zip(operand.shape, padding, strict=True)
    ]
    result = np.full(dims, value, operand.dtype)
    places = [
        place(size, p.low, p.interior, dim)
        for size, p, dim in zip(operand.shape, padding, dims, strict=True)
    ]
    result[tuple(to for _, to in places)] = operand[tuple(source for source, _ in places)]
    return result


def iota(dims: tuple[int, ...], dimension: int, dtype: DType) -> Array:
    """The index along one dimension: integers wrap, floats round; a read-only view."""
    if 0 in dims:
        return np.zeros(dims, dtype.numpy)
    count = np.arange(dims[dimension])
    if dtype.is_integer and dtype.bits < 64:
        shift = 64 - dtype.bits
        count = (count << shift) >> shift if dtype.kind == "signed" else count % (1 << dtype.bits)
    return broadcast(count.astype(dtype.numpy), (dimension,), dims)


def _broadcast(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    dimensions = instruction.attributes.get("dimensions", ())
    return broadcast(array_of(values[0]), dimensions, instruction.array.dims)


def _reshape(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    return array_of(values[0]).reshape(instruction.array.dims)


def _transpose(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    return array_of(values[0]).transpose(instruction.attributes["dimensions"])


def _reverse(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    return np.asarray(np.flip(array_of(values[0]), instruction.attributes["dimensions"]))


def _slice(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    return slices(array_of(values[0]), instruction.attributes["slice"])


def _concatenate(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    (dimension,) = instruction.attributes["dimensions"]
    return concatenate(arrays_of(values), dimension)


def _pad(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    return pad(array_of(values[0]), array_of(values[1]), instruction.attributes["padding"])


def _iota(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    shape = instruction.array
    values_ = iota(shape.dims, instruction.attributes["iota_dimension"], shape.dtype)
    return context.round(values_, shape.dtype)


def _copy(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    (value,), (operand,) = values, instruction.operands
    if isinstance(value, tuple):
        return value
    return convert(value, operand.array.dtype, instruction.array.dtype, context)


EVALUATORS: Mapping[str, Evaluator] = op_table(
    {
        "broadcast": _broadcast,
        "concatenate": _concatenate,
        "copy": _copy,
        "dynamic-reshape": _reshape,
        "iota": _iota,
        "pad": _pad,
        "reshape": _reshape,
        "reverse": _reverse,
        "slice": _slice,
        "transpose": _transpose,
    },
    MOVING - {"bitcast"} | {"dynamic-reshape", "iota"},
)
