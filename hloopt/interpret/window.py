"""Ops that slide a window over an array: reduce-window, select-and-scatter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np

from hloopt.interpret.context import Context, Evaluator, Value, array_of, arrays_of
from hloopt.interpret.duplicates import combine_at
from hloopt.interpret.movement import place
from hloopt.interpret.reducer import Apply, Reducer, reducer_of, rounded_results
from hloopt.interpret.regions import passed
from hloopt.interpret.scalars import FEW_LANES, running
from hloopt.ir import Instruction
from hloopt.types import Array, Window, WindowDim, dilated

__all__ = [
    "EVALUATORS",
    "reduce_window",
    "select_and_scatter",
    "window_places",
]

# A window of more positions than this is combined by doubling where the reducer allows it.
_MANY_POSITIONS = 64


def window_places(size: int, window: WindowDim) -> list[tuple[slice, slice]]:
    """For each window position: the operand's elements it meets, and at which outputs.

    Output ``o`` meets element ``i`` at position ``w`` where
    ``o * stride + w * window_dilation - pad_low == i * base_dilation``.
    """
    reach = dilated(window.positions(size), window.stride)
    return [
        place(
            size,
            window.pad_low - position * window.window_dilation,
            window.base_dilation - 1,
            reach,
            window.stride,
        )
        for position in range(window.size)
    ]


def reduce_window(
    operands: Sequence[Array], inits: Sequence[Array], window: Window, reducer: Reducer
) -> list[Array]:
    """Each output is the fold of its window, from ``inits``, in row-major order of the window.

    Positions outside of the operand, or between dilated elements, take no part.  Sums of floats are
    accumulated in double precision, in any order; the caller rounds them to the element type.
    """
    dims = operands[0].shape
    output = window.positions(dims)
    combine = reducer.combine()
    if reducer.wide is not None:
        operands = [x.astype(reducer.dtypes[0].compute).astype(reducer.wide) for x in operands]
        inits = [init.astype(reducer.wide) for init in inits]
    if window.size > _MANY_POSITIONS:
        running = _running_axis(dims, window, output)
        if running is not None and (reducer.accumulating is not None or not reducer.groupable):
            return _running(operands, inits, running, window.dims[running], output, reducer)
        if reducer.groupable:
            return _by_doubling(operands, inits, window, output, combine)
    results = [np.full(output, init) for init in inits]
    for places in product(*map(window_places, dims, window.dims)):
        source = tuple(where for where, _ in places)
        target = tuple(where for _, where in places)
        new = combine([r[target] for r in results], [x[source] for x in operands])
        for result, array in zip(results, new, strict=True):
            result[target] = array
    return results


def _running_axis(dims: Sequence[int], window: Window, output: Sequence[int]) -> int | None:
    """The one axis along which all windows begin with the first element and the others are single
    elements, so that each window is the beginning of the next: a cumulative sum, product ...
    """
    axes = [axis for axis, dim in enumerate(window.dims) if dim != WindowDim(1)]
    if len(axes) != 1:
        return None
    (axis,) = axes
    dim = window.dims[axis]
    plain = dim.base_dilation == dim.window_dilation == 1
    return axis if plain and (output[axis] - 1) * dim.stride <= dim.pad_low else None


def _running(
    operands: Sequence[Array],
    inits: Sequence[Array],
    axis: int,
    window: WindowDim,
    output: Sequence[int],
    reducer: Reducer,
) -> list[Array]:
    """Windows that all begin with the first element: what the fold is after each element, picked."""
    columns = [np.moveaxis(x, axis, 0) for x in operands]
    count = columns[0].shape[0]
    starts = [np.broadcast_to(init, x.shape[1:]) for init, x in zip(inits, columns, strict=True)]
    ufunc = reducer.accumulating
    step = reducer.scalars() if starts[0].size <= FEW_LANES else None
    if ufunc is not None:
        whole = np.concatenate([starts[0][np.newaxis], columns[0]])
        folds = [ufunc.accumulate(whole, axis=0, dtype=whole.dtype)]
    elif step is not None:
        folds = running(columns, inits, step)
    else:
        folds = [np.empty((count + 1, *x.shape[1:]), x.dtype) for x in columns]
        for at in range(count + 1):
            for fold, start in zip(folds, starts, strict=True):
                fold[at] = start
            if at < count:
                starts = reducer.apply(starts, [column[at] for column in columns])
    ends = np.arange(output[axis]) * window.stride - window.pad_low + window.size
    return [np.moveaxis(fold[np.clip(ends, 0, count)], 0, axis) for fold in folds]


def _by_doubling(
    operands: Sequence[Array],
    inits: Sequence[Array],
    window: Window,
    output: Sequence[int],
    combine: Apply,
) -> list[Array]:
    """Windows one dimension after the other, each in log2(size) steps; innermost first keeps
    order.
    """
    arrays = list(operands)
    valid = np.ones((1,) * len(output), np.bool_)
    for axis in reversed(range(len(output))):
        arrays, alive = _along(arrays, axis, window.dims[axis], output[axis], combine)
        valid = valid & alive
    new = combine([np.full(tuple(output), init) for init in inits], arrays)
    return [np.where(valid, n, init) for n, init in zip(new, inits, strict=True)]


def _along(
    arrays: Sequence[Array], axis: int, window: WindowDim, output: int, combine: Apply
) -> tuple[list[Array], Array]:
    """All windows along one axis, and where (shaped to broadcast along it) they met any element."""
    size = arrays[0].shape[axis]
    step = window.window_dilation
    length = dilated(output, window.stride)
    span = length + (window.size - 1) * step
    source, target = place(size, window.pad_low, window.base_dilation - 1, span)
    alive = np.zeros(span, np.bool_)
    alive[target] = True

    def laid(array: Array) -> Array:
        moved = np.moveaxis(array, axis, 0)
        wide = np.zeros((span, *moved.shape[1:]), array.dtype)
        wide[target] = moved[source]
        return wide

    block = [laid(array) for array in arrays]
    covered, result, result_alive = 0, block, alive
    width = 1
    while True:
        if window.size & width:
            begin = covered * step
            part = [b[begin : begin + length] for b in block]
            part_alive = alive[begin : begin + length]
            if covered:
                result, result_alive = _joined(result, result_alive, part, part_alive, combine)
            else:
                result, result_alive = part, part_alive
            covered += width
        if covered == window.size:
            break
        shift = width * step
        end = alive.size - shift
        block, alive = _joined(
            [b[:end] for b in block],
            alive[:end],
            [b[shift:] for b in block],
            alive[shift:],
            combine,
        )
        width *= 2
    place_ = [1] * arrays[0].ndim
    place_[axis] = output
    results = [np.moveaxis(r[:: window.stride], 0, axis) for r in result]
    return results, result_alive[:: window.stride].reshape(place_)


def _joined(
    left: Sequence[Array],
    left_alive: Array,
    right: Sequence[Array],
    right_alive: Array,
    combine: Apply,
) -> tuple[list[Array], Array]:
    new = combine(left, right)
    both = left_alive & right_alive
    if both.all():
        return new, both
    place_ = (-1,) + (1,) * (left[0].ndim - 1)
    mask, only_left = both.reshape(place_), left_alive.reshape(place_)
    return [
        np.where(mask, n, np.where(only_left, x, y))
        for n, x, y in zip(new, left, right, strict=True)
    ], left_alive | right_alive


def select_and_scatter(
    operand: Array,
    source: Array,
    init: Array,
    window: Window,
    select: Callable[[Array, Array], Array],
    reducer: Reducer,
) -> Array:
    """Each source element is combined into the element its window selects.

    A window is scanned in row-major order; its first element inside the operand is selected until
    ``select(selected, candidate)`` is false, which moves the selection to the candidate.  The
    results start as ``init``; ``scatter(current, source)`` combines in row-major order of the
    source.  (XLA's compilers and StableHLO have this order of arguments; XLA's evaluator has the other.)
    """
    dims, output = operand.shape, source.shape
    chosen = np.zeros(output, operand.dtype)
    where = np.full(output, -1, np.int64)
    flat = np.arange(operand.size).reshape(dims)
    for places in product(*map(window_places, dims, window.dims)):
        inside = tuple(where_ for where_, _ in places)
        at = tuple(where_ for _, where_ in places)
        candidate = operand[inside]
        stays = (where[at] >= 0) & select(chosen[at], candidate)
        chosen[at] = np.where(stays, chosen[at], candidate)
        where[at] = np.where(stays, where[at], flat[inside])
    result = np.full((operand.size, 1), init)
    found = where.reshape(-1) >= 0
    values = source.reshape(-1, 1)[found]
    combine_at([result], where.reshape(-1)[found], [values], reducer)
    return result.reshape(dims)


def _reduce_window(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    arrays = arrays_of(values)
    count = len(arrays) // 2
    reducer = reducer_of(instruction.attributes["to_apply"], context)
    results = reduce_window(arrays[:count], arrays[count:], instruction.window, reducer)
    return rounded_results(results, reducer, instruction, context)


def _select_and_scatter(
    instruction: Instruction, values: tuple[Value, ...], context: Context
) -> Value:
    operand, source, init = arrays_of(values)
    region = instruction.attributes["select"]
    reducer = reducer_of(instruction.attributes["scatter"], context, [instruction.array.dtype])

    def select(selected: Array, candidate: Array) -> Array:
        return array_of(context.apply(region, passed(region, [selected, candidate], context)))

    return select_and_scatter(operand, source, init, instruction.window, select, reducer)


EVALUATORS: Mapping[str, Evaluator] = {
    "reduce-window": _reduce_window,
    "select-and-scatter": _select_and_scatter,
}
