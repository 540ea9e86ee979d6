"""What the whole plan would cost with one pair of instructions fused, or kept apart, against the strategy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.fusion.advice import Advice
from hloopt.fusion.history import Histories
from hloopt.fusion.lock_adviser import LockAdviser
from hloopt.fusion.lock_file import Decisions, PairRow, head_text, string
from hloopt.fusion.strategies import has_strategy
from hloopt.fusion.user_rules import installed_rules
from hloopt.ir.build import clone_module
from hloopt.kernels.costs import kernel_costs
from hloopt.rewrite.naming import parse_pattern

if TYPE_CHECKING:
    from hloopt.cost_models.predictor import Predictor
    from hloopt.driver.passes import Chosen
    from hloopt.fusion.explained import Lost
    from hloopt.fusion.history import FusionStep, Refusal
    from hloopt.fusion.provenance import Provenance
    from hloopt.ir import Module
    from hloopt.kernels.costs import KernelCost

__all__ = ["PricedPair", "WhatIf"]

_Pair: TypeAlias = tuple[bool, str, str, str]
"""Whether to fuse; the computation, the producer and the consumer."""

_WORK: Final = 12_000
"""Instructions that are planned again for a page, all alternatives together."""
_MOST: Final = 24


@dataclass(frozen=True)
class PricedPair:
    """A pair decided by the user: names as a lock file has them, before anything is fused.

    seconds  of one run of the plan, predicted
    changed  whether the plan is another one
    planned  whether all of it was planned again; if not, ``seconds`` is the plan's time and what the
             cost model said of this pair alone, and ``kernels`` is 0
    """

    fuse: bool
    computation: str
    producer: str
    consumer: str
    kernels: int
    seconds: float
    changed: bool
    planned: bool = True

    @property
    def lock(self) -> str:
        """The table of the lock file."""
        keys = {
            "computation": self.computation,
            "producer": self.producer,
            "consumer": self.consumer,
        }
        rows = [f"{key} = {string(value)}" for key, value in keys.items() if value]
        return "\n".join(["", f"[[{'fuse' if self.fuse else 'nofuse'}]]", *rows, ""])

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "fuse": self.fuse,
            "computation": self.computation,
            "producer": self.producer,
            "consumer": self.consumer,
            "kernels": self.kernels,
            "seconds": self.seconds,
            "made": self.changed,
            "planned": self.planned,
            "lock": self.lock,
        }


@dataclass
class WhatIf:
    """A module as it was given, and the passes that plan it.

    ``given`` is a copy that no pass has changed.
    """

    given: Module
    chosen: Chosen
    predictor: Predictor
    _before: tuple[int, float] | None = None

    @property
    def possible(self) -> bool:
        """Whether the passes fuse by strategies, and no rule or lock file decides already."""
        return has_strategy(self.chosen.pipeline) and not self.chosen.controls.advice

    @property
    def before(self) -> tuple[int, float]:
        """Kernels and seconds of the plan as the strategies make it."""
        if self._before is None:
            self._before = self._plan(())
        return self._before

    def set_before(self, costs: Sequence[KernelCost]) -> None:
        """Take the kernels of the plan from where it has been made already."""
        self._before = len(costs), sum(row.seconds for row in costs)

    def priced(
        self, *, fuse: bool, producer: str, consumer: str, computation: str = ""
    ) -> PricedPair:
        """The plan with the pair fused, or kept apart; names may be patterns.

        Raises ``UsageError`` for a malformed pattern.
        """
        row = PairRow(
            "what if", fuse, parse_pattern(producer), parse_pattern(consumer), "", computation
        )
        found = self._plan((row,))
        return PricedPair(fuse, computation, producer, consumer, *found, found != self.before)

    def _plan(self, pairs: tuple[PairRow, ...]) -> tuple[int, float]:
        module = clone_module(self.given)
        histories = Histories()
        advisers = (LockAdviser(Decisions("what if", pairs=pairs), histories),) if pairs else ()
        advice = Advice((*advisers, *installed_rules()), histories)
        self.chosen.pipeline.run(module, controls=replace(self.chosen.controls, advice=advice))
        rows = kernel_costs(module, self.predictor)
        return len(rows), sum(row.seconds for row in rows)

    def rows(
        self, lost: Iterable[Lost], provenance: Provenance, runs: Mapping[str, int]
    ) -> dict[str, Any]:
        """The alternatives that matter, as JSON values; ``runs`` is how often computations run, by name.

        First the refusals that cost most and that advice could overrule, then the joined pairs that gain least.
        As many as there is time for are planned again; others have the price of the pair alone.
        """
        wanted = {**dict(_refused(lost, provenance)), **dict(_joined(provenance, runs))}
        count = min(_MOST, _WORK // max(self.given.instruction_count(), 1))
        shown = [*wanted.items()][:_MOST]
        found = [
            self.priced(fuse=fuse, producer=producer, consumer=consumer, computation=home)
            for (fuse, home, producer, consumer), _ in shown[:count]
        ]
        found.sort(key=lambda row: (not row.changed, row.seconds))
        before = self.before[1]
        alone = [
            PricedPair(fuse, home, producer, consumer, 0, before + change, True, planned=False)
            for (fuse, home, producer, consumer), change in shown[count:]
        ]
        found += sorted(alone, key=lambda row: row.seconds)
        return {
            "rows": [row.to_json() for row in found],
            "seconds": before if found else None,
            "left": len(wanted) - len(found),
            "head": head_text({}),
        }


def _refused(lost: Iterable[Lost], provenance: Provenance) -> Iterator[tuple[_Pair, float]]:
    """Pairs that could be fused, and by how many seconds that changes the plan."""
    refusals = {
        (refusal.computation, plan.run, refusal.producer, refusal.consumer): refusal
        for plan in provenance.history.plans
        for refusal in plan.refusals
    }
    for row in lost:
        word = row.word
        refusal = refusals.get((row.computation, word.run, word.producer, word.consumer))
        if word.advisable and refusal is not None:
            for pair in _named(True, refusal, refusal.consumers.grown, provenance):
                yield pair, -row.lost_us * 1e-6


def _joined(provenance: Provenance, runs: Mapping[str, int]) -> Iterator[tuple[_Pair, float]]:
    """Pairs that could be parted, and by how many seconds that changes the plan."""
    steps = [
        (step.comparison.gain_us * runs.get(step.computation, 1), step)
        for plan in provenance.history.plans
        for step in plan.steps
        if step.comparison is not None and isfinite(step.comparison.gain_us)
    ]
    for gain, step in sorted(steps, key=lambda row: row[0])[:_MOST]:
        for pair in _named(False, step, step.consumers.members, provenance):
            yield pair, gain * 1e-6


def _named(
    fuse: bool, event: FusionStep | Refusal, consumers: Collection[str], provenance: Provenance
) -> Iterator[_Pair]:
    """A result of the producer and a reader of it in the consumer, by which a lock file means the pair."""
    home = event.computation
    for name in reversed([*event.producers.members]):
        node = provenance.nodes.get((home, name))
        # A constant is in every kernel that reads it: no lock file decides about one.
        for user in () if node is None or node.opcode == "constant" else node.users:
            if user in consumers:
                yield fuse, home, name, user
                return
