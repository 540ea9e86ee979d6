"""What the functions of a user have answered while one strategy ran, and what has become of it.

A rule is asked about pairs as they are at that time: an op that has been fused with others since is a fusion
when its next reader is looked at.  So a rule that knows ops alone may say no to a pair that is in one kernel in
the end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import field

from hloopt.dataclass import dataclass
from hloopt.fusion.decision import Decision
from hloopt.fusion.ledger import Ledger
from hloopt.ir import Instruction

__all__ = ["Answers", "Overridden"]


@dataclass(frozen=True, slots=True)
class Overridden:
    """A pair that a rule refused and that is in one kernel all the same, ``fusion``."""

    label: str
    producer: Instruction
    consumer: str
    reason: str
    computation: str
    fusion: str


@dataclass(frozen=True, slots=True)
class _Refused:
    """A refusal; ``results`` are a result of each side, by its name before anything was fused."""

    producer: Instruction
    reason: str
    ledger: Ledger
    computation: str
    results: tuple[str, str]


@dataclass
class Answers:
    """How often each rule was asked, and the pairs that it refused, by the rule's label."""

    asked: Counter[str] = field(default_factory=Counter)
    refused: dict[str, dict[tuple[str, str, str], _Refused]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def note(
        self,
        label: str,
        producer: Instruction,
        consumer: Instruction,
        decision: Decision | None,
        ledger: Ledger,
    ) -> None:
        """Count a question, and keep a no."""
        self.asked[label] += 1
        home = producer.computation
        if decision is None or decision or home is None:
            return
        results = _result(ledger, producer), _result(ledger, consumer)
        self.refused[label][home.name, *results] = _Refused(
            producer, decision.reason, ledger, home.name, results
        )

    def overridden(self) -> Iterator[Overridden]:
        """The refused pairs that are in one kernel now."""
        places: dict[int, dict[tuple[str, str], set[str]]] = {}
        for label, pairs in self.refused.items():
            for pair in pairs.values():
                ledger = pair.ledger
                if id(ledger) not in places:
                    places[id(ledger)] = _places(ledger)
                first, second = (
                    places[id(ledger)].get((pair.computation, name), set()) for name in pair.results
                )
                for fusion in sorted(first & second)[:1]:
                    yield Overridden(
                        label,
                        pair.producer,
                        pair.results[1],
                        pair.reason,
                        pair.computation,
                        fusion,
                    )

    def summary(self, found: list[Overridden]) -> Iterator[str]:
        """A sentence about each rule, ``found`` being what ``overridden`` gave."""
        for label, asked in self.asked.items():
            refused = len(self.refused[label])
            told = f"{label}: asked {_times(asked)}, refused {_pairs(refused)}"
            mine = [one for one in found if one.label == label]
            if mine:
                first = mine[0]
                told += (
                    f", of which {len(mine)} are in one kernel all the same, such as "
                    f"%{first.producer.name} and %{first.consumer} in %{first.fusion}: what was fused "
                    "before is a fusion when a rule is asked about its next reader"
                )
            yield told


def _result(ledger: Ledger, instruction: Instruction) -> str:
    home = instruction.computation
    place = (home.name if home is not None else "", instruction.name)
    return next(iter(ledger.results(place)), instruction.name)


def _places(ledger: Ledger) -> dict[tuple[str, str], set[str]]:
    """The fusions that each member is part of, by computation and name."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for (computation, fusion), members in ledger.made.items():
        for member in members:
            found[computation, member].add(fusion)
    return found


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _pairs(number: int) -> str:
    return "one pair" if number == 1 else f"{number} pairs"
