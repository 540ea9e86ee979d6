"""What the rules ask again and again about an op or a fusion, remembered while it stays as it is."""

from __future__ import annotations

from hloopt.dataclass import dataclass
from hloopt.fusion.budget import reduction_count, shared_memory
from hloopt.fusion.limits import KernelLimits
from hloopt.ir import Computation, Instruction
from hloopt.types import ArrayShape

__all__ = ["Facts", "FactsCache"]


@dataclass(frozen=True, slots=True)
class Facts:
    """Sums over what one kernel computes.

    shared_memory    bytes a block needs
    reductions       with a tiled kernel of their own
    reduction_ratio  elements read for each result, the most of any reduce that is not variadic; 0 without
    """

    shared_memory: int = 0
    reductions: int = 0
    reduction_ratio: int = 0

    def __add__(self, other: Facts) -> Facts:
        return Facts(
            self.shared_memory + other.shared_memory,
            self.reductions + other.reductions,
            max(self.reduction_ratio, other.reduction_ratio),
        )


class FactsCache:
    """Facts by instruction."""

    def __init__(self, limits: KernelLimits) -> None:
        self._limits = limits
        self._facts: dict[Instruction, Facts] = {}

    def of(self, instruction: Instruction) -> Facts:
        """The facts of an op or fusion."""
        known = self._facts.get(instruction)
        if known is None:
            known = self._facts[instruction] = self._count(instruction)
        return known

    def became(self, fusion: Instruction, facts: Facts) -> None:
        """A fusion was made or has grown; its facts are the sums of those it was made of."""
        self._facts[fusion] = facts

    def forget(self, instruction: Instruction) -> None:
        """An instruction has changed, or is gone."""
        self._facts.pop(instruction, None)

    def _count(self, instruction: Instruction) -> Facts:
        if instruction.opcode != "fusion":
            return self._of_op(instruction)
        body: Computation = instruction.attributes["calls"]
        total = Facts()
        for entry in body:
            if entry.opcode in _COUNTED:
                total += self._of_op(entry)
        return total

    def _of_op(self, op: Instruction) -> Facts:
        if op.opcode not in _COUNTED:
            return _NOTHING
        return Facts(shared_memory(op, self._limits), reduction_count(op), _reduction_ratio(op))


_COUNTED = ("reduce", "transpose")
_NOTHING = Facts()


def _reduction_ratio(op: Instruction) -> int:
    if op.opcode != "reduce" or not isinstance(op.shape, ArrayShape):
        return 0
    return op.operands[0].array.elements // max(op.shape.elements, 1)
