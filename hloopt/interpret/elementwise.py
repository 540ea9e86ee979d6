"""Elementwise ops: the NumPy column of the op table, widened before and rounded after."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hloopt.interpret.context import Context, Evaluator, Value
from hloopt.ir import Instruction
from hloopt.ops import OPS, ScalarArgs
from hloopt.ops.elementwise import keeps_bits
from hloopt.types import Array, DType, rounded

__all__ = ["EVALUATORS", "bound", "convert", "elementwise", "evaluate_op"]


def evaluate_op(opcode: str, args: ScalarArgs, arrays: list[Array]) -> Array:
    """One op on arrays in their compute types; the result is in the compute type of
    ``args.result``.

    Arrays broadcast against each other as NumPy's do.
    """
    function = OPS[opcode].numpy
    assert function is not None
    return np.asarray(function(args, *arrays))


def bound(instruction: Instruction, context: Context) -> Evaluator:
    """The evaluator of one elementwise instruction, with all but the values looked up before.

    Operands are widened to the compute types of their element types (bf16 to float32), but for ops that
    look at their bits; the result is rounded once.  The arrays may have more dimensions than the
    shapes say: regions of scalars are applied to whole arrays this way.
    """
    function = instruction.op.numpy
    assert function is not None
    # A row silences NumPy's warnings around its function; here a whole evaluation does so once.
    function = getattr(function, "__wrapped__", function)
    kinds = [operand.array.dtype for operand in instruction.operands]
    result = instruction.array.dtype
    args = ScalarArgs(kinds[-1], result, instruction.attributes)
    carrier = context.carrier(result)
    stored = keeps_bits(instruction.opcode, instruction.attributes, kinds[-1])
    compute = [context.carrier(kind) if stored else kind.compute for kind in kinds]

    def run(_: Instruction, values: tuple[Value, ...], __: Context) -> Value:
        arrays = [
            value if value.dtype is wide else value.astype(wide, copy=False)  # type: ignore[union-attr]
            for value, wide in zip(values, compute, strict=True)
        ]
        return rounded(np.asarray(function(args, *arrays)), carrier)

    return run


def elementwise(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    """Evaluate any op that has a NumPy function (see ``bound``)."""
    return bound(instruction, context)(instruction, values, context)


def convert(array: Array, source: DType, target: DType, context: Context) -> Array:
    """The array with another element type, by the rules of the op ``convert``."""
    if source is target:
        return array
    widened = context.widen(array, source)
    return context.round(evaluate_op("convert", ScalarArgs(source, target, {}), [widened]), target)


def _elementwise_table() -> Mapping[str, Evaluator]:
    return {opcode: elementwise for opcode, row in OPS.items() if row.numpy is not None}


EVALUATORS: Mapping[str, Evaluator] = _elementwise_table()
