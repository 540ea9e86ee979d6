"""Models with a cache: each kernel and each pair is priced once, until it changes."""

from __future__ import annotations

from abc import abstractmethod

from hloopt.cost_models.model import PairCostModel, RunTime
from hloopt.cost_models.usage import UsageAnalysis
from hloopt.ir import Instruction
from hloopt.targets import Target

__all__ = ["KeptTimes"]


class KeptTimes(PairCostModel):
    """A model of pairs that caches its answers; ``forget`` and ``grown`` report what changes."""

    def __init__(self, target: Target, usage: UsageAnalysis) -> None:
        super().__init__(target, usage)
        self._known: dict[Instruction, RunTime] = {}
        self._pairs: dict[Instruction, dict[Instruction, tuple[int, RunTime]]] = {}
        self._changes: dict[Instruction, int] = {}

    def run_time(self, instruction: Instruction) -> RunTime:
        """Of one op or fusion as a separate kernel; zero for what no kernel runs."""
        known = self._known.get(instruction)
        if known is None:
            known = self._known[instruction] = self._alone(instruction)
        return known

    def fused_run_time(
        self, producer: Instruction, consumer: Instruction, *, multi_output: bool = False
    ) -> RunTime:
        """Of a producer in its user's kernel; ``multi_output``: the producer's results are written, too.

        Raises ``ValueError`` for a consumer that does not use the producer.
        """
        if multi_output:
            return self._fused(producer, consumer, multi_output=True)
        pairs = self._pairs.setdefault(producer, {})
        change = self._changes.get(consumer, 0)
        known = pairs.get(consumer)
        if known is None or known[0] != change:
            known = change, self._fused(producer, consumer, multi_output=False)
            pairs[consumer] = known
        return known[1]

    def forget(self, instruction: Instruction) -> None:
        """An instruction has changed, or is gone."""
        super().forget(instruction)
        self._forget_times(instruction)

    def grown(self, fusion: Instruction) -> None:
        """Producers have been moved into a fusion (``UsageAnalysis.grown``); else as ``forget``."""
        self.usage.grown(fusion)
        self._forget_times(fusion)

    def _forget_times(self, instruction: Instruction) -> None:
        self._known.pop(instruction, None)
        self._pairs.pop(instruction, None)
        # What is known of its operands with it, of which there may be many, is out of date.
        self._changes[instruction] = self._changes.get(instruction, 0) + 1

    @abstractmethod
    def _alone(self, instruction: Instruction) -> RunTime:
        """What ``run_time`` keeps."""

    @abstractmethod
    def _fused(
        self, producer: Instruction, consumer: Instruction, *, multi_output: bool
    ) -> RunTime:
        """What ``fused_run_time`` keeps."""
