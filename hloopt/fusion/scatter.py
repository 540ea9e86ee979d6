"""What may stand beside a scatter in its kernel: it has no loop form, and updates an operand in place."""

from __future__ import annotations

from hloopt.fusion.decision import ALLOWED, Decision, forbid
from hloopt.ir import Computation, Instruction

__all__ = ["decide_scatter", "is_scatter_kernel"]


def is_scatter_kernel(instruction: Instruction) -> bool:
    """Whether an op or fusion is written by the scatter kernel."""
    if instruction.opcode != "fusion":
        return instruction.opcode == "scatter"
    body: Computation = instruction.attributes["calls"]
    return bool(instruction.attributes["kind"] == "kInput") and body.root.opcode == "scatter"


def decide_scatter(producer: Instruction, consumer: Instruction) -> Decision:
    """Whether a scatter kernel stays one: it is the last in its kernel, and its operand lies in memory."""
    if is_scatter_kernel(producer):
        return forbid("scatter-producer")
    if not is_scatter_kernel(consumer):
        return ALLOWED
    target = _in_place_operand(consumer)
    if target is producer:
        return forbid("scatter-in-place-operand")
    if target is not None and target in producer.operands:
        return forbid("scatter-reads-in-place-operand")
    return ALLOWED


def _in_place_operand(consumer: Instruction) -> Instruction | None:
    """The operand whose buffer the scatter writes; None where that is computed in the fusion."""
    if consumer.opcode != "fusion":
        return consumer.operands[0]
    body: Computation = consumer.attributes["calls"]
    target = body.root.operands[0]
    while target.opcode == "bitcast":
        target = target.operands[0]
    if target.opcode != "parameter":
        return None
    return consumer.operands[target.parameter_number]
