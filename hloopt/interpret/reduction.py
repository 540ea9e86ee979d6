"""reduce, map: computations folded along dimensions or applied everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from hloopt.interpret.context import Array, Context, Evaluator, Value, arrays_of
from hloopt.interpret.reducer import Reducer, reducer_of
from hloopt.interpret.scalars import FEW_LANES, folded
from hloopt.ir import Instruction

__all__ = ["EVALUATORS", "fold", "reduce"]


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
    return fold([x.transpose([*reduced, *kept]).reshape(shape) for x in operands], inits, reducer)


def _quick(
    operand: Array, init: Array, dimensions: tuple[int, ...], reducer: Reducer
) -> Array | None:
    """The forms NumPy has a reduction for, or None."""
    wide = reducer.wide
    if wide is not None:
        return np.asarray(
            np.add.reduce(
                operand.astype(reducer.dtypes[0].compute, copy=False),
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
    dtype = reducer.dtypes[0]
    if reducer.name in ("maximum", "minimum") and dtype.is_float:
        largest = np.maximum if reducer.name == "maximum" else np.minimum
        values = operand.astype(dtype.compute, copy=False)
        result = np.asarray(
            largest.reduce(values, axis=dimensions, initial=init.astype(dtype.compute)[()])
        )
        # NumPy takes either of +0 and -0, the op +0 for the larger one.
        return None if (result == 0).any() else result
    return None


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
    rounded = tuple(
        context.round(result, dtype) for result, dtype in zip(results, reducer.dtypes, strict=True)
    )
    return rounded[0] if count == 1 else rounded


def _map(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    return context.apply(instruction.attributes["to_apply"], values)


EVALUATORS: Mapping[str, Evaluator] = {"map": _map, "reduce": _reduce}
