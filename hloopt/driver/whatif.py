"""What the whole plan would cost with one pair of instructions fused, or kept apart, against the strategy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
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

__all__ = ["PricedPair", "WhatIf"]

_Wanted: TypeAlias = tuple[bool, str, str, str]
"""Whether to fuse; the computation, the producer and the consumer."""

_WORK: Final = 20_000
"""Instructions that are planned again for a page, all alternatives and the plan without them together."""
_MOST: Final = 24


@dataclass(frozen=True)
class PricedPair:
    """A pair decided by the user: names as a lock file has them, before anything is fused.

    seconds  of one run of the plan, predicted
    changed  whether the plan is another one
    """

    fuse: bool
    computation: str
    producer: str
    consumer: str
    kernels: int
    seconds: float
    changed: bool

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

    def rows(self, lost: Iterable[Lost], provenance: Provenance) -> dict[str, Any]:
        """The alternatives that matter, priced as far as there is time; as JSON values.

        First the refusals that cost most and that advice could overrule, then the joined pairs that gain least.
        """
        wanted = [*dict.fromkeys((*_refused(lost, provenance), *_joined(provenance)))]
        plans = _WORK // max(self.given.instruction_count(), 1)
        count = max(0, min(_MOST, plans - 1))
        found = [
            self.priced(fuse=fuse, producer=producer, consumer=consumer, computation=home)
            for fuse, home, producer, consumer in wanted[:count]
        ]
        found.sort(key=lambda row: (not row.changed, row.seconds))
        return {
            "rows": [row.to_json() for row in found],
            "seconds": self.before[1] if found else None,
            "left": len(wanted) - len(found),
            "head": head_text({}),
        }


def _refused(lost: Iterable[Lost], provenance: Provenance) -> Iterator[_Wanted]:
    refusals = {
        (refusal.computation, plan.run, refusal.producer, refusal.consumer): refusal
        for plan in provenance.history.plans
        for refusal in plan.refusals
    }
    for row in lost:
        word = row.word
        refusal = refusals.get((row.computation, word.run, word.producer, word.consumer))
        if word.advisable and refusal is not None:
            yield from _named(True, refusal, refusal.consumers.grown, provenance)


def _joined(provenance: Provenance) -> Iterator[_Wanted]:
    steps = [
        (step.comparison.gain_us, step)
        for plan in provenance.history.plans
        for step in plan.steps
        if step.comparison is not None
    ]
    for _, step in sorted(steps, key=lambda row: row[0])[:_MOST]:
        yield from _named(False, step, step.consumers.members, provenance)


def _named(
    fuse: bool, event: FusionStep | Refusal, consumers: Collection[str], provenance: Provenance
) -> Iterator[_Wanted]:
    """A result of the producer and a reader of it in the consumer, by which a lock file means the pair."""
    home = event.computation
    for name in reversed([*event.producers.members]):
        node = provenance.nodes.get((home, name))
        for user in () if node is None else node.users:
            if user in consumers:
                yield fuse, home, name, user
                return
