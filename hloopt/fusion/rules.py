"""Whether a producer may join a consumer: the rules of XLA:GPU's InstructionFusion, in their order.

Rules about the producer or the consumer alone are checked once for each; the others for each pair.
"""

from __future__ import annotations

from hloopt.analysis.layout import is_effective_scalar
from hloopt.analysis.reduction import is_unnested
from hloopt.fusion.barriers import decide_call
from hloopt.fusion.decision import ALLOWED, Decision, forbid
from hloopt.fusion.fusible import (
    is_always_duplicable,
    is_expensive,
    is_expensive_to_repeat,
    is_fusible,
    is_loop_fusible_consumer,
    is_loop_fusible_producer,
    physically_transposes,
    repeats_reads,
)
from hloopt.fusion.in_place import decide_in_place
from hloopt.fusion.limits import Footprint, decide_budget
from hloopt.fusion.state import ConsumerState
from hloopt.ir import Instruction
from hloopt.types import TupleShape

__all__ = ["decide_consumer", "decide_pair", "decide_producer"]


def decide_producer(producer: Instruction) -> Decision:
    """Why a producer cannot join any fusion."""
    if producer.opcode == "custom-call":
        return decide_call(producer)
    if not is_fusible(producer):
        return forbid("producer-not-fusible")
    if producer.opcode == "fusion":
        return forbid("producer-is-fusion")
    if isinstance(producer.shape, TupleShape):
        return forbid("producer-is-multi-output")
    if not is_loop_fusible_producer(producer):
        return forbid("producer-not-loop-fusible")
    return ALLOWED


def decide_consumer(state: ConsumerState) -> Decision:
    """Why a consumer cannot take in any producer."""
    consumer = state.instruction
    if consumer.opcode == "custom-call":
        return decide_call(consumer)
    if not is_fusible(consumer):
        return forbid("consumer-not-fusible")
    if "output_to_operand_aliasing" in consumer.attributes:
        return forbid("consumer-shares-buffers")
    if consumer.opcode == "fusion" and consumer.attributes["kind"] == "kCustom":
        return forbid("consumer-not-loop-or-input-fusible")
    if not (is_loop_fusible_consumer(consumer) or state.is_input_fusible):
        return forbid("consumer-not-loop-or-input-fusible")
    return ALLOWED


def decide_pair(
    producer: Instruction, state: ConsumerState, *, may_duplicate: bool, advised: bool = False
) -> Decision:
    """The verdict on a pair of which each alone may be fused; the first rule that forbids counts.

    Where the user wants the pair (``advised``) only rules count without which the module would be wrong or
    the kernel would not fit.
    """
    consumer = state.instruction
    decision = ALLOWED if advised else _decide_access(producer, state)
    decision = decision and decide_in_place(producer, consumer)
    decision = decision and (ALLOWED if advised else _decide_heavy(producer, state))
    decision = decision and _decide_place(producer)
    decision = decision and (
        ALLOWED if advised else _decide_copies(producer, consumer, may_duplicate)
    )
    decision = decision and _decide_budget(producer, state)
    if decision and not advised and state.body is not None:
        parameter = state.body.parameters[consumer.operands.index(producer)]
        decision = state.duplication.decide(producer, parameter, state.limits, state.real_users)
    return decision


def _decide_access(producer: Instruction, state: ConsumerState) -> Decision:
    """How the consumer reads the producer's elements."""
    if producer in state.reused and is_expensive(producer):
        return forbid("producer-expensive-and-reused")
    if physically_transposes(producer) and state.is_input_reduction:
        return forbid("breaks-coalescing")
    if producer.opcode == "reduce" and is_unnested(producer):
        if not state.is_epilogue:
            return forbid("reduce-epilogue")
        if len(producer.users) > 1:
            return forbid("reduce-has-other-users")
    if producer.opcode == "constant":
        if not is_effective_scalar(producer.shape):
            return forbid("constant-not-scalar")
        if state.body is None:
            return forbid("constant-alone")
    return ALLOWED


def _decide_heavy(producer: Instruction, state: ConsumerState) -> Decision:
    """Keep long serial loops out of places that read their results again and again."""
    if not is_expensive_to_repeat(producer, state.limits.repeat_ratio):
        return ALLOWED
    if state.body is None:
        heavy = repeats_reads(state.instruction)
    else:
        parameter = state.body.parameters[state.instruction.operands.index(producer)]
        heavy = _reaches_repeated_reads(parameter)
    return forbid("heavy-computation") if heavy else ALLOWED


def _reaches_repeated_reads(parameter: Instruction) -> bool:
    pending, seen = [parameter], {parameter}
    while pending:
        for user in pending.pop().users:
            if user in seen:
                continue
            if user.opcode != "tuple" and repeats_reads(user):
                return True
            seen.add(user)
            pending.append(user)
    return False


def _decide_place(producer: Instruction) -> Decision:
    """Whether the producer may be moved."""
    if producer.is_root:
        return forbid("producer-is-root")
    return forbid("producer-orders-others") if producer.control_successors else ALLOWED


def _decide_copies(producer: Instruction, consumer: Instruction, may_duplicate: bool) -> Decision:
    """Whether the producer may be computed again for others."""
    if producer.users.keys() == {consumer} or is_always_duplicable(producer):
        return ALLOWED
    if not may_duplicate:
        return forbid("would-duplicate")
    return forbid("expensive-to-duplicate") if is_expensive(producer) else ALLOWED


def _decide_budget(producer: Instruction, state: ConsumerState) -> Decision:
    both = state.footprint + Footprint.of(producer, state.limits)
    return decide_budget(both, producer, state.instruction, state.limits)
