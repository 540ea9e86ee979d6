"""Whether a producer may join a consumer: the rules of XLA's GPU compiler of 2026, in its order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Final, TypeAlias

from hloopt.analysis.backend_config import is_triton
from hloopt.analysis.elementwise import is_elementwise, keeps_width
from hloopt.analysis.emitters.pairs import Kernels
from hloopt.analysis.written_code import Written
from hloopt.cost_models.usage import UsageAnalysis
from hloopt.dataclass import dataclass
from hloopt.fusion.code_room import CodeRoom
from hloopt.fusion.decision import ALLOWED, Decision, forbid
from hloopt.fusion.fusible import is_fusible
from hloopt.fusion.in_place import decide_in_place, decide_scatter
from hloopt.fusion.limits import (
    Footprint,
    Footprints,
    KernelLimits,
    decide_budget,
    subshapes,
)
from hloopt.ir import Instruction
from hloopt.ops.traits import INDEXING, MOVING, REDUCING

__all__ = [
    "PairRules",
    "TritonRule",
    "is_fusible_bitcast",
    "is_native_fusible",
    "no_triton",
]

_ELEMENTAL: Final = MOVING - {"bitcast"} | INDEXING | REDUCING | {"constant", "iota", "scatter"}

_LOOPS: Final = frozenset({"loop", "in-place", "memcpy"})

TritonRule: TypeAlias = Callable[[Instruction, Instruction], Decision]


def no_triton(producer: Instruction, consumer: Instruction) -> Decision:
    """Nothing joins a Triton kernel where tiling is unknown."""
    alien = producer if is_triton(consumer) else consumer
    return forbid("triton-unsupported", words=f"room for others ({alien.opcode})")


def is_fusible_bitcast(instruction: Instruction) -> bool:
    """A bitcast that is index arithmetic in a kernel: its elements stay as wide as they are."""
    return instruction.opcode == "bitcast" and keeps_width(instruction)


def is_native_fusible(instruction: Instruction) -> bool:
    """Whether an op or fusion may be part of a kernel of XLA's own emitters, or of a Triton fusion."""
    if not is_fusible(instruction):
        return False
    if instruction.opcode == "fusion":
        return instruction.attributes["kind"] != "kCustom" or is_triton(instruction)
    if instruction.opcode in _ELEMENTAL or is_fusible_bitcast(instruction):
        return True
    return bool(instruction.operands) and is_elementwise(instruction)


@dataclass
class PairRules:
    """The verdict on pairs.

    limits               of one kernel
    usage                what instructions compute and read
    kernels              what would run on the device
    triton               the verdict on a pair of which one is a Triton fusion
    significant_ratio    elements a reduce reads for each result from which on no two share a kernel
    max_ir_size          instructions a kernel's code may have
    room                 what its bytes may be, if they are bounded
    short_reductions     whether a loop may compute reductions of few elements
    """

    limits: KernelLimits
    usage: UsageAnalysis
    kernels: Kernels
    triton: TritonRule = no_triton
    significant_ratio: int = 16
    max_ir_size: int = 10000
    room: CodeRoom | None = None
    short_reductions: bool = False
    footprints: Footprints = field(init=False)
    _natures: dict[Instruction, tuple[bool, bool]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.footprints = Footprints(self.limits)
        self._needed: tuple[TritonRule, ...] = (
            decide_scatter,
            self._decide_budget,
            decide_in_place,
        )
        self._all: tuple[TritonRule, ...] = (
            _decide_bitcast,
            decide_scatter,
            self._decide_reduces,
            self._decide_epilogue,
            self._decide_budget,
            self._decide_size,
            decide_in_place,
        )

    def is_fusible(self, instruction: Instruction) -> bool:
        """``is_native_fusible``, cached."""
        return self._nature(instruction)[0]

    def is_triton(self, instruction: Instruction) -> bool:
        """``is_triton_fusion``, cached."""
        return instruction.opcode == "fusion" and self._nature(instruction)[1]

    def code_of(self, producer: Instruction, consumer: Instruction) -> Written | None:
        """The code size of both in one kernel."""
        return None if self.room is None else self.room.of_fused(producer, consumer)

    def became(self, fusion: Instruction, footprint: Footprint, code: Written | None) -> None:
        """A fusion was made or has grown: ``footprint`` and ``code`` are those of both it was made of."""
        self.footprints.became(fusion, footprint)
        if self.room is not None:
            self.room.became(fusion, code)
        self.kernels.forget(fusion)
        self._natures.pop(fusion, None)

    def forget(self, instruction: Instruction) -> None:
        """An instruction was changed or removed."""
        self.footprints.forget(instruction)
        if self.room is not None:
            self.room.forget(instruction)
        self.kernels.forget(instruction)
        self._natures.pop(instruction, None)

    def _nature(self, instruction: Instruction) -> tuple[bool, bool]:
        known = self._natures.get(instruction)
        if known is None:
            known = is_native_fusible(instruction), is_triton(instruction)
            self._natures[instruction] = known
        return known

    def decide(
        self, producer: Instruction, consumer: Instruction, *, wanted: bool = False
    ) -> Decision:
        """The first rule that forbids; for ``wanted`` pairs only rules of correctness count."""
        decision = self._decide_ends(producer, consumer)
        if not decision.allowed:
            return decision
        if self.is_triton(producer) or self.is_triton(consumer):
            return self.triton(producer, consumer)
        for rule in self._needed if wanted else self._all:
            decision = rule(producer, consumer)
            if not decision.allowed:
                return decision
        return ALLOWED

    def _decide_ends(self, producer: Instruction, consumer: Instruction) -> Decision:
        if producer.is_root:
            return forbid("producer-is-root")
        if not self.is_fusible(producer):
            return forbid("producer-not-fusible")
        if not self.is_fusible(consumer):
            return forbid("consumer-not-fusible")
        if "output_to_operand_aliasing" in consumer.attributes:
            return forbid("consumer-shares-buffers")
        if producer.control_successors:
            return forbid("producer-orders-others")
        return ALLOWED

    def _decide_reduces(self, producer: Instruction, consumer: Instruction) -> Decision:
        """Refuses two long reduces in one kernel, whose cost the model does not see."""
        least = min(
            self.footprints.of(producer).reduction_ratio,
            self.footprints.of(consumer).reduction_ratio,
        )
        if least >= self.significant_ratio:
            return forbid("both-reduce", limit=self.significant_ratio, actual=least)
        return ALLOWED

    def _decide_epilogue(self, producer: Instruction, consumer: Instruction) -> Decision:
        """What follows a reduction must not change its kernel."""
        if self.kernels.of(producer).kind != "reduction":
            return ALLOWED
        ratio = self.footprints.of(producer).reduction_ratio
        if self.short_reductions and ratio < self.significant_ratio:
            return ALLOWED
        if self.kernels.pair(producer, consumer).kind in _LOOPS:
            return forbid("loses-reduction-kernel")
        return ALLOWED

    def _decide_budget(self, producer: Instruction, consumer: Instruction) -> Decision:
        both = self.footprints.of(producer) + self.footprints.of(consumer)
        return decide_budget(both, producer, consumer, self.limits)

    def _decide_size(self, producer: Instruction, consumer: Instruction) -> Decision:
        """How long the code becomes, with the producer written wherever the consumer computes it again."""
        reader = self.usage.of(consumer)
        emitted = 1
        if consumer.opcode == "fusion":
            emitted = reader.operands[consumer.operands.index(producer)].emitted
        size = self.usage.of(producer).ir_size * emitted + reader.ir_size
        if size > self.max_ir_size:
            return forbid("ir-size", limit=self.max_ir_size, actual=size)
        return ALLOWED if self.room is None else self.room.decide(producer, consumer, size)

    def have_room(self, producer: Instruction, consumer: Instruction, count: int) -> bool:
        """Whether so many producers like this one, of which one may join, may surely all join the consumer."""
        own = self.footprints.of(producer)
        if own.shared_memory or own.reductions or self.is_triton(consumer):
            return False
        new = len(set(producer.operands).difference(consumer.operands))
        outputs = subshapes(producer.shape) + subshapes(consumer.shape)
        operands = len(consumer.operands) + count * (new - 1) + outputs
        if new > 1 and operands > self.limits.max_operands:
            return False
        reader = self.usage.of(consumer)
        emitted = reader.operands[consumer.operands.index(producer)].emitted
        size = count * self.usage.of(producer).ir_size * emitted + reader.ir_size
        if size > self.max_ir_size:
            return False
        return self.room is None or self.room.has(producer, consumer, count, size)


def _decide_bitcast(producer: Instruction, consumer: Instruction) -> Decision:
    return forbid("consumer-is-bitcast") if is_fusible_bitcast(consumer) else ALLOWED
