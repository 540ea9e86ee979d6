"""select-and-scatter: which position of a window is selected, for all windows at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from hloopt.interpret.duplicates import combine_at
from hloopt.interpret.reducer import reducer_of
from hloopt.interpret.window import window_places
from hloopt.ir import Computation, Instruction
from hloopt.kernels.library_problems import named_reducer
from hloopt.runtime.numpy.builder import Builder
from hloopt.runtime.numpy.plan import Dims, Function
from hloopt.types import Window

__all__ = ["select_and_scatter"]

_STAYS = {"GE": np.greater_equal, "GT": np.greater, "LE": np.less_equal, "LT": np.less}
_TURNED = {"GE": "LE", "GT": "LT", "LE": "GE", "LT": "GT"}


def select_and_scatter(
    builder: Builder, instruction: Instruction, operands: Sequence[int]
) -> int | None:
    """For selections by one comparison of floats, where a NaN stands for "nothing selected yet".

    A comparison with NaN is false, so that the first element of a window is selected whatever it is, and
    each one after a NaN.
    """
    stays = _comparison(instruction.attributes["select"])
    source_operand, source = instruction.operands[0].array, instruction.operands[1].array
    kind = source_operand.dtype
    if stays is None or not kind.is_float or kind is not instruction.array.dtype:
        return None
    plain = builder.context.carrier(kind) == kind.compute
    if not plain or not source.elements or not source.rank:
        return None
    window = Window.given(instruction.attributes.get("window"), source_operand.rank)
    choose = _chooser(stays, source_operand.dims, source.dims, window, kind.compute)
    context, elements, shape = builder.context, source_operand.elements, source_operand.dims
    region = instruction.attributes["scatter"]
    named = named_reducer(region)
    # A place that meets one update at most needs no order.
    ufunc = named.ufunc(step_by_step=True) if named is not None else None
    own = named is not None and named.dtypes[0] is kind
    carrier = context.carrier(kind)

    def step(array: Any, updates: Any, init: Any) -> Any:
        found, missing = choose(array)
        values = updates.reshape(-1)
        if missing is not None:
            found, values = found[~missing], values[~missing]
        result = np.full(elements, init, carrier)
        if ufunc is not None and own:
            ufunc.at(result, found, values)
        else:
            reducer = reducer_of(region, context, [kind])
            combine_at([result.reshape(-1, 1)], found, [values.reshape(-1, 1)], reducer)
        return result.reshape(shape)

    out = builder.line.slot(carrier, shape)
    return builder.line.step(step, builder.full_operands(instruction, operands), out)


def _comparison(select: Computation) -> np.ufunc | None:
    """The comparison of the selected element with a candidate that keeps it."""
    root = select.root
    if root.opcode != "compare" or root.attributes.get("type") == "TOTALORDER":
        return None
    numbers = [x.parameter_number if x.opcode == "parameter" else -1 for x in root.operands]
    direction = root.attributes["direction"]
    if direction not in _STAYS or numbers not in ([0, 1], [1, 0]):
        return None
    alike = len({parameter.array.dtype for parameter in select.parameters}) == 1
    return _STAYS[direction if numbers == [0, 1] else _TURNED[direction]] if alike else None


def _chooser(
    stays: np.ufunc, dims: Dims, output: Dims, window: Window, kind: np.dtype[Any]
) -> Function:
    """A function of an array that gives for each output the flat place of the element it selects.

    Beside them which outputs meet no element, None where all do.
    """
    strides = [prod(dims[axis + 1 :]) for axis in range(len(dims))]
    positions = []
    jumps = []
    met = np.zeros(output, np.bool_)
    ranges = [range(dim.size) for dim in window.dims]
    by_axis = [window_places(*args) for args in zip(dims, window.dims, output, strict=True)]
    for numbers in product(*ranges):
        places = [by_axis[axis][number] for axis, number in enumerate(numbers)]
        inside, at = (tuple(place[side] for place in places) for side in (0, 1))
        met[at] = True
        positions.append((inside, at))
        jumps.append(_jump(numbers, window, strides))
    base = _bases(output, window, strides)
    nowhere = None if met.all() else ~met.reshape(-1)
    narrow = np.min_scalar_type(max(len(jumps) - 1, 0))
    offsets = np.array(jumps, np.int64)

    def one_by_one(array: Any) -> Any:
        chosen = np.full(output, np.nan, kind)
        which = np.zeros(output, narrow)
        for number, (inside, at) in enumerate(positions):
            candidate, current = array[inside], chosen[at]
            moves = np.invert(stays(current, candidate))
            np.copyto(current, candidate, where=moves)
            if number:
                np.copyto(which[at], narrow.type(number), where=moves)
        return base + offsets[which.reshape(-1)], nowhere

    # Of equal elements the first one stays, or the last one is moved to.
    order = list(enumerate(positions))
    if stays in (np.greater, np.less):
        order.reverse()
    largest = stays in (np.greater, np.greater_equal)
    extremum, worst = (np.maximum, -np.inf) if largest else (np.minimum, np.inf)

    def choose(array: Any) -> Any:
        if np.isnan(array).any():
            return one_by_one(array)
        # Without branches on elements, which take ten times as long where they follow no pattern.
        best = np.full(output, worst, kind)
        for inside, at in positions:
            part = best[at]
            extremum(part, array[inside], out=part)
        which, found = np.zeros(output, narrow), np.zeros(output, np.bool_)
        for number, (inside, at) in order:
            equal = np.equal(array[inside], best[at])
            before = found[at]
            if number:
                first = np.greater(equal, before)
                which[at] += np.multiply(first, number, dtype=narrow)
            np.logical_or(before, equal, out=before)
        return base + offsets[which.reshape(-1)], nowhere

    return choose if _undilated(window) else _flat_chooser(stays, dims, output, positions, nowhere)


def _undilated(window: Window) -> bool:
    return all(dim.base_dilation == 1 for dim in window.dims)


def _flat_chooser(
    stays: np.ufunc,
    dims: Dims,
    output: Dims,
    positions: Sequence[tuple[tuple[slice, ...], tuple[slice, ...]]],
    nowhere: Any,
) -> Function:
    """With gaps between elements the place is no sum of a window's and a position's; it is kept."""
    flat = np.arange(prod(dims)).reshape(dims)

    def choose(array: Any) -> Any:
        chosen = np.full(output, np.nan, array.dtype)
        where = np.zeros(output, np.int64)
        for inside, at in positions:
            candidate, current = array[inside], chosen[at]
            moves = np.invert(stays(current, candidate))
            np.copyto(current, candidate, where=moves)
            np.copyto(where[at], flat[inside], where=moves)
        return where.reshape(-1), nowhere

    return choose


def _jump(numbers: Sequence[int], window: Window, strides: Sequence[int]) -> int:
    """How far a position of the window is from its first one."""
    steps = zip(numbers, window.dims, strides, strict=True)
    return sum(number * dim.window_dilation * stride for number, dim, stride in steps)


def _bases(output: Dims, window: Window, strides: Sequence[int]) -> Any:
    """The flat place of each window's first position, which may lie outside."""
    base = np.zeros(output, np.int64)
    for axis, (size, dim, stride) in enumerate(zip(output, window.dims, strides, strict=True)):
        line = (np.arange(size) * dim.stride - dim.pad_low) * stride
        base += line.reshape([size if at == axis else 1 for at in range(len(output))])
    return base.reshape(-1)
