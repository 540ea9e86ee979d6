"""Which rewrites an instruction came out of, and whether they lead anywhere.

Rules that undo each other, and rules that match inside of what they make, would go on forever: after
``OSCILLATION_LIMIT`` rewrites of what came from one instruction, none of which made the computation smaller,
the driver lets it be and says which rules they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.rewrite.pass_ import PassLog

__all__ = ["OSCILLATION_LIMIT", "Fights", "History"]

OSCILLATION_LIMIT = 100
"""So many rewrites in a row of what came from one instruction, and no instruction less, mean a fight."""

_LOOKED_AT = 60


@dataclass(frozen=True, slots=True)
class History:
    """The rewrites an instruction came out of, newest first.

    ``origin`` is what the first of them was applied to; ``start`` is the number of a rewrite at which the
    computation had ``size`` instructions.
    """

    rule: str
    number: int
    before: History | None
    origin: Instruction
    start: int
    size: int

    @classmethod
    def begin(cls, rule: str, root: Instruction, size: int) -> History:
        """The first rewrite."""
        return cls(rule, 1, None, root, 1, size)

    def then(self, rule: str, size: int) -> History:
        """One more, of a computation of ``size`` instructions before it."""
        start, least = self.start, self.size
        if size < least:
            start, least = self.number + 1, size
        return History(rule, self.number + 1, self, self.origin, start, least)

    @property
    def fights(self) -> bool:
        """Whether it is time to stop."""
        return self.number - self.start >= OSCILLATION_LIMIT

    def rules(self) -> tuple[str, ...]:
        """The rules that alternate: those of the shortest period the last rewrites repeat, in order."""
        names = [entry for entry, _ in zip(self._names(), range(_LOOKED_AT), strict=False)][::-1]
        for period in range(1, len(names) // 2 + 1):
            if names[period:] == names[:-period]:
                return tuple(dict.fromkeys(names[-period:]))
        return tuple(dict.fromkeys(names))

    def _names(self) -> Iterator[str]:
        entry: History | None = self
        while entry is not None:
            yield entry.rule
            entry = entry.before


@dataclass
class Fights:
    """Instructions that were let be, by the rules that fought over them: the first of them, and how many."""

    found: dict[frozenset[str], tuple[History, int]] = field(default_factory=dict)

    def add(self, history: History) -> None:
        """Rules fight over an instruction."""
        key = frozenset(history.rules())
        first, count = self.found.get(key, (history, 0))
        self.found[key] = first, count + 1

    def report(self, log: PassLog, computation: Computation) -> None:
        """A note for each set of rules."""
        for first, count in self.found.values():
            names = [f"'{name}'" for name in first.rules()]
            why = (
                f"{', '.join(names[:-1])} and {names[-1]} undo each other"
                if len(names) > 1
                else f"{names[0]} applies to its own result"
            )
            more = f" (and so with {count - 1} more)" if count > 1 else ""
            log.note(
                f"{_place(first.origin, computation)}: stopped after {first.number} rewrites of "
                f"%{first.origin.name}{more}: {why}"
            )


def _place(origin: Instruction, computation: Computation) -> str:
    module = computation.module
    if module is None:
        return computation.name
    line = module.user_line(origin.metadata)
    return module.place(origin) + (f" ({line})" if line else "")
