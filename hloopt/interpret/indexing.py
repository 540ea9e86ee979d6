"""Slices at computed places, gather and scatter: pure functions of arrays, and their evaluators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.interpret.context import Context, Evaluator, Value, array_of, arrays_of
from hloopt.interpret.duplicates import combine_at
from hloopt.interpret.reducer import Reducer, reducer_of
from hloopt.ir import Instruction
from hloopt.ops.traits import INDEXING, op_table
from hloopt.types import Array, GatherDims, ScatterDims

__all__ = [
    "EVALUATORS",
    "Windows",
    "box",
    "clamped",
    "dynamic_slice",
    "dynamic_update_slice",
    "gather",
    "scatter",
    "start_indices",
]


def clamped(starts: Sequence[Array], dims: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Starts moved so that ``sizes`` fit into ``dims``."""
    # Python integers, so that unsigned values above int64 are clamped as what they are.
    return [
        min(max(int(start), 0), dim - size)
        for start, dim, size in zip(starts, dims, sizes, strict=True)
    ]


def box(begins: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    """The slices of ``sizes`` elements from ``begins`` on."""
    return tuple(slice(begin, begin + size) for begin, size in zip(begins, sizes, strict=True))


def start_indices(values: Sequence[Value], rank: int) -> list[Array]:
    """One scalar a dimension; the older form has them all in one vector."""
    arrays = arrays_of(values)
    if len(arrays) == 1 and arrays[0].ndim == 1:
        return [np.asarray(start) for start in arrays[0]]
    assert len(arrays) == rank
    return arrays


def dynamic_slice(operand: Array, starts: Sequence[Array], sizes: Sequence[int]) -> Array:
    """``sizes`` elements from ``starts``, which are clamped so that the slice is inside; a view."""
    # Of rank 0, NumPy gives a scalar.
    return np.asarray(operand[box(clamped(starts, operand.shape, sizes), sizes)])


def dynamic_update_slice(operand: Array, update: Array, starts: Sequence[Array]) -> Array:
    """A copy of ``operand`` with ``update`` at ``starts``, clamped so that it is inside."""
    result = operand.copy()
    result[box(clamped(starts, operand.shape, update.shape), update.shape)] = update
    return result


@dataclass(frozen=True)
class Windows:
    """Where the windows of a gather or scatter start.

    ``starts`` maps operand dimensions to start indices, an int64 array over the batch dimensions
    ``batch``; dimensions that are not in it start at 0 everywhere.
    """

    batch: tuple[int, ...]
    starts: dict[int, Array]

    @staticmethod
    def of(indices: Array, dims: GatherDims | ScatterDims) -> Windows:
        """As the indices say, not clamped."""
        if dims.index_vector_dim == indices.ndim:
            indices = indices[..., np.newaxis]
        vectors = np.moveaxis(indices, dims.index_vector_dim, -1)
        batch = vectors.shape[:-1]
        starts = {dim: _as_int64(vectors[..., k]) for k, dim in enumerate(dims.index_map)}
        for dim, axis in dims.batching:
            starts[dim] = np.broadcast_to(_along(axis, len(batch), batch[axis]), batch)
        return Windows(batch, starts)


def _as_int64(indices: Array) -> Array:
    if indices.dtype == np.uint64:
        indices = np.minimum(indices, np.uint64(np.iinfo(np.int64).max))
    return indices.astype(np.int64)


def gather(operand: Array, indices: Array, dims: GatherDims) -> Array:
    """Slices of ``operand`` at ``indices``, clamped so that each is inside.

    Offset dimensions of the result are those of the slices (collapsed and batching ones left
    out), the others are those of the indices.  Slices without elements, of a dropped dimension too, give zeros.
    """
    windows = Windows.of(indices, dims)
    sizes = dims.slice_sizes
    offset = dims.window_dims(operand.ndim)
    # A dimension taken whole starts at 0 after clamping, and stays a plain dimension.
    whole = [dim for dim in offset if sizes[dim] == operand.shape[dim]]
    partial = [dim for dim in offset if dim not in whole]
    picked = [dim for dim in range(operand.ndim) if dim not in whole]
    rank = len(windows.batch) + len(partial)
    if 0 in sizes:
        shape = (*windows.batch, *(sizes[dim] for dim in partial + whole))
        taken = np.zeros(shape, operand.dtype)
    else:
        picks = []
        for dim in picked:
            start = windows.starts.get(dim, np.zeros((1,) * len(windows.batch), np.int64))
            start = np.clip(start, 0, operand.shape[dim] - sizes[dim])
            index = start.reshape(start.shape + (1,) * len(partial))
            if dim in partial:
                index = index + _along(len(windows.batch) + partial.index(dim), rank, sizes[dim])
            picks.append(index)
        shape = (*windows.batch, *(sizes[dim] for dim in partial))
        source = operand.transpose([*picked, *whole])
        if picks:
            picks[0] = np.broadcast_to(picks[0], shape)
            taken = np.asarray(source[tuple(picks)])
        else:
            taken = np.broadcast_to(source, shape + source.shape)
    return _arranged(taken, len(windows.batch), partial + whole, offset, dims.offset_dims)


def _along(axis: int, rank: int, size: int) -> Array:
    place = [1] * rank
    place[axis] = size
    return np.arange(size).reshape(place)


def _arranged(
    taken: Array, batch: int, found: Sequence[int], offset: Sequence[int], places: Sequence[int]
) -> Array:
    """Batch dimensions and then ``found`` ones, put in the order of a gather's result."""
    source = {place: batch + found.index(dim) for place, dim in zip(places, offset, strict=True)}
    rest = iter(range(batch))
    return taken.transpose([source[k] if k in source else next(rest) for k in range(taken.ndim)])


def scatter(
    operands: Sequence[Array],
    indices: Array,
    updates: Sequence[Array],
    dims: ScatterDims,
    reducer: Reducer,
) -> list[Array]:
    """Copies of ``operands`` into which windows of ``updates`` are combined at ``indices``.

    A window that is not wholly inside is left out.  Windows are combined in row-major order of the
    updates' scatter dimensions, so that duplicates accumulate in that order.
    """
    if not operands[0].size or not updates[0].size:
        return [operand.copy() for operand in operands]
    windows = Windows.of(indices, dims)
    shape = operands[0].shape
    window = dims.windows(len(shape))
    size = dims.window_sizes(len(shape), updates[0].shape)
    whole = [dim for dim in window if size[dim] == shape[dim] and dim not in windows.starts]
    partial = [dim for dim in window if dim not in whole]
    picked = [dim for dim in range(len(shape)) if dim not in whole]
    inside = np.ones(windows.batch, np.bool_)
    for dim, start in windows.starts.items():
        inside &= (start >= 0) & (start <= shape[dim] - size[dim])
    rows = _target_rows(windows, shape, size, picked, partial)[inside].reshape(-1)
    axes = [*dims.batch_dims(updates[0].ndim), *(window[dim] for dim in partial + whole)]
    block = prod(shape[dim] for dim in whole)
    order = [*picked, *whole]
    targets = [
        np.ascontiguousarray(operand.transpose(order)).reshape(-1, block).copy()
        for operand in operands
    ]
    sources = [update.transpose(axes)[inside].reshape(-1, block) for update in updates]
    combine_at(targets, rows, sources, reducer)
    back = np.argsort(order)
    return [target.reshape([shape[dim] for dim in order]).transpose(back) for target in targets]


def _target_rows(
    windows: Windows,
    shape: Sequence[int],
    size: Sequence[int],
    picked: Sequence[int],
    partial: Sequence[int],
) -> Array:
    """For every batch position and window position the flat index over the picked dimensions."""
    batch = len(windows.batch)
    rank = batch + len(partial)
    rows = np.zeros((*windows.batch, *(size[dim] for dim in partial)), np.int64)
    stride = 1
    for dim in reversed(picked):
        start = windows.starts.get(dim)
        if start is not None:
            rows += start.reshape(start.shape + (1,) * len(partial)) * stride
        if dim in partial:
            rows += _along(batch + partial.index(dim), rank, size[dim]) * stride
        stride *= shape[dim]
    return rows


def _dynamic_slice(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    operand = array_of(values[0])
    sizes = instruction.attributes["dynamic_slice_sizes"]
    return dynamic_slice(operand, start_indices(values[1:], operand.ndim), sizes)


def _dynamic_update_slice(
    instruction: Instruction, values: tuple[Value, ...], context: Context
) -> Value:
    operand, update = arrays_of(values[:2])
    return dynamic_update_slice(operand, update, start_indices(values[2:], operand.ndim))


def _gather(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    operand, indices = arrays_of(values)
    return gather(operand, indices, GatherDims.of(instruction.attributes))


def _scatter(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    count = len(values) // 2
    arrays = arrays_of(values)
    kinds = [operand.array.dtype for operand in instruction.operands[:count]]
    reducer = reducer_of(instruction.attributes["to_apply"], context, kinds)
    results = scatter(
        arrays[:count],
        arrays[count],
        arrays[count + 1 :],
        ScatterDims.of(instruction.attributes),
        reducer,
    )
    return results[0] if count == 1 else tuple(results)


EVALUATORS: Mapping[str, Evaluator] = op_table(
    {
        "dynamic-slice": _dynamic_slice,
        "dynamic-update-slice": _dynamic_update_slice,
        "gather": _gather,
        "scatter": _scatter,
    },
    INDEXING | {"scatter"},
)
