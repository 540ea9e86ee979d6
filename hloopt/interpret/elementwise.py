"""Elementwise ops: the NumPy column of the op table, widened before and rounded after."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hloopt.interpret.context import Array, Context, Evaluator, Value, array_of
from hloopt.ir import Instruction
from hloopt.ops import OPS, ScalarArgs
from hloopt.types import ArrayShape, DType

__all__ = ["EVALUATORS", "convert", "elementwise", "evaluate_op"]


def evaluate_op(opcode: str, args: ScalarArgs, arrays: list[Array]) -> Array:
    """One op on arrays in their compute types; the result is in the compute type of
    ``args.result``.

    Arrays broadcast against each other as NumPy's do.
    """
    function = OPS[opcode].numpy
    assert function is not None
    return np.asarray(function(args, *arrays))


def elementwise(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    """Evaluate any op that has a NumPy function.

    Operands are widened to the compute types of their element types (bf16 to float32), the result
    is rounded once.  The arrays may have more dimensions than the shapes say: regions of scalars
    are applied to whole arrays this way.
    """
    result = instruction.array.dtype
    kind = result
    arrays = []
    for operand, value in zip(instruction.operands, values, strict=True):
        kind = operand.array.dtype
        arrays.append(context.widen(array_of(value), kind))
    computed = evaluate_op(
        instruction.opcode, ScalarArgs(kind, result, instruction.attributes), arrays
    )
    return context.round(computed, result)


def convert(array: Array, source: DType, target: DType, context: Context) -> Array:
    """The array with another element type, by the rules of the op ``convert``."""
    if source is target:
        return array
    widened = context.widen(array, source)
    return context.round(evaluate_op("convert", ScalarArgs(source, target, {}), [widened]), target)


def _elementwise_table() -> Mapping[str, Evaluator]:
    return {opcode: elementwise for opcode, row in OPS.items() if row.numpy is not None}


def element_type(instruction: Instruction) -> DType:
    """The element type of an array-shaped instruction."""
    shape = instruction.shape
    assert isinstance(shape, ArrayShape)
    return shape.dtype


EVALUATORS: Mapping[str, Evaluator] = _elementwise_table()
