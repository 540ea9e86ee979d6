"""The interface of cost models.

A model belongs to one target and caches what it has computed: callers that change an instruction report it
(``forget``).  Models of other distributions are found by the entry point group ``hloopt.cost_models``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final, Literal, TypeAlias

from hloopt.cost_models.usage import UsageAnalysis
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.targets import Target

__all__ = ["NOTHING", "Bound", "Comparison", "CostModel", "PairCostModel", "RunTime"]

Bound: TypeAlias = Literal["memory", "compute", "launch", "contention", "link"]
"""What a kernel waits for longest; contention is updates of one place that wait for each other, and a link is
that between devices."""


@dataclass(frozen=True, slots=True)
class RunTime:
    """How long one kernel runs; all times in nanoseconds, without the launch.

    flops, bytes_read, bytes_written  what it does, repeated reads counted each time
    read_ns, write_ns, compute_ns     the three parts
    exec_ns                           together, as far as they overlap
    blocks, threads                   of the launch, threads in a block; 0 where the model uses none
    coalesced                         whether reads use whole transactions
    waiting_ns                        what updates of the same places wait for each other
    link_ns                           what a collective takes on its link
    launches                          of one run; ``exec_ns`` has those after the first
    """

    flops: int
    bytes_read: int
    bytes_written: int
    read_ns: float
    write_ns: float
    compute_ns: float
    exec_ns: float
    blocks: int = 0
    threads: int = 0
    coalesced: bool = True
    waiting_ns: float = 0.0
    link_ns: float = 0.0
    launches: int = 1

    def bound(self, launch_ns: float) -> Bound:
        """What the kernel waits for longest, the launch among it."""
        memory = self.read_ns + self.write_ns
        if self.link_ns > max(memory, self.compute_ns, launch_ns):
            return "link"
        if self.waiting_ns > max(memory, self.compute_ns, launch_ns):
            return "contention"
        if launch_ns >= max(memory, self.compute_ns):
            return "launch"
        return "memory" if memory >= self.compute_ns else "compute"


NOTHING: Final = RunTime(0, 0, 0, 0.0, 0.0, 0.0, 0.0)
"""The time of what no kernel runs."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Microseconds of some kernels left apart and fused, launches included.

    ``at_least``: left apart they take longer; what they compute was not priced, since it would change nothing.
    """

    unfused_us: float
    fused_us: float
    at_least: bool = False

    @property
    def gain_us(self) -> float:
        """What fusing saves; negative where it costs."""
        return self.unfused_us - self.fused_us


class CostModel(ABC):
    """Base of all models; the first line of a model's docstring is what lists show.

    name       as ``cost_model=`` has it
    for_any_device  whether it prices devices without blocks and threads, too; ``roofline`` stands in where not
    launch_ns  of one kernel, whatever it does
    usage      what instructions compute and read, counted as this model counts
    """

    name: ClassVar[str]
    for_any_device: ClassVar[bool] = False
    launch_ns: float = 1000.0

    def __init__(self, target: Target, usage: UsageAnalysis | None = None) -> None:
        self.target = target
        self.usage = usage if usage is not None else UsageAnalysis()

    @abstractmethod
    def run_time(self, instruction: Instruction) -> RunTime:
        """Of one op or fusion as a separate kernel.

        Zero for what no kernel runs: parameters, constants, tuples, bitcasts.
        """

    @abstractmethod
    def compare(
        self,
        producer: Instruction,
        consumers: Sequence[Instruction],
        *,
        multi_output: bool = False,
    ) -> Comparison:
        """A producer as it is, and fused into each of some of its users, a copy each.

        ``multi_output`` is for one consumer: the fused kernel writes the producer's results, too.
        """

    def launched_run_time(self, instruction: Instruction) -> RunTime:
        """Of the kernels that run it in the end, where the decisions of a strategy go by others."""
        return self.run_time(instruction)

    def forget(self, instruction: Instruction) -> None:
        """An instruction has changed, or is gone."""
        self.usage.forget(instruction)

    def grown(self, fusion: Instruction) -> None:
        """Producers have been moved into a fusion, in place of parameters, or beside its results."""
        self.forget(fusion)


class PairCostModel(CostModel):
    """A model that prices a producer in its user's kernel, pair by pair."""

    @abstractmethod
    def fused_run_time(
        self, producer: Instruction, consumer: Instruction, *, multi_output: bool = False
    ) -> RunTime:
        """Of a producer in its user's kernel; ``multi_output``: the producer's results are written, too."""

    def compare(
        self,
        producer: Instruction,
        consumers: Sequence[Instruction],
        *,
        multi_output: bool = False,
    ) -> Comparison:
        """A producer as it is, and fused into each of some of its users, a copy each, in microseconds."""
        unfused = self.launch_ns * (len(consumers) + 1) + self.run_time(producer).exec_ns
        fused = self.launch_ns * len(consumers)
        for consumer in consumers:
            unfused += self.run_time(consumer).exec_ns
            fused += self.fused_run_time(producer, consumer, multi_output=multi_output).exec_ns
        return Comparison(unfused / 1000, fused / 1000)
