"""reduce-window: positions planned when the line is made, one call of a ufunc each for a piece when it runs.

Associative folds (integers, extrema) run one dimension after the other, so that a window
takes the sum of its sizes in calls, not their product.  Windows with general regions, and of many positions
whose order matters, go through the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from hloopt.backends.numpy import select_windows
from hloopt.backends.numpy.builder import Builder
from hloopt.backends.numpy.cumulative import accumulate, running_sums
from hloopt.backends.numpy.movement import Emitter
from hloopt.backends.numpy.plan import Dims, Function, Slots
from hloopt.backends.numpy.select_windows import WindowPieces
from hloopt.interpret.context import Context
from hloopt.interpret.reducer import Reducer, named_reducer, reducer_of
from hloopt.interpret.window import reduce_window, window_places
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, DType, Window, WindowDim

__all__ = ["EMITTERS"]

# A window of more positions than this is left to the interpreter, which doubles them.
_MANY_POSITIONS = 64

_Place: TypeAlias = "tuple[tuple[slice, ...], tuple[slice, ...]]"
_Fold: TypeAlias = Callable[[Any, Any], Any]
"""Initial value and array, both of the type that is worked in, to the result."""


def _reduce_window(
    builder: Builder, instruction: Instruction, operands: Sequence[int]
) -> Slots | None:
    region = instruction.attributes["to_apply"]
    if not isinstance(instruction.shape, ArrayShape) or not instruction.shape.elements:
        return None  # of several arrays, or a tuple of one
    named = named_reducer(region)
    if named is None:
        return None
    kind = named.dtypes[0]
    whole = instruction.operands[0].array.dims
    window = instruction.window
    carrier = builder.context.carrier(kind)
    if kind is not instruction.operands[0].array.dtype:
        return None
    dims, pieces = whole, None
    if window.running(whole) is None:
        pieces = WindowPieces.of(whole, instruction.array.dims, window)
        dims, window = pieces.operand, pieces.window
    function = _planned(instruction, named, builder.context, dims, window)
    if function is None:
        return None
    if pieces is not None:
        function = _in_pieces(function, pieces, instruction.array.dims, carrier)
    return builder.applied(instruction, operands, function, fills=pieces is not None)


def _in_pieces(
    function: Function, pieces: WindowPieces, dims: Dims, carrier: np.dtype[Any]
) -> Function:
    def reduce(array: Any, init: Any, out: Any = None) -> Any:
        parts = array.reshape(pieces.count, *pieces.operand[1:])
        if pieces.step == pieces.count and out is None:
            return function(parts, init).reshape(dims)
        result = out if out is not None and out.flags.c_contiguous else np.empty(dims, carrier)
        target = result.reshape(pieces.count, *pieces.output[1:])
        for start in range(0, pieces.count, pieces.step):
            part = slice(start, start + pieces.step)
            target[part] = function(parts[part], init)
        return result

    return reduce


def _planned(
    instruction: Instruction, named: Reducer, context: Context, dims: Dims, window: Window
) -> Function | None:
    """A function of the array and the initial value; None where there is none that does the same."""
    kind = named.dtypes[0]
    carrier = context.carrier(kind)
    wide, ufunc = named.wide, named.ufunc(step_by_step=True)
    function: Function | None = None
    if wide is not None:
        function = _running_sums(kind, (wide, carrier), dims, window)
        if function is None:
            fold = _in_order(np.add, wide, dims, window)
            function = fold and _typed(fold, wide, kind.compute, carrier)
    elif ufunc is not None:
        exact = _grouped if named.associative else _in_order
        fold = exact(ufunc, carrier, dims, window)
        function = fold and _typed(fold, carrier, carrier, carrier)
    elif named.name in ("maximum", "minimum") and kind.is_float:
        largest = named.name == "maximum"
        fold = _grouped(np.maximum if largest else np.minimum, kind.compute, dims, window)
        function = fold and _extremum(fold, instruction, context, window)
    return function


def _typed(
    fold: _Fold, worked: np.dtype[Any], compute: np.dtype[Any], carrier: np.dtype[Any]
) -> Function:
    def reduce(array: Any, init: Any) -> Any:
        start = init.astype(worked, copy=False)[()]
        straight = array.astype(compute, copy=False).astype(worked, copy=False)
        return fold(start, straight).astype(carrier, copy=False)

    return reduce


def _extremum(fold: _Fold, instruction: Instruction, context: Context, window: Window) -> Function:
    """NumPy returns either of two zeros of different signs; where both may occur, the region decides."""
    kind = instruction.array.dtype
    carrier, compute = context.carrier(kind), kind.compute

    def reduce(array: Any, init: Any) -> Any:
        wide, start = array.astype(compute, copy=False), init.astype(compute, copy=False)
        found = fold(start[()], wide)
        if np.count_nonzero(found) != found.size and _has_negative_zero(wide, start):
            reducer = reducer_of(instruction.attributes["to_apply"], context)
            (found,) = reduce_window([array], [init], window, reducer)
        return found.astype(carrier, copy=False)

    return reduce


def _has_negative_zero(*arrays: Any) -> bool:
    return any(bool(((array == 0) & np.signbit(array)).any()) for array in arrays)


def _running_sums(
    kind: DType, kinds: tuple[np.dtype[Any], np.dtype[Any]], dims: Dims, window: Window
) -> Function | None:
    """Cumulative sums in double precision; those of f64 from the end are the interpreter's."""
    running = window.running(dims)
    if running is None or (running.reverse and kind.compute == kinds[0]):
        return None
    wide, compute = kinds[0], kind.compute

    def cumulative(array: Any, init: Any) -> Any:
        start = init.astype(wide, copy=False)[()]
        straight = array.astype(compute, copy=False)
        return running_sums(straight, start, running.axis, kinds, back=running.reverse)

    return cumulative


def _in_order(ufunc: np.ufunc, worked: np.dtype[Any], dims: Dims, window: Window) -> _Fold | None:
    """One position of the window after the other."""
    running = window.running(dims)
    if running is not None and not running.reverse:
        axis = running.axis
        first = (*[slice(None)] * axis, slice(0, 1))

        def cumulative(start: Any, array: Any) -> Any:
            begun = array.copy()
            begun[first] = ufunc(start, array[first])
            return accumulate(ufunc, begun, axis, worked, back=False)

        return cumulative
    if window.size > _MANY_POSITIONS:
        return None
    output = window.positions(dims)
    places = [
        (tuple(inside for inside, _ in place), tuple(at for _, at in place))
        for place in product(*map(window_places, dims, window.dims))
    ]
    return _positions(ufunc, worked, output, places)


def _positions(
    ufunc: np.ufunc, worked: np.dtype[Any], output: Dims, places: Sequence[_Place]
) -> _Fold:
    whole = tuple(slice(0, size) for size in output)
    covered = places and all(_covers(at, whole) for _, at in places)
    steps = [(inside, at) for inside, at in places if all(where.stop > where.start for where in at)]

    def fold(start: Any, array: Any) -> Any:
        if covered:
            result = np.asarray(ufunc(start, array[places[0][0]]))
            for inside, _ in places[1:]:
                ufunc(result, array[inside], out=result)
            return result
        result = np.full(output, start, worked)
        for inside, at in steps:
            part = result[at]
            ufunc(part, array[inside], out=part)
        return result

    return fold


def _covers(at: tuple[slice, ...], whole: tuple[slice, ...]) -> bool:
    return all(
        (where.start, where.stop) == (every.start, every.stop) and where.step in (None, 1)
        for where, every in zip(at, whole, strict=True)
    )


def _grouped(ufunc: np.ufunc, worked: np.dtype[Any], dims: Dims, window: Window) -> _Fold | None:
    """One dimension after the other, the last first, so that the order of elements is kept."""
    passes: list[Callable[[Any], Any]] = []
    sizes = list(dims)
    for axis in reversed(range(len(dims))):
        dim = window.dims[axis]
        if dim == WindowDim(1):
            continue
        one = Window(tuple(dim if at == axis else WindowDim(1) for at in range(len(dims))))
        running = one.running(sizes)
        if running is not None:
            passes.append(_accumulated(ufunc, worked, axis, back=running.reverse))
            continue
        output = dim.positions(sizes[axis])
        places = window_places(sizes[axis], dim)
        # A window that meets no element has no value before the initial one.
        if dim.size > _MANY_POSITIONS or not _meets_all(places, output):
            return _in_order(ufunc, worked, dims, window)
        passes.append(_along(ufunc, axis, output, places))
        sizes[axis] = output

    def fold(start: Any, array: Any) -> Any:
        for step in passes:
            array = step(array)
        return np.asarray(ufunc(start, array))

    return fold


def _accumulated(
    ufunc: np.ufunc, worked: np.dtype[Any], axis: int, *, back: bool
) -> Callable[[Any], Any]:
    return lambda array: accumulate(ufunc, array, axis, worked, back=back)


def _meets_all(places: Sequence[tuple[slice, slice]], output: int) -> bool:
    met = np.zeros(output, np.bool_)
    for _, at in places:
        met[at] = True
    return bool(met.all())


def _along(
    ufunc: np.ufunc, axis: int, output: int, places: Sequence[tuple[slice, slice]]
) -> Callable[[Any], Any]:
    """Positions along one dimension; where no element was met yet, the first one is taken."""
    before = (slice(None),) * axis
    steps: list[tuple[Any, Any, Any, Any]] = []
    met = np.zeros(output, np.bool_)
    for inside, at in places:
        count = len(range(output)[at])
        if not count:
            continue
        seen = met[at]
        # Outputs that meet elements at a position are neighbours; those met before lie on one side.
        starts = np.flatnonzero(np.diff(np.concatenate([[-1], seen.astype(np.int8), [-1]])))
        elements, outputs = range(1 << 62)[inside], range(output)[at]
        for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            source = (*before, _slice(elements[begin:end]))
            target = (*before, _slice(outputs[begin:end]))
            steps.append((source, target, bool(seen[begin]), end - begin == output))
        met[at] = True

    def fold(array: Any) -> Any:
        result = None
        for source, target, seen, everywhere in steps:
            part = array[source]
            if result is None:
                if everywhere:
                    result = part.copy()
                    continue
                dims = list(array.shape)
                dims[axis] = output
                result = np.empty(dims, array.dtype)
            if seen:
                there = result[target]
                ufunc(there, part, out=there)
            else:
                result[target] = part
        return result

    return fold


def _slice(places: range) -> slice:
    return slice(places.start, places[-1] + 1, places.step)


EMITTERS: Mapping[str, Emitter] = {
    "reduce-window": _reduce_window,
    "select-and-scatter": select_windows.select_and_scatter,
}
