"""What the user wants fused, or kept apart: consulted before a strategy's own verdict.

An answer about a pair comes with its reason; no answer leaves the pair to the strategy.  Advice cannot force
what would make the module wrong (a cycle, a lost update in place, a side effect): strategies check that after
a yes, too.

A rule is called on pairs as they are at that time: an op that has been fused with others since is a fusion
when its next reader is examined.  So a rule that matches only ops may refuse a pair that is in one kernel in
the end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from hloopt.dataclass import dataclass
from hloopt.fusion.decision import ALLOWED, Decision
from hloopt.fusion.history import FusionHistory, Histories
from hloopt.fusion.strategies import asks_advice, is_strategy
from hloopt.fusion.user_rules import UserRule, installed_rules
from hloopt.ir import Instruction
from hloopt.rewrite import Pipeline
from hloopt.rewrite.entries import each_pass

if TYPE_CHECKING:
    from hloopt.fusion.lock_file import Decisions

__all__ = ["Advice", "Adviser", "Overridden", "advised"]


class Adviser(Protocol):
    """A source of advice: a user's function, a lock file, an installed package."""

    def advise(self, producer: Instruction, consumer: Instruction) -> Decision | None:
        """Yes, no with a reason, or nothing about fusing ``producer`` into ``consumer``."""


@dataclass(frozen=True, slots=True)
class Overridden:
    """A pair that a rule refused and that is in one kernel anyway, ``fusion``."""

    label: str
    producer: Instruction
    consumer: str
    reason: str
    computation: str
    fusion: str


@dataclass(frozen=True)
class Advice:
    """All sources of advice; the first answer counts.

    histories  what has been fused, for advisers that identify instructions by name
    calls      how often each rule was called since a strategy began, by its label
    refused    the pairs that it refused: by computation and a result of each side, the producer and the reason
    """

    advisers: Sequence[Adviser] = field(default_factory=tuple)
    histories: Histories = field(default_factory=Histories, compare=False)
    calls: Counter[str] = field(default_factory=Counter, compare=False)
    refused: dict[str, dict[tuple[str, str, str], tuple[Instruction, str]]] = field(
        default_factory=lambda: defaultdict(dict), compare=False
    )

    def __bool__(self) -> bool:
        return bool(self.advisers)

    def decide(self, producer: Instruction, consumer: Instruction) -> Decision:
        """The first answer about a pair; the pair is allowed, but not wanted, where there is none."""
        for adviser in self.advisers:
            decision = adviser.advise(producer, consumer)
            if isinstance(adviser, UserRule):
                self._note(adviser.label, producer, consumer, decision)
            if decision is not None:
                return decision
        return ALLOWED

    def _note(
        self, label: str, producer: Instruction, consumer: Instruction, decision: Decision | None
    ) -> None:
        """Count a call, and record a refusal."""
        self.calls[label] += 1
        home = producer.computation
        if decision is None or decision or home is None or home.module is None:
            return
        history = self.histories.of(home.module)
        pair = home.name, history.result(producer), history.result(consumer)
        self.refused[label][pair] = producer, decision.reason

    def prologue(self, loop: Instruction) -> tuple[str, ...] | None:
        """The ops by name that are to join a loop's kernel; None without advice."""
        for adviser in self.advisers:
            ask = getattr(adviser, "prologue", None)
            names = ask(loop) if ask is not None else None
            if names is not None:
                return tuple(names)
        return None

    def begin(self) -> None:
        """A strategy begins."""
        self.calls.clear()
        self.refused.clear()

    def overridden(self, history: FusionHistory) -> Iterator[Overridden]:
        """The refused pairs that are in one kernel now."""
        homes: dict[tuple[str, str], set[str]] = defaultdict(set)
        if self.refused:
            for (computation, fusion), made in history.fusions.items():
                for member in made.members if made.is_fused else ():
                    homes[computation, member].add(fusion)
        for label, pairs in self.refused.items():
            for (computation, first, second), (producer, reason) in pairs.items():
                common = homes[computation, first] & homes[computation, second]
                if common:
                    yield Overridden(label, producer, second, reason, computation, min(common))

    def summary(self, found: Sequence[Overridden]) -> Iterator[str]:
        """A sentence about each rule, ``found`` being what ``overridden`` gave."""
        for label, calls in self.calls.items():
            times = "once" if calls == 1 else f"{calls} times"
            refused = len(self.refused[label])
            pairs = "one pair" if refused == 1 else f"{refused} pairs"
            line = f"{label}: called {times}, refused {pairs}"
            mine = [one for one in found if one.label == label]
            if mine:
                first = mine[0]
                line += (
                    f", of which {len(mine)} are in one kernel anyway, such as "
                    f"%{first.producer.name} and %{first.consumer} in %{first.fusion}: what was fused "
                    "before is a fusion when the rule is called on its next reader"
                )
            yield line


def advised(
    pipeline: Pipeline,
    rules: Sequence[UserRule] = (),
    decisions: Decisions | None = None,
    *,
    frozen: bool = False,
) -> tuple[Pipeline, Advice]:
    """A pipeline that fuses, with the fusions of a lock file made first, and the advice its strategies consult.

    Rules come first, then the lock file, then installed packages.  Raises ``UsageError`` for an installed
    rule that cannot be loaded.
    """
    histories = Histories()
    if not decisions:
        return pipeline, Advice((*rules, *installed_rules()), histories)
    from hloopt.fusion.lock_adviser import LockAdviser
    from hloopt.fusion.locked_fusion import LockedFusion

    advisers: tuple[Adviser, ...] = (*rules, LockAdviser(decisions, histories), *installed_rules())
    first_of = is_strategy if any(map(is_strategy, pipeline.passes())) else asks_advice
    at = next(
        number
        for number, entry in enumerate(pipeline.entries)
        if any(map(first_of, each_pass((entry,))))
    )
    first = LockedFusion(decisions.name, frozen)
    entries = (*pipeline.entries[:at], first, *pipeline.entries[at:])
    return Pipeline(entries), Advice(advisers, histories)
