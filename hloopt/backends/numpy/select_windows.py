"""select-and-scatter: which position of a window is selected, for many windows at once.

Dimensions before the first one along which a window extends are traversed a few indices at a time, so that
intermediate arrays stay in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np

from hloopt.backends.numpy.builder import Builder
from hloopt.backends.numpy.plan import Dims, Function, Slots
from hloopt.dataclass import dataclass
from hloopt.interpret.duplicates import combine_at
from hloopt.interpret.reducer import named_reducer, reducer_of
from hloopt.interpret.window import window_places
from hloopt.ir import Computation, Instruction
from hloopt.types import DType, Window, WindowDim

__all__ = ["WindowPieces", "select_and_scatter"]

# Windows that are processed together, so that intermediate arrays stay in the cache.  Selections from 3x3
# windows of f32[32,114,114,64] and f32[32,64,56,56] on Zen 5: 2^16 to 2^18 take as long, 2^20 1.5 times, all at
# once 2.4 and 1.7 times, 2^12 1.1 and 1.9 times.
_AT_ONCE: Final = 1 << 17

_STAYS: Final = {
    "GE": np.greater_equal,
    "GT": np.greater,
    "LE": np.less_equal,
    "LT": np.less,
}
_TURNED: Final = {"GE": "LE", "GT": "LT", "LE": "GE", "LT": "GT"}


@dataclass(frozen=True, slots=True)
class WindowPieces:
    """An array's dimensions with those that windows do not reach along as one, of size ``count``.

    ``operand`` and ``output`` are the dimensions of a piece and of its windows: ``step`` indices of that one.
    """

    count: int
    step: int
    operand: Dims
    output: Dims
    window: Window

    @classmethod
    def of(cls, operand: Dims, output: Dims, window: Window) -> WindowPieces:
        """Pieces of one size, for windows that are there."""
        first = 0
        while first < len(operand) and window.dims[first] == WindowDim(1):
            first += 1
        count = prod(operand[:first])
        most = max(1, min(count, _AT_ONCE // prod(output[first:])))
        step = next(step for step in range(most, 0, -1) if count % step == 0)
        inner = Window((WindowDim(1), *window.dims[first:]))
        return cls(count, step, (step, *operand[first:]), (step, *output[first:]), inner)


def select_and_scatter(
    builder: Builder, instruction: Instruction, operands: Sequence[int]
) -> Slots | None:
    """For selections by one comparison of numbers.

    The first element of a window is selected whatever it is, and each one after a NaN: a comparison with NaN
    is false.
    """
    stays = _comparison(instruction.attributes["select"])
    array, source = instruction.operands[0].array, instruction.operands[1].array
    kind = array.dtype
    if stays is None or not _is_ordered(kind) or kind is not instruction.array.dtype:
        return None
    if not source.elements or not source.rank:
        return None
    pieces = WindowPieces.of(array.dims, source.dims, instruction.window)
    places = _Places(pieces.operand, pieces.output, pieces.window)
    carrier = builder.context.carrier(kind)
    compute = kind.compute if kind.is_float else carrier
    choose = _chooser(stays, places, compute)
    scatter = _scatter(builder, instruction)

    def step(array: Any, updates: Any, init: Any, out: Any = None) -> Any:
        whole = out is not None and out.flags.c_contiguous
        result = out if whole else np.empty(array.shape, carrier)
        result[...] = init
        elements = array.reshape(pieces.count, *pieces.operand[1:])
        values = updates.reshape(pieces.count, -1)
        target = result.reshape(pieces.count, -1)
        for start in range(0, pieces.count, pieces.step):
            part = slice(start, start + pieces.step)
            found = choose(elements[part].astype(compute, copy=False))
            given = values[part].reshape(-1)
            if places.met is not None:
                found, given = found[places.met], given[places.met]
            scatter(target[part].reshape(-1), found, given)
        return result

    return builder.applied(instruction, operands, step, fills=True)


def _is_ordered(kind: DType) -> bool:
    return kind.is_float or (kind.is_integer and kind.bits >= 8)


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


def _scatter(builder: Builder, instruction: Instruction) -> Function:
    """A function that puts values into a flat array at places, in their order."""
    context, kind = builder.context, instruction.array.dtype
    region = instruction.attributes["scatter"]
    named = named_reducer(region)
    ufunc = named.ufunc(step_by_step=True) if named is not None else None
    if ufunc is not None and named is not None and named.dtypes[0] is kind:
        return ufunc.at

    def combine(target: Any, places: Any, values: Any) -> None:
        reducer = reducer_of(region, context, [kind])
        combine_at([target.reshape(-1, 1)], places, [values.reshape(-1, 1)], reducer)

    return combine


class _Places:
    """Where the elements of windows lie.

    inside, at  for each position the elements that lie there, and whose windows they are in
    jumps       how far each position is from the first one, None where that is not the same for all windows
    base        the flat place of each window's first position, which may lie outside
    met         which windows meet an element, None where all do
    """

    def __init__(self, operand: Dims, source: Dims, window: Window) -> None:
        self.operand, self.source = operand, source
        strides = [prod(operand[axis + 1 :]) for axis in range(len(operand))]
        by_axis = list(map(window_places, operand, window.dims))
        self.inside: list[tuple[slice, ...]] = []
        self.at: list[tuple[slice, ...]] = []
        jumps = []
        met = np.zeros(source, np.bool_)
        for numbers in product(*(range(dim.size) for dim in window.dims)):
            found = [by_axis[axis][number] for axis, number in enumerate(numbers)]
            self.inside.append(tuple(place[0] for place in found))
            self.at.append(tuple(place[1] for place in found))
            met[self.at[-1]] = True
            steps = zip(numbers, window.dims, strides, strict=True)
            jumps.append(sum(at * dim.window_dilation * stride for at, dim, stride in steps))
        undilated = all(dim.base_dilation == 1 for dim in window.dims)
        self.jumps = np.array(jumps, np.int64) if undilated else None
        self.base = _bases(source, window, strides) if undilated else None
        self.met = None if met.all() else met.reshape(-1)


def _bases(output: Dims, window: Window, strides: Sequence[int]) -> Any:
    base = np.zeros(output, np.int64)
    for axis, (size, dim, stride) in enumerate(zip(output, window.dims, strides, strict=True)):
        line = (np.arange(size) * dim.stride - dim.pad_low) * stride
        base += line.reshape([size if at == axis else 1 for at in range(len(output))])
    return base.reshape(-1)


def _chooser(stays: np.ufunc, places: _Places, kind: np.dtype[Any]) -> Function:
    """A function of an array that gives for each window the flat place of the element it selects."""
    if places.jumps is None or places.base is None:
        return _one_by_one(stays, places)
    largest = stays in (np.greater, np.greater_equal)
    first_stays = stays in (np.greater_equal, np.less_equal)
    extremum = np.maximum if largest else np.minimum
    limits: Any = np.iinfo(kind) if kind.kind in "iu" else None
    worst: Any = -np.inf if largest else np.inf
    if limits is not None:
        worst = limits.min if largest else limits.max
    # Of equal elements the first one stays, or the last one is moved to: the one of the greatest rank.
    count = len(places.inside)
    ranks = range(count, 0, -1) if first_stays else range(1, count + 1)
    narrow = np.min_scalar_type(count)
    offsets = np.zeros(count + 1, np.int64)
    offsets[list(ranks)] = places.jumps
    base, output, others = places.base, places.source, _one_by_one(stays, places)
    steps = list(zip(ranks, places.inside, places.at, strict=True))

    def choose(array: Any) -> Any:
        best = np.full(output, worst, kind)
        for _, inside, at in steps:
            part = best[at]
            extremum(part, array[inside], out=part)
        if limits is None and np.isnan(best).any():
            return others(array)
        # Without branches on elements, which take ten times as long where they follow no pattern.
        which = np.zeros(output, narrow)
        for rank, inside, at in steps:
            part = which[at]
            ranked = np.multiply(np.equal(array[inside], best[at]), rank, dtype=narrow)
            np.maximum(part, ranked, out=part)
        found = offsets.take(which.reshape(-1))
        return np.add(found, base, out=found)

    return choose


def _one_by_one(stays: np.ufunc, places: _Places) -> Function:
    """Position by position, each element where it is kept: for NaNs, and with gaps between elements."""
    size, output = prod(places.operand), places.source

    def choose(array: Any) -> Any:
        flat = np.arange(size).reshape(places.operand)
        chosen = np.zeros(output, array.dtype)
        where, begun = np.zeros(output, np.int64), np.zeros(output, np.bool_)
        for inside, at in zip(places.inside, places.at, strict=True):
            candidate, current = array[inside], chosen[at]
            moves = np.invert(stays(current, candidate) & begun[at])
            np.copyto(current, candidate, where=moves)
            np.copyto(where[at], flat[inside], where=moves)
            begun[at] = True
        return where.reshape(-1)

    return choose
