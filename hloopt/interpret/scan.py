"""scan: a computation carried along a dimension, one step after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hloopt.interpret.context import Context, Evaluator, Value, arrays_of, leaf_arrays
from hloopt.interpret.scalars import scalar_function
from hloopt.ir import Instruction
from hloopt.types import Array, TupleShape, parts_of

__all__ = ["EVALUATORS", "scan"]

Step = Callable[[list[Array]], list[Array]]


def scan(
    inputs: Sequence[Array],
    carries: Sequence[Array],
    dimension: int,
    step: Step,
    outputs: Sequence[tuple[tuple[int, ...], np.dtype[np.generic]]],
    *,
    reverse: bool = False,
) -> list[Array]:
    """``step(slices of inputs + carries)`` gives slices of outputs and new carries, for each index.

    ``outputs`` has the dimensions and NumPy type of each output.  Slices have no ``dimension``;
    with ``reverse`` the last index comes first.  The result is the outputs and then the last
    carries.
    """
    results = [np.empty(dims, kind) for dims, kind in outputs]
    sources = [np.moveaxis(array, dimension, 0) for array in inputs]
    targets = [np.moveaxis(array, dimension, 0) for array in results]
    state = list(carries)
    count = sources[0].shape[0] if sources else targets[0].shape[0]
    for index in reversed(range(count)) if reverse else range(count):
        made = step([*(source[index] for source in sources), *state])
        for target, array in zip(targets, made, strict=False):
            target[index] = array
        state = made[len(targets) :]
    return [*results, *state]


def _scan(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    attributes = instruction.attributes
    arrays = arrays_of(values)
    carries = attributes.get("num_carries", 0)
    inputs = len(arrays) - carries
    (dimension,) = attributes["dimensions"]
    region = attributes["to_apply"]
    shape = instruction.shape
    leaves = parts_of(shape)
    made = leaves[: len(leaves) - carries]
    scalar = all(not parameter.array.dims for parameter in region.parameters)

    function = scalar_function(region, context) if scalar else None

    def step(operands: list[Array]) -> list[Array]:
        if function is not None:
            return list(function(*operands))
        value = context.apply(region, operands) if scalar else context.call(region, operands)
        return list(leaf_arrays(value))

    results = scan(
        arrays[:inputs],
        [carry[()] for carry in arrays[inputs:]] if scalar else arrays[inputs:],
        dimension,
        step,
        [(leaf.dims, context.carrier(leaf.dtype)) for leaf in made],  # type: ignore[union-attr]
        reverse=attributes.get("is_reverse", False),
    )
    values_ = tuple(map(np.asarray, results))
    return values_ if isinstance(shape, TupleShape) else values_[0]


EVALUATORS: Mapping[str, Evaluator] = {"scan": _scan}
