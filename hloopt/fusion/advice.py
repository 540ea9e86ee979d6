"""What the user wants fused, or kept apart: asked before every strategy's own verdict.

An answer about a pair comes with its reason; no answer leaves the pair to the strategy.  What would make the
module wrong (a cycle, a lost update in place, a side effect) no advice can ask for: strategies check that after
a yes, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Protocol

from hloopt.dataclass import dataclass
from hloopt.fusion.answers import Answers
from hloopt.fusion.decision import Decision
from hloopt.fusion.ledger import Ledgers, LoopMade
from hloopt.fusion.user_rules import UserRule
from hloopt.ir import Computation, Instruction

__all__ = ["Advice", "Adviser"]


class Adviser(Protocol):
    """One who has a say: a function of the user, a lock file, an installed package."""

    def advise(self, producer: Instruction, consumer: Instruction) -> Decision | None:
        """Yes, no with a reason, or nothing about fusing ``producer`` into ``consumer``."""


@dataclass(frozen=True)
class Advice:
    """All who have a say; the first answer counts.

    ``ledgers`` follow what each fusion is made of, for advisers that know instructions by their names;
    ``answers`` are those of rules since a strategy began.
    """

    advisers: Sequence[Adviser] = field(default_factory=tuple)
    ledgers: Ledgers = field(default_factory=Ledgers, compare=False)
    answers: Answers = field(default_factory=Answers, compare=False)

    def __bool__(self) -> bool:
        return bool(self.advisers)

    def decide(self, producer: Instruction, consumer: Instruction) -> Decision | None:
        """The first answer about a pair; None where nobody has one."""
        for adviser in self.advisers:
            decision = adviser.advise(producer, consumer)
            if isinstance(adviser, UserRule):
                ledger = self.ledgers.of(producer)
                self.answers.note(adviser.label, producer, consumer, decision, ledger)
            if decision is not None:
                return decision
        return None

    def joined(
        self, producer: Instruction, consumer: str, fusion: Instruction, *, multi_output: bool
    ) -> None:
        """A strategy has fused two: ``consumer`` is the name the other one had."""
        ledger = self.ledgers.of(fusion)
        ledger.joined(producer.name, consumer, fusion, multi_output=multi_output)

    def prologue(self, loop: Instruction) -> tuple[str, ...] | None:
        """The ops by name that are to join a loop's kernel; None where nobody has a say."""
        for adviser in self.advisers:
            ask = getattr(adviser, "prologue", None)
            names = ask(loop) if ask is not None else None
            if names is not None:
                return tuple(names)
        return None

    def looked_at(self, home: Computation, made: LoopMade) -> None:
        """What has become of a loop."""
        if home.module is not None:
            self.ledgers.open(home.module).loops[made.computation, made.name] = made

    def begin(self) -> None:
        """A strategy begins."""
        self.answers.asked.clear()
        self.answers.refused.clear()
        self.settle()

    def settle(self) -> None:
        """Passes have gone by, or a strategy has come to its end."""
        self.ledgers.settle()
