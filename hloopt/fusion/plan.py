"""What a fusion strategy did, and what it refused and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hloopt.fusion.decision import Decision

__all__ = ["FusionPlan", "FusionStep", "Refusal"]


@dataclass(frozen=True, slots=True)
class FusionStep:
    """One producer that joined one consumer; names are those of the module before the step.

    ``duplicated`` says that the producer stayed for other users.
    """

    computation: str
    producer: str
    producer_opcode: str
    consumer: str
    consumer_opcode: str
    fusion: str
    kind: str
    duplicated: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """One pair that was not fused; ``consumer`` is the fusion's name where it became one."""

    computation: str
    producer: str
    producer_opcode: str
    consumer: str
    consumer_opcode: str
    decision: Decision


@dataclass
class FusionPlan:
    """Steps in the order in which they were taken, and the last word on every pair refused."""

    strategy: str
    steps: list[FusionStep] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    def reasons(self) -> Counter[str]:
        """How often each reason was the last word."""
        return Counter(refusal.decision.code for refusal in self.refusals)
