"""Models with a cache: each kernel and each pair is priced once, until it changes, and equal ones once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING

from hloopt.analysis.emitters.pairs import KernelShape
from hloopt.analysis.structures import keep
from hloopt.cost_models.counting import OpCounting
from hloopt.cost_models.model import PairCostModel, RunTime
from hloopt.cost_models.usage import Usage, UsageAnalysis
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.targets import Target

if TYPE_CHECKING:
    from hloopt.cost_models.block_level import PricedTiling

__all__ = ["KeptTimes"]


@dataclass
class StructureTimes:
    """What a model knows of a device by structures (``structures.py``), whatever the module.

    usages    what ops and fusions compute and read
    times     of kernels
    launched  of those that run in the end, where they are others
    pairs     of pairs in one kernel
    kernels   kinds, blocks and threads
    tilings   of Triton kernels
    """

    usages: dict[int, Usage] = field(default_factory=dict)
    times: dict[Hashable, RunTime] = field(default_factory=dict)
    launched: dict[int, RunTime] = field(default_factory=dict)
    pairs: dict[Hashable, RunTime] = field(default_factory=dict)
    kernels: dict[Hashable, KernelShape] = field(default_factory=dict)
    tilings: dict[Hashable, PricedTiling] = field(default_factory=dict)


@lru_cache(maxsize=4)
def _times_of(model: type[KeptTimes], target: Target) -> StructureTimes:
    return StructureTimes()


class KeptTimes(PairCostModel):
    """A model of pairs that caches its answers; ``forget`` and ``grown`` report what changes.

    Prices depend on structures alone, but for what ``_around`` returns.
    """

    def __init__(self, target: Target, counting: OpCounting) -> None:
        self._structures = _times_of(type(self), target)
        super().__init__(target, UsageAnalysis(counting, self._structures.usages))
        self._known: dict[Instruction, RunTime] = {}
        self._pairs: dict[Instruction, dict[Instruction, tuple[int, RunTime]]] = {}
        self._changes: dict[Instruction, int] = {}

    def run_time(self, instruction: Instruction) -> RunTime:
        """Of one op or fusion as a separate kernel; zero for what no kernel runs."""
        known = self._known.get(instruction)
        if known is None:
            number = self.usage.structures.of(instruction)
            key = number, self._around(instruction)
            known = None if number is None else self._structures.times.get(key)
            if known is None:
                known = self._alone(instruction)
                if number is not None:
                    keep(self._structures.times, key, known)
            self._known[instruction] = known
        return known

    def fused_run_time(
        self, producer: Instruction, consumer: Instruction, *, multi_output: bool = False
    ) -> RunTime:
        """Of a producer in its user's kernel; ``multi_output``: the producer's results are written, too.

        Raises ``ValueError`` for a consumer that does not use the producer.
        """
        if multi_output:
            return self._pair(producer, consumer, multi_output=True)
        pairs = self._pairs.setdefault(producer, {})
        change = self._changes.get(consumer, 0)
        known = pairs.get(consumer)
        if known is None or known[0] != change:
            known = change, self._pair(producer, consumer, multi_output=False)
            pairs[consumer] = known
        return known[1]

    def _pair(self, producer: Instruction, consumer: Instruction, *, multi_output: bool) -> RunTime:
        pair = self.usage.structures.pair(producer, consumer)
        if pair is None:
            return self._fused(producer, consumer, multi_output=multi_output)
        key = pair, multi_output, self._around(producer), self._around(consumer)
        known = self._structures.pairs.get(key)
        if known is None:
            known = self._fused(producer, consumer, multi_output=multi_output)
            keep(self._structures.pairs, key, known)
        return known

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

    def _around(self, instruction: Instruction) -> Hashable:
        """What the price of an op or fusion depends on, besides its structure."""
        return None

    @abstractmethod
    def _alone(self, instruction: Instruction) -> RunTime:
        """What ``run_time`` keeps."""

    @abstractmethod
    def _fused(
        self, producer: Instruction, consumer: Instruction, *, multi_output: bool
    ) -> RunTime:
        """What ``fused_run_time`` keeps."""
