"""reduce, map: computations folded along dimensions or applied everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from hloopt.interpret.context import Context, Evaluator, Value, arrays_of
from hloopt.interpret.pairs import best
from hloopt.interpret.reducer import Reducer, reducer_of, rounded_results
from hloopt.interpret.scalars import FEW_LANES, folded
from hloopt.ir import Instruction
from hloopt.types import Array

__all__ = ["EVALUATORS", "extremum", "fold", "reduce", "sign_zeros"]


def reduce(
    operands: Sequence[Array], inits: Sequence[Array], dimensions: Sequence[int], reducer: Reducer
) -> list[Array]:
    """The fold of each operand over ``dimensions``, from ``inits``, in row-major order.

    Sums of floats are accumulated in double precision, in any order; the caller rounds them to the
    element type.
    """
    if len(operands) == 1:
        quick = _quick(operands[0], inits[0], tuple(dimensions), reducer)
        if quick is not None:
            return [quick]
    reduced = sorted(dimensions)
    kept = [axis for axis in range(operands[0].ndim) if axis not in reduced]
    dims = operands[0].shape
    count = prod(dims[axis] for axis in reduced)
    shape = (count, *(dims[axis] for axis in kept))
    columns = [x.transpose([*reduced, *kept]).reshape(shape) for x in operands]
    return _chosen(columns, inits, reducer) or fold(columns, inits, reducer)


def _chosen(
    columns: Sequence[Array], inits: Sequence[Array], reducer: Reducer
) -> list[Array] | None:
    """The best of pairs of a value and an index by NumPy's reductions, or None."""
    if len(columns) != 2 or len(columns[0]) <= FEW_LANES:
        return None
    choice = reducer.choice()
    kind = reducer.dtypes[0]
    if choice is None or np.isnan(inits[0].astype(kind.compute)).any():
        return None
    wide = columns[0].astype(kind.compute, copy=False)
    found = best(wide, columns[1], choice)
    if found is None:
        return None
    dims = columns[0].shape[1:]
    starts = [np.broadcast_to(init, dims) for init in inits]
    return reducer.apply(starts, [found[0].astype(columns[0].dtype), found[1]])


def _quick(
    operand: Array, init: Array, dimensions: tuple[int, ...], reducer: Reducer
) -> Array | None:
    """The forms NumPy has a reduction for, or None."""
    wide = reducer.wide
    if wide is not None:
        # NumPy adds in the order of memory: equal arrays have equal sums only where they lie alike.
        straight = np.asarray(operand, order="C")
        return np.asarray(
            np.add.reduce(
                straight.astype(reducer.dtypes[0].compute, copy=False),
                axis=dimensions,
                dtype=wide,
                initial=init.astype(wide)[()],
            )
        )
    ufunc = reducer.ufunc()
    if ufunc is not None:
        if not reducer.associative:
            # NumPy goes through the elements as they lie in memory.
            operand = np.asarray(operand, order="C")
        return np.asarray(
            ufunc.reduce(operand, axis=dimensions, dtype=operand.dtype, initial=init[()])
        )
    if reducer.name in ("maximum", "minimum") and reducer.dtypes[0].is_float:
        kind = reducer.dtypes[0].compute
        return extremum(
            operand.astype(kind, copy=False),
            init.astype(kind),
            dimensions,
            largest=reducer.name == "maximum",
        )
    return None


def extremum(array: Array, init: Array, dimensions: tuple[int, ...], *, largest: bool) -> Array:
    """The largest or smallest float, by NumPy's reduction, which leaves the sign of a zero open."""
    ufunc = np.maximum if largest else np.minimum
    result = np.asarray(ufunc.reduce(array, axis=dimensions, initial=init[()]))
    if np.count_nonzero(result) != result.size:
        sign_zeros(result, array, init, dimensions, largest=largest)
    return result


def sign_zeros(
    found: Array, array: Array, start: Array, axes: tuple[int, ...], *, largest: bool
) -> None:
    """Give the zeros among extrema their sign: of the largest + where there is a +0; NumPy takes either.

    Where the extremum is a zero, any element of the wanted sign is a zero, too.
    """
    signs = np.signbit(array)
    if largest:
        negative = np.logical_and.reduce(signs, axes) & np.signbit(start)
    else:
        negative = np.logical_or.reduce(signs, axes) | np.signbit(start)
    zero = np.zeros((), found.dtype)
    np.copyto(found, np.where(negative, -zero, zero), where=found == 0)


def fold(columns: Sequence[Array], inits: Sequence[Array], reducer: Reducer) -> list[Array]:
    """Columns [n, ...] folded along their first dimension: f(... f(f(init, c[0]), c[1]) ...).

    Where grouping changes nothing, neighbours are combined in log2(n) steps over whole arrays.
    """
    count = columns[0].shape[0]
    dims = columns[0].shape[1:]
    start = [np.broadcast_to(init, dims) for init in inits]
    if not count:
        return start
    if not reducer.associative:
        step = reducer.scalars() if prod(dims) <= FEW_LANES < count else None
        if step is not None:
            return folded(columns, inits, step)
        for index in range(count):
            start = reducer.apply(start, [column[index] for column in columns])
        return start
    rest = list(columns)
    while count > 1:
        even = count // 2 * 2
        new = reducer.apply([c[0:even:2] for c in rest], [c[1:even:2] for c in rest])
        if even < count:
            new = [np.concatenate([n, c[-1:]]) for n, c in zip(new, rest, strict=True)]
        rest = new
        count = rest[0].shape[0]
    return reducer.apply(start, [column[0] for column in rest])


def _reduce(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    arrays = arrays_of(values)
    count = len(arrays) // 2
    reducer = reducer_of(instruction.attributes["to_apply"], context)
    results = reduce(arrays[:count], arrays[count:], instruction.attributes["dimensions"], reducer)
    return rounded_results(results, reducer, instruction, context)


def _map(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    return context.apply(instruction.attributes["to_apply"], values)


EVALUATORS: Mapping[str, Evaluator] = {"map": _map, "reduce": _reduce}
