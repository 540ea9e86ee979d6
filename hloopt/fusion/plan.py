"""What a fusion strategy did, and what it refused and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from hloopt.cost_models.model import Comparison
from hloopt.dataclass import dataclass
from hloopt.fusion.decision import Decision
from hloopt.types import Metadata

__all__ = ["FusionPlan", "FusionStep", "LoopFacts", "Refusal", "WayFacts"]


@dataclass(frozen=True, slots=True)
class FusionStep:
    """One producer that joined one consumer; names are those of the module before the step.

    fusion        what both are part of now
    duplicated    whether the producer stayed for other users
    multi_output  whether the producer's results are among the fusion's
    comparison    the times the strategy believed in, where it asked a cost model; of all consumers together
                  where it decides about a producer with all of its users
    metadata, offset  of the producer, for whoever looks up its lines
    """

    computation: str
    producer: str
    producer_opcode: str
    consumer: str
    consumer_opcode: str
    fusion: str
    kind: str
    duplicated: bool
    multi_output: bool = False
    comparison: Comparison | None = None
    metadata: Metadata | None = None
    offset: int = -1


@dataclass(frozen=True, slots=True)
class Refusal:
    """One pair that was not fused; ``consumer`` is the fusion's name where it became one.

    ``consumer`` is empty where something of the producer alone decided.  The other fields are those of a step.
    """

    computation: str
    producer: str
    producer_opcode: str
    consumer: str
    consumer_opcode: str
    decision: Decision
    comparison: Comparison | None = None
    metadata: Metadata | None = None
    offset: int = -1


@dataclass(frozen=True, slots=True)
class WayFacts:
    """One way to run a loop as one kernel.

    kernel        its name: while-per-thread, while-per-block
    units         how many units there are, one for each index of the parallel axes; 0 where nobody can tell
    problem       why it does not fit; empty where it does
    registers     32-bit values a thread holds at once
    shared_bytes  of a block
    threads       of a block
    time_us       of the whole loop, predicted; None where nobody was asked
    parts         what that is made of, in words
    """

    kernel: str
    units: int
    problem: str = ""
    registers: int = 0
    shared_bytes: int = 0
    threads: int = 0
    time_us: float | None = None
    parts: str = ""


@dataclass(frozen=True, slots=True)
class LoopFacts:
    """A ``while`` that was looked at, and the ways that were considered.

    fusion  what it is called as one kernel; empty where it is none
    kernel  which of the ways was taken
    inside  the computations that only this loop reaches
    trips   how long it runs, in words; empty where nobody can tell
    profit  the best way's time against that of trips started by the host, in words; empty where nobody knows
    """

    computation: str
    loop: str
    ways: tuple[WayFacts, ...]
    trips: str
    fusion: str = ""
    kernel: str = ""
    inside: tuple[str, ...] = ()
    profit: str = ""


@dataclass
class FusionPlan:
    """Steps in the order in which they were taken, and the last word on every pair refused.

    strategy    the name of the pass
    cost_model  the one it asked, empty where it asks none
    target      the device the times are of
    loops       those that were looked at, where the strategy makes kernels of loops
    """

    strategy: str
    steps: list[FusionStep] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    cost_model: str = ""
    target: str = ""
    loops: list[LoopFacts] = field(default_factory=list)

    def reasons(self) -> Counter[str]:
        """How often each reason was the last word."""
        return Counter(refusal.decision.code for refusal in self.refusals)
