"""Ops that move elements: views where NumPy has them, planned when the line is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from hloopt.interpret.movement import iota
from hloopt.interpret.tiling import is_tiled, order
from hloopt.ir import Instruction
from hloopt.runtime.numpy.builder import Builder
from hloopt.runtime.numpy.plan import Dims
from hloopt.runtime.numpy.values import Slots
from hloopt.types import ArrayShape

__all__ = ["EMITTERS", "Emitter"]

Emitter = Callable[[Builder, Instruction, Sequence[int]], "Slots | None"]
"""Adds an instruction whose operands are arrays; None leaves it to its evaluator."""


def _stretches(builder: Builder, slot: int) -> bool:
    """Whether an array is a single element that stands for all elements of a value."""
    return not builder.line.dims[slot]


def _broadcast(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int:
    """The operand with its dimensions in their places; nothing is repeated."""
    (slot,) = operands
    if _stretches(builder, slot):
        return slot
    targets = instruction.attributes.get("dimensions", ())
    rank = len(targets)
    slot = builder.aligned(slot, rank)
    sizes = builder.line.dims[slot]
    order = sorted(range(rank), key=targets.__getitem__)
    expanded = [1] * len(instruction.array.dims)
    for axis, target in enumerate(targets):
        expanded[target] = sizes[axis]
    first = min(targets, default=0)
    dims = tuple(expanded[first:])
    if order == sorted(order):
        return _reshaped(builder, slot, dims)
    return builder.view(lambda x: x.transpose(order).reshape(dims), slot, dims)


def _reshaped(builder: Builder, slot: int, dims: Dims) -> int:
    if builder.line.dims[slot] == dims:
        return slot
    before = [size for size in builder.line.dims[slot] if size != 1]
    same = before == [size for size in dims if size != 1]
    return builder.view(lambda x: x.reshape(dims), slot, dims, reshapes=same)


def _reshape(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int:
    (slot,) = operands
    if _stretches(builder, slot):
        return slot
    if prod(builder.line.dims[slot]) == 1:
        return _reshaped(builder, slot, ())
    slot = builder.full(slot, instruction.operands[0].array.dims)
    return _reshaped(builder, slot, instruction.array.dims)


def _transpose(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int:
    return _transposed(builder, operands[0], instruction.attributes["dimensions"])


def _transposed(builder: Builder, slot: int, order: Sequence[int]) -> int:
    if _stretches(builder, slot) or tuple(order) == tuple(range(len(order))):
        return slot
    slot = builder.aligned(slot, len(order))
    dims = tuple(builder.line.dims[slot][axis] for axis in order)
    return builder.view(lambda x: x.transpose(order), slot, dims)


def _slice(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int:
    ranges = instruction.attributes["slice"]
    picks = tuple(slice(r.start, r.limit, r.stride) for r in ranges)
    return _picked(builder, instruction, operands[0], picks)


def _reverse(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int:
    turned = instruction.attributes["dimensions"]
    picks = tuple(
        slice(None, None, -1) if axis in turned else slice(None)
        for axis in range(instruction.array.rank)
    )
    return _picked(builder, instruction, operands[0], picks)


def _picked(builder: Builder, instruction: Instruction, slot: int, picks: tuple[slice, ...]) -> int:
    """Slices of the dimensions that the array has; those it stretches along stay as they are."""
    if _stretches(builder, slot):
        return slot
    whole = instruction.operands[0].array.dims
    slot = builder.aligned(slot, len(whole))
    sizes = builder.line.dims[slot]
    index = tuple(
        pick if size == logical else slice(None)
        for pick, size, logical in zip(picks, sizes, whole, strict=True)
    )
    dims = tuple(len(range(size)[pick]) for size, pick in zip(sizes, index, strict=True))
    return builder.view(lambda x: x[index], slot, dims)


def _bitcast(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int | None:
    """Of one element type: the elements in the order of one layout, read in that of the other."""
    target, source = instruction.shape, instruction.operands[0].shape
    if not isinstance(target, ArrayShape) or not isinstance(source, ArrayShape):
        return None
    if source.dtype is not target.dtype or source.elements != target.elements:
        return None
    if is_tiled(source) or is_tiled(target):
        return None
    before, after = order(source)[::-1], order(target)[::-1]
    slot = builder.full(operands[0], source.dims)
    slot = _transposed(builder, slot, before)
    slot = _reshaped(builder, slot, tuple(target.dims[axis] for axis in after))
    return _transposed(builder, slot, [after.index(axis) for axis in range(target.rank)])


def _concatenate(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int:
    (dimension,) = instruction.attributes["dimensions"]
    pairs = zip(operands, instruction.operands, strict=True)
    full = tuple(builder.full(slot, operand.array.dims) for slot, operand in pairs)
    if len(full) == 1:
        return full[0]
    out = builder.line.slot(builder.line.kinds[full[0]], instruction.array.dims)

    def concatenate(*arrays: Any) -> Any:
        return np.concatenate(arrays, axis=dimension)

    return builder.line.step(concatenate, full, out)


def _iota(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int:
    """Counted along its dimension, stretched along the others."""
    shape = instruction.array
    axis = instruction.attributes["iota_dimension"]
    if not shape.elements:
        return builder.constant(np.zeros(shape.dims, builder.context.carrier(shape.dtype)))
    count = iota((shape.dims[axis],), 0, shape.dtype)
    dims = (shape.dims[axis],) + (1,) * (shape.rank - axis - 1)
    return builder.constant(builder.context.round(count, shape.dtype).reshape(dims))


EMITTERS: Mapping[str, Emitter] = {
    "bitcast": _bitcast,
    "broadcast": _broadcast,
    "concatenate": _concatenate,
    "iota": _iota,
    "reshape": _reshape,
    "reverse": _reverse,
    "slice": _slice,
    "transpose": _transpose,
}
