"""What the user wants fused, or kept apart: asked before every strategy's own verdict.

An answer about a pair comes with its reason; no answer leaves the pair to the strategy.  What would make the
module wrong (a cycle, a lost update in place, a side effect) no advice can ask for: strategies check that after
a yes, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hloopt.fusion.decision import Decision
from hloopt.ir import Instruction

__all__ = ["Advice", "Adviser"]


class Adviser(Protocol):
    """One who has a say: a function of the user, a lock file, an installed package."""

    def advise(self, producer: Instruction, consumer: Instruction) -> Decision | None:
        """Yes, no with a reason, or nothing about fusing ``producer`` into ``consumer``."""


@dataclass(frozen=True)
class Advice:
    """All who have a say; the first answer counts."""

    advisers: Sequence[Adviser] = field(default_factory=tuple)

    def __bool__(self) -> bool:
        return bool(self.advisers)

    def decide(self, producer: Instruction, consumer: Instruction) -> Decision | None:
        """The first answer about a pair; None where nobody has one."""
        for adviser in self.advisers:
            decision = adviser.advise(producer, consumer)
            if decision is not None:
                return decision
        return None
