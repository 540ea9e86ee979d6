"""What the executor does when a choice that is written tells it to (``kernels/families/cpu.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from hloopt.interpret.context import Array, Context, Evaluator, Value, array_of, arrays_of
from hloopt.interpret.linear import Product
from hloopt.interpret.reducer import reducer_of
from hloopt.interpret.reduction import fold
from hloopt.interpret.regions import passed
from hloopt.ir import Instruction
from hloopt.kernels.written import read_choice
from hloopt.types import DotDims, TupleShape

__all__ = ["WAYS", "way"]


def way(instruction: Instruction) -> Evaluator | None:
    """What evaluates an instruction by the choice in its backend_config; None leaves it to the executor."""
    written = read_choice(instruction)
    return WAYS.get(written[0]) if written is not None else None


def _dot_einsum(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    """A number for each dimension; those that meet have the same."""
    product = Product.of(instruction, values, context)
    dims = DotDims.of(instruction.attributes)
    left = list(range(product.lhs.ndim))
    right = [product.lhs.ndim + axis for axis in range(product.rhs.ndim)]
    for axis, other in zip(
        (*dims.lhs_batch, *dims.lhs_contracting),
        (*dims.rhs_batch, *dims.rhs_contracting),
        strict=True,
    ):
        right[other] = left[axis]
    taken = {*dims.lhs_contracting, *dims.lhs_batch}
    out = [left[axis] for axis in dims.lhs_batch]
    out += [axis for axis in left if axis not in taken]
    out += [number for number in right if number >= product.lhs.ndim]
    total = np.einsum(product.lhs, left, product.rhs, right, out)
    return product.result(np.asarray(total), instruction, context)


def _reduce_fold(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    arrays = arrays_of(values)
    count = len(arrays) // 2
    reducer = reducer_of(instruction.attributes["to_apply"], context)
    reduced = sorted(instruction.attributes["dimensions"])
    dims = arrays[0].shape
    kept = [axis for axis in range(len(dims)) if axis not in reduced]
    shape = (prod(dims[axis] for axis in reduced), *(dims[axis] for axis in kept))
    columns = [array.transpose([*reduced, *kept]).reshape(shape) for array in arrays[:count]]
    results = fold(columns, arrays[count:], reducer)
    rounded = tuple(
        context.round(result, dtype) for result, dtype in zip(results, reducer.dtypes, strict=True)
    )
    return rounded if isinstance(instruction.shape, TupleShape) else rounded[0]


def _sort_merge(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    from hloopt.interpret.sort import merge_order

    shapes = [operand.shape for operand in instruction.operands]
    arrays = arrays_of([context.materialize(*pair) for pair in zip(values, shapes, strict=True)])
    (axis,) = instruction.attributes["dimensions"]
    comparator = instruction.attributes["to_apply"]

    def less(pairs: list[Array]) -> Array:
        return array_of(context.apply(comparator, passed(comparator, pairs, context)))

    order = merge_order(arrays, axis, less)
    results = tuple(np.take_along_axis(array, order, axis=axis) for array in arrays)
    return results if isinstance(instruction.shape, TupleShape) else results[0]


WAYS: Mapping[str, Evaluator] = {
    "dot-einsum": _dot_einsum,
    "reduce-fold": _reduce_fold,
    "sort-merge": _sort_merge,
}
"""By the names of kernels; the others are what the executor does by itself."""
