"""What the whole plan would cost with one pair of instructions fused, or kept apart, against the strategy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from hloopt.dataclass import dataclass
from hloopt.fusion.advice import Advice
from hloopt.fusion.history import Histories
from hloopt.fusion.lock_adviser import LockAdviser
from hloopt.fusion.lock_file import Decisions, PairRow, head_text, string
from hloopt.fusion.strategies import begins_fusion, has_strategy
from hloopt.fusion.user_rules import installed_rules
from hloopt.ir.build import clone_module
from hloopt.kernels.costs import kernel_costs
from hloopt.rewrite import Fix, Pass, Pipeline, Watcher
from hloopt.rewrite.entries import each_pass
from hloopt.rewrite.naming import parse_pattern

if TYPE_CHECKING:
    from hloopt.cost_models.predictor import Predictor
    from hloopt.driver.passes import Chosen
    from hloopt.fusion.explained import Lost
    from hloopt.fusion.history import FusionHistory, FusionStep, Refusal
    from hloopt.fusion.provenance import Provenance
    from hloopt.ir import Module
    from hloopt.kernels.costs import KernelCost

__all__ = ["PricedPairs", "WantedPair", "WhatIf"]

_WORK: Final = 4_000
"""Instructions whose fusion is planned again for a page, all alternatives together."""
_MOST: Final = 24


@dataclass(frozen=True)
class WantedPair:
    """A pair decided by the user: names, or patterns, as a lock file has them, before anything is fused."""

    fuse: bool
    producer: str
    consumer: str
    computation: str = ""

    @property
    def row(self) -> PairRow:
        """The decision.  Raises ``UsageError`` for a malformed pattern."""
        names = parse_pattern(self.producer), parse_pattern(self.consumer)
        return PairRow("what if", self.fuse, *names, "", self.computation)

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


@dataclass(frozen=True)
class PricedPairs:
    """A plan with these pairs decided by the user.

    seconds  of one run of the plan, predicted
    changed  whether the plan is another one
    planned  whether all of it was planned again; if not, ``seconds`` is the plan's time and what the
             cost model said of this pair alone, and ``kernels`` is 0
    reason   why the plan is the same, where that is known
    """

    pairs: tuple[WantedPair, ...]
    kernels: int
    seconds: float
    changed: bool
    planned: bool = True
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "pairs": [
                {
                    "fuse": pair.fuse,
                    "computation": pair.computation,
                    "producer": pair.producer,
                    "consumer": pair.consumer,
                }
                for pair in self.pairs
            ],
            "kernels": self.kernels,
            "seconds": self.seconds,
            "made": self.changed,
            "planned": self.planned,
            "reason": self.reason,
            "lock": "".join(pair.lock for pair in self.pairs),
        }


@dataclass
class _BeforeFusion(Watcher):
    """Keeps a copy of the module as it is before the first pass that fuses."""

    module: Module | None = None

    def before(self, number: int, instance: Pass, module: Module) -> None:
        if self.module is None and begins_fusion(instance):
            self.module = clone_module(module)


class WhatIf:
    """A module as it was given, and the passes that plan it.

    ``given`` is a copy that no pass has changed, ``watcher`` has to watch the passes as they run over the
    module: what they do before anything is fused is then not done again for each plan.
    """

    def __init__(self, given: Module, chosen: Chosen, predictor: Predictor) -> None:
        self.given = given
        self.chosen = chosen
        self.predictor = predictor
        self.watcher = _BeforeFusion()
        self._before: tuple[int, float] | None = None

    @property
    def possible(self) -> bool:
        """Whether the passes fuse by strategies, and no rule or lock file decides already."""
        return has_strategy(self.chosen.pipeline) and not self.chosen.controls.advice

    @property
    def before(self) -> tuple[int, float]:
        """Kernels and seconds of the plan as the strategies make it."""
        if self._before is None:
            self._before = self._plan(())[0]
        return self._before

    def set_before(self, costs: Sequence[KernelCost]) -> None:
        """Take the kernels of the plan from where it has been made already."""
        self._before = len(costs), sum(row.seconds for row in costs)

    def priced(self, *pairs: WantedPair) -> PricedPairs:
        """The plan with all of these decided so.

        Raises ``UsageError`` for a malformed pattern.
        """
        found, history = self._plan(tuple(pair.row for pair in pairs))
        changed = found != self.before
        reasons = () if changed else (self._why_not(pair, history) for pair in pairs)
        return PricedPairs(pairs, *found, changed, reason="; ".join(filter(None, reasons)))

    def _why_not(self, pair: WantedPair, history: FusionHistory) -> str:
        """Why a decision about a pair changes nothing: its names, or what refused it even so."""
        start, _ = self._rest
        for text in (pair.producer, pair.consumer):
            pattern = parse_pattern(text)
            if not any(pattern.matches(one) for one in start.instructions()):
                return f"nothing is called {text} before fusion"
        refusals = [
            refusal
            for plan in history.plans
            for refusal in plan.refusals
            if pair.fuse
            and pair.computation in ("", refusal.computation)
            and pair.producer in refusal.producers.members
            and (pair.consumer in refusal.consumers.members or not refusal.consumer)
        ]
        return refusals[-1].decision.reason if refusals else ""

    def _plan(self, pairs: tuple[PairRow, ...]) -> tuple[tuple[int, float], FusionHistory]:
        start, pipeline = self._rest
        module = clone_module(start)
        histories = Histories()
        advisers = (LockAdviser(Decisions("what if", pairs=pairs), histories),) if pairs else ()
        advice = Advice((*advisers, *installed_rules()), histories)
        pipeline.run(module, controls=replace(self.chosen.controls, advice=advice))
        rows = kernel_costs(module, self.predictor)
        return (len(rows), sum(row.seconds for row in rows)), histories.of(module)

    @cached_property
    def _rest(self) -> tuple[Module, Pipeline]:
        """Where each plan starts, and the passes from there on; all of them where runs are counted."""
        entries, controls = self.chosen.pipeline.entries, self.chosen.controls
        first = next(
            (
                at
                for at, entry in enumerate(entries)
                if any(map(begins_fusion, each_pass((entry,))))
            ),
            0,
        )
        kept, counted = self.watcher.module, controls.fuel or controls.stop_after is not None
        if kept is None or counted or isinstance(entries[first], Fix):
            return self.given, self.chosen.pipeline
        return kept, Pipeline(entries[first:])

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
        before = self.before[1]
        found = [self.priced(pair) for pair, _ in shown[:count]]
        found += [
            PricedPairs((pair,), 0, before + change, True, planned=False)
            for pair, change in shown[count:]
        ]
        found.sort(key=lambda row: (not row.changed, row.seconds))
        return {
            "rows": [row.to_json() for row in found],
            "seconds": before,
            "left": len(wanted) - len(found),
            "head": head_text({}),
        }


def _refused(lost: Iterable[Lost], provenance: Provenance) -> Iterator[tuple[WantedPair, float]]:
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


def _joined(provenance: Provenance, runs: Mapping[str, int]) -> Iterator[tuple[WantedPair, float]]:
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
) -> Iterator[WantedPair]:
    """A result of the producer and a reader of it in the consumer, by which a lock file means the pair."""
    home = event.computation
    for name in reversed([*event.producers.members]):
        node = provenance.nodes.get((home, name))
        # A constant is in every kernel that reads it: no lock file decides about one.
        for user in () if node is None or node.opcode == "constant" else node.users:
            if user in consumers:
                yield WantedPair(fuse, name, user, home)
                return
