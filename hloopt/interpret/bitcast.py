"""``bitcast`` and ``bitcast-convert``: the same bits seen as another type.

``bitcast`` reinterprets a buffer: elements lie in the order of their layouts.  ``bitcast-convert``
reinterprets elements: wide ones split into a new last dimension of narrow ones, lowest bits first, or the
other way round.
Types narrower than a byte are stored one element a byte and packed densely, lowest bits first, where a
wider type sees them.
"""

from __future__ import annotations

import numpy as np

from hloopt.interpret.context import Check, Context, Evaluator, Value, array_of
from hloopt.interpret.tiling import is_tiled, order, taken_elements
from hloopt.ir import Instruction
from hloopt.types import Array, ArrayShape, DType

__all__ = [
    "CHECKS",
    "EVALUATORS",
    "bitcast",
    "bitcast_convert",
    "from_bytes",
    "from_physical",
    "packed_bytes",
    "to_physical",
]


def to_physical(array: Array, minor_to_major: tuple[int, ...]) -> Array:
    """The elements of a logical array as a flat array in the order of a layout."""
    return np.ascontiguousarray(array.transpose(minor_to_major[::-1])).reshape(-1)


def from_physical(flat: Array, dims: tuple[int, ...], minor_to_major: tuple[int, ...]) -> Array:
    """The logical array of ``dims`` whose elements lie in ``flat`` in the order of a layout."""
    order = minor_to_major[::-1]
    physical = flat.reshape([dims[axis] for axis in order])
    logical = physical.transpose(np.argsort(order))
    return np.ascontiguousarray(logical).reshape(dims)  # NumPy makes rank 0 contiguous as rank 1


def packed_bytes(flat: Array, dtype: DType) -> Array:
    """The bytes of a flat array; elements narrower than a byte are packed, lowest bits first.

    A last byte that is not full has zeros in its high bits.
    """
    raw = np.ascontiguousarray(flat).view(np.uint8)
    if dtype.bits >= 8:
        return raw
    per_byte, mask = 8 // dtype.bits, (1 << dtype.bits) - 1
    padded = np.zeros(-(-raw.size // per_byte) * per_byte, np.uint8)
    padded[: raw.size] = raw & np.uint8(mask)
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(dtype.bits)
    packed: Array = np.bitwise_or.reduce(padded.reshape(-1, per_byte) << shifts, axis=1)
    return packed


def from_bytes(raw: Array, dtype: DType, count: int) -> Array:
    """The first ``count`` elements of packed bytes: the inverse of ``packed_bytes``."""
    raw = np.ascontiguousarray(raw)
    if dtype.is_pred:
        truth: Array = raw[:count] != 0
        return truth
    if dtype.bits >= 8:
        return raw[: count * dtype.numpy.itemsize].view(dtype.numpy)
    per_byte, mask = 8 // dtype.bits, (1 << dtype.bits) - 1
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(dtype.bits)
    codes = (raw[:, None] >> shifts & np.uint8(mask)).reshape(-1)[:count]
    return np.ascontiguousarray(codes).view(dtype.numpy)


def bitcast(array: Array, source: ArrayShape, target: ArrayShape) -> Array:
    """``array`` of shape ``source``, its buffer seen as one of shape ``target``, layouts and all.

    The target may take fewer bytes than the source: it is the beginning of the buffer.
    """
    if is_tiled(source) or is_tiled(target):
        return _tiled(array, source, target)
    flat = to_physical(array, order(source))
    if source.dtype is not target.dtype:
        flat = from_bytes(packed_bytes(flat, source.dtype), target.dtype, target.elements)
    return from_physical(flat[: target.elements], target.dims, order(target))


def _tiled(array: Array, source: ArrayShape, target: ArrayShape) -> Array:
    """``bitcast`` between layouts with tiles, of elements of one width."""
    flat = np.ascontiguousarray(array).reshape(-1)[taken_elements(source, target)]
    if source.dtype is not target.dtype:
        flat = from_bytes(packed_bytes(flat, source.dtype), target.dtype, target.elements)
    return flat.reshape(target.dims)


def bitcast_convert(array: Array, source: DType, target: DType) -> Array:
    """``array`` of ``source`` elements seen as ``target`` elements.

    Equal widths keep the dimensions; narrower elements add a last dimension, wider ones take the last
    dimension away.
    """
    dims: tuple[int, ...] = array.shape
    if source.bits > target.bits:
        dims = (*dims, source.bits // target.bits)
    elif source.bits < target.bits:
        dims = dims[:-1]
    count = int(np.prod(dims, dtype=np.int64))
    return from_bytes(packed_bytes(array.reshape(-1), source), target, count).reshape(dims)


def _evaluate_bitcast(
    instruction: Instruction, operands: tuple[Value, ...], context: Context
) -> Value:
    source, target = instruction.operands[0].array, instruction.array
    array = array_of(operands[0])
    if source.dtype is not target.dtype:
        array = context.narrow(array, source.dtype)
    return context.round(bitcast(array, source, target), target.dtype)


def _check_bitcast(instruction: Instruction) -> str | None:
    source, target = instruction.operands[0].shape, instruction.shape
    for shape in (source, target):
        if not isinstance(shape, ArrayShape):
            return f"bitcast of {shape}, which is not an array"
    assert isinstance(source, ArrayShape)
    assert isinstance(target, ArrayShape)
    if is_tiled(source) or is_tiled(target):
        return _check_tiled(source, target)
    bits = [shape.elements * shape.dtype.bits for shape in (source, target)]
    if min(source.dtype.bits, target.dtype.bits) < 8 and bits[0] != bits[1]:
        return f"bitcast of {source} to {target}: {bits[0]} bits are not {bits[1]}"
    return None


def _check_tiled(source: ArrayShape, target: ArrayShape) -> str | None:
    if source.dtype.bits != target.dtype.bits:
        return f"bitcast of {source} to {target}: tiles of elements of different widths"
    try:
        taken_elements(source, target)
    except ValueError as error:
        return f"bitcast of {source} to {target}: {error}"
    return None


def _evaluate_bitcast_convert(
    instruction: Instruction, operands: tuple[Value, ...], context: Context
) -> Value:
    source, target = instruction.operands[0].array.dtype, instruction.array.dtype
    array = array_of(operands[0])
    if source is target:
        return array
    return context.round(bitcast_convert(context.narrow(array, source), source, target), target)


EVALUATORS: dict[str, Evaluator] = {
    "bitcast": _evaluate_bitcast,
    "bitcast-convert": _evaluate_bitcast_convert,
}

CHECKS: dict[str, Check] = {"bitcast": _check_bitcast}
