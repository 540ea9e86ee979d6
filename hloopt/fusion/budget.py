"""What a kernel has room for: shared memory, reductions, operands."""

from __future__ import annotations

from typing import Final

from hloopt.analysis.reduction import is_unnested, reduction_dims
from hloopt.analysis.transpose import tiled_transpose
from hloopt.fusion.decision import ALLOWED, Decision, forbid
from hloopt.fusion.limits import KernelLimits
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, Shape, TupleShape

__all__ = ["decide_operands", "reduction_count", "shared_memory", "subshapes"]

_XLA: Final = KernelLimits()


def shared_memory(instruction: Instruction, limits: KernelLimits = _XLA) -> int:
    """Bytes of shared memory one block of a tiled kernel needs for an op (not for a fusion)."""
    if instruction.opcode == "reduce" and is_unnested(instruction):
        form = reduction_dims(instruction)
        inputs = instruction.fold_inputs
        element_bytes = sum(
            (operand.shape.dtype.bits + 7) // 8
            for operand in inputs
            if isinstance(operand.shape, ArrayShape)
        )
        is_row = form is not None and form.is_row
        per_byte = limits.row_bytes if is_row else limits.column_bytes
        return per_byte * element_bytes
    tiled = tiled_transpose(instruction)
    return tiled.shared_bytes if tiled is not None else 0


def reduction_count(instruction: Instruction) -> int:
    """1 for a reduce with a tiled kernel of its own, else 0."""
    return int(instruction.opcode == "reduce" and is_unnested(instruction))


def decide_operands(
    producer: Instruction,
    consumer: Instruction,
    limits: KernelLimits,
    *,
    multi_output: bool = False,
) -> Decision:
    """Whether operands and outputs of producer and consumer together stay within the limit.

    A fusion that gets no more operands than the consumer has is always accepted, unless it gets the results of
    both (``multi_output``).
    """
    outputs = subshapes(producer.shape) + subshapes(consumer.shape)
    most = len(producer.operands) + len(consumer.operands) - 1 + outputs
    if most <= limits.max_operands:
        return ALLOWED
    union = {*producer.operands, *consumer.operands} - {producer, consumer}
    if not multi_output and len(union) <= len(consumer.operands):
        return ALLOWED
    if len(union) + outputs <= limits.max_operands:
        return ALLOWED
    return forbid("operands", limit=limits.max_operands, actual=len(union) + outputs)


def subshapes(shape: Shape) -> int:
    """The number of nodes of a shape: 1 for an array, a tuple counts itself and its elements."""
    if isinstance(shape, TupleShape):
        inner = [entry for entry in shape.elements if isinstance(entry, TupleShape)]
        return 1 + len(shape.elements) - len(inner) + sum(map(subshapes, inner))
    return 1
