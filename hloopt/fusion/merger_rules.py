"""May a loop fusion go into one of its users: the rules of XLA's FusionMerger of spring 2023."""

from __future__ import annotations

from hloopt.cost_models.usage import UsageAnalysis
from hloopt.fusion.barriers import decide_call
from hloopt.fusion.decision import ALLOWED, Decision, forbid
from hloopt.fusion.fusible import (
    is_fusible,
    is_loop_fusible_consumer,
    is_reduction_epilogue,
    physically_transposes,
)
from hloopt.fusion.kinds import is_input_fusible, is_input_reduction
from hloopt.fusion.limits import CodeLimits, Footprints, decide_budget, fused_ops
from hloopt.ir import Instruction
from hloopt.types import TupleShape, elements_of

__all__ = ["MergerRules", "decide_loop_fusion"]


def decide_loop_fusion(producer: Instruction) -> Decision:
    """Why a fusion cannot be merged into any user."""
    if producer.is_root:
        return forbid("producer-is-root")
    if not producer.users:
        return forbid("no-users")
    if producer.control_successors:
        return forbid("producer-orders-others")
    if producer.attributes["kind"] != "kLoop":
        return forbid("producer-not-loop-fusion")
    if isinstance(producer.shape, TupleShape):
        return forbid("producer-is-multi-output")
    return ALLOWED


class MergerRules:
    """Verdicts on pairs, from facts cached while an instruction stays unchanged.

    limits          of one kernel
    usage           what instructions compute and read
    max_ir_size     instructions a kernel's code may have
    max_splits      times index computations may be interrupted in a kernel
    max_transposed  percent of a producer's elements that may be transposed where a reduction reads them
    """

    def __init__(
        self,
        limits: CodeLimits,
        usage: UsageAnalysis,
        max_ir_size: int,
        max_splits: int,
        max_transposed: int,
    ) -> None:
        self.limits = limits
        self.usage = usage
        self.max_ir_size = max_ir_size
        self.max_splits = max_splits
        self.max_transposed = max_transposed
        self._footprints = Footprints(limits)
        self._kernels: dict[Instruction, tuple[Decision, bool]] = {}

    def forget(self, instruction: Instruction) -> None:
        """An instruction was removed."""
        self._footprints.forget(instruction)
        self._kernels.pop(instruction, None)

    def joined(self, producer: Instruction, user: Instruction, fusion: Instruction) -> None:
        """``fusion`` is what ``user`` has become by taking a copy of ``producer``."""
        both = self._footprints.of(producer) + self._footprints.of(user)
        self.forget(user)
        self._kernels.pop(fusion, None)
        self._footprints.became(fusion, both)

    def decide_user(self, producer: Instruction, user: Instruction) -> Decision:
        """Whether the user can take in any producer at all."""
        del producer
        return self._kernel(user)[0]

    def decide_epilogue(self, producer: Instruction, user: Instruction) -> Decision:
        """What may follow a reduction in its kernel."""
        if not self._kernel(producer)[1]:
            return ALLOWED
        if not all(map(is_reduction_epilogue, fused_ops(user))):
            return forbid("reduce-epilogue")
        return forbid("reduce-has-other-users") if len(producer.users) > 1 else ALLOWED

    def decide_transposes(self, producer: Instruction, user: Instruction) -> Decision:
        """Whether a reduction would read memory in another order than it lies in.

        XLA's ``TransposesMostData``: elements of what moves data, beside those of the result.
        """
        if not self._kernel(user)[1]:
            return ALLOWED
        ops = fused_ops(producer)
        moved = sum(elements_of(entry.shape) for entry in ops if physically_transposes(entry))
        percent = 100 * moved // max(elements_of(producer.shape), 1)
        if percent >= self.max_transposed:
            return forbid("uncoalesced", limit=self.max_transposed, actual=percent)
        return ALLOWED

    def decide_budget(self, producer: Instruction, user: Instruction) -> Decision:
        """Whether a block has room for both."""
        both = self._footprints.of(producer) + self._footprints.of(user)
        return decide_budget(both, producer, user, self.limits)

    def decide_size(self, producer: Instruction, user: Instruction) -> Decision:
        """Whether the code of both stays small (XLA's ``ProducerConsumerMergedTooLarge`` of 2023).

        The producer is written wherever its user reads it.  After each op that breaks the cache of index
        computations, code may have to be written anew: such ops double it.
        """
        ours, theirs = self.usage.of(producer), self.usage.of(user)
        times = theirs.operands[user.operands.index(producer)].emitted
        splits = times * ours.splits + theirs.splits
        if splits > self.max_splits:
            return forbid("block-splits", limit=self.max_splits, actual=splits)
        size = (times * ours.ir_size + theirs.ir_size) << splits
        if size > self.max_ir_size:
            return forbid("ir-size", limit=self.max_ir_size, actual=size)
        return ALLOWED

    def _kernel(self, instruction: Instruction) -> tuple[Decision, bool]:
        """Whether an op or fusion can be a consumer, and whether a reduction kernel is built around it."""
        known = self._kernels.get(instruction)
        if known is None:
            reduces = self._footprints.of(instruction).reductions > 0
            is_reduction = reduces and is_input_reduction(instruction)
            known = self._kernels[instruction] = _decide_consumer(instruction), is_reduction
        return known


def _decide_consumer(user: Instruction) -> Decision:
    """Why an op or fusion cannot take in any producer."""
    if user.opcode == "bitcast":
        return forbid("consumer-is-bitcast")
    if user.opcode == "tuple":
        return forbid("consumer-is-tuple")
    if user.opcode == "custom-call":
        return decide_call(user)
    if not is_fusible(user):
        return forbid("consumer-not-fusible")
    if user.opcode == "fusion" and user.attributes["kind"] == "kCustom":
        return forbid("consumer-is-custom")
    if not (is_loop_fusible_consumer(user) or is_input_fusible(user)):
        return forbid("consumer-not-loop-or-input-fusible")
    return ALLOWED
