"""Two of XLA's fusion logs held against each other: where XLA went another way, and at what prices.

The modules before fusion are paired, so that instructions may have other names; a fusion goes by the
instruction it grew from.  XLA works in the order of its prices: one that differs moves steps, and one
decision changes what comes after it.  So the first difference is told, and what was fused in the end on one
side only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import zip_longest
from typing import Final, TypeAlias

from hloopt.analysis.pairing import pair_modules
from hloopt.dataclass import dataclass
from hloopt.fusion.xla_history import XlaDecision, XlaHistory
from hloopt.fusion.xla_log import XlaLog
from hloopt.ir import Module, build
from hloopt.ir.canonical import fingerprint
from hloopt.textproto import Message, ScalarField

__all__ = ["LogDifference", "StepPair", "log_difference"]

_Key: TypeAlias = tuple[str, str, tuple[str, ...]]
"""What a step does, to which producer, with which consumers: names of the second module before fusion."""
_DEVICE: Final = "gpu_device_info"


@dataclass(frozen=True, slots=True)
class StepPair:
    """A step that differs: what either log has there.

    before, after            the step; None where the log has none
    price_before, price_after  either log's last price or refusal of the producer: of the step itself where that
                             is one, else of the last one before it; None where it was never considered
    """

    before: XlaDecision | None
    after: XlaDecision | None
    price_before: XlaDecision | None = None
    price_after: XlaDecision | None = None


@dataclass(frozen=True)
class LogDifference:
    """Two logs side by side.

    steps      how many either has
    same_module  whether XLA began with equal modules
    devices    the figures of the devices that differ: name, before, after
    first      the first step that differs, by what it does, its price or its words
    decision   the first that differs of the fusions and refusals alone
    only       how many steps only either log has
    repriced   how many steps both have, at other prices or with other words
    fused      what one log fused in the end and the other did not
    """

    steps: tuple[int, int]
    same_module: bool
    devices: tuple[tuple[str, str, str], ...] = ()
    first: StepPair | None = None
    decision: StepPair | None = None
    only: tuple[int, int] = (0, 0)
    repriced: int = 0
    fused: tuple[StepPair, ...] = field(default=())

    @property
    def equal(self) -> bool:
        """Whether both logs tell the same, of equal modules and devices."""
        return self.same_module and self.first is None and not self.devices


def log_difference(before: tuple[Module, XlaLog], after: tuple[Module, XlaLog]) -> LogDifference:
    """What differs between two logs, each with its module before fusion, which is not changed.

    Raises as ``replay`` does for a log that does not fit its module.
    """
    pairing = pair_modules(before[0], after[0])
    names = {one.name: other.name for one, other in pairing.after.items()}
    sides = _Side(*before, names), _Side(*after, {})
    first, second = (side.moments for side in sides)
    keys = Counter(sides[0].keys), Counter(sides[1].keys)
    return LogDifference(
        steps=(len(first), len(second)),
        same_module=fingerprint(before[0]) == fingerprint(after[0]),
        devices=tuple(_devices(before[1], after[1])),
        first=_first(sides, range(len(first)), range(len(second)), prices=True),
        decision=_first(sides, *(side.decisions for side in sides), prices=False),
        only=((keys[0] - keys[1]).total(), (keys[1] - keys[0]).total()),
        repriced=_repriced(sides),
        fused=tuple(_fused(sides)),
    )


class _Side:
    """One log, its names those of the module before fusion that both logs share."""

    def __init__(self, module: Module, log: XlaLog, names: Mapping[str, str]) -> None:
        self.moments = XlaHistory.read(build.clone_module(module), log).moments
        self.keys: list[_Key] = []
        self.prices: list[XlaDecision | None] = []
        """For each step XLA's last word on its producer then."""
        self.last: dict[str, XlaDecision] = {}
        self.decisions: list[int] = []
        grown: dict[str, str] = {}

        def base(name: str) -> str:
            origin = grown.get(name, name)
            return names.get(origin, origin)

        for number, one in enumerate(self.moments):
            producer = base(one.producer)
            self.keys.append((one.action, producer, tuple(sorted(map(base, one.consumers)))))
            if one.action == "fused":
                self.decisions.append(number)
                consumer = one.consumers[0]
                grown[one.fusion] = grown.get(consumer, consumer)
            else:
                self.last[producer] = one
                if one.action == "refused":
                    self.decisions.append(number)
            self.prices.append(self.last.get(producer))

    def word(self, number: int, *, prices: bool) -> tuple[_Key, str, str]:
        """What a step says, without where."""
        one = self.moments[number]
        gain = "" if one.gain_us is None or not prices else f"{one.gain_us:.6f}"
        return self.keys[number], one.words, gain


_Sides: TypeAlias = tuple[_Side, _Side]


def _first(
    sides: _Sides, before: Sequence[int], after: Sequence[int], *, prices: bool
) -> StepPair | None:
    """The first of these steps that differs."""
    for numbers in zip_longest(before, after):
        words = [
            None if number is None else side.word(number, prices=prices)
            for side, number in zip(sides, numbers, strict=True)
        ]
        if words[0] != words[1]:
            return _pair(sides, numbers)
    return None


def _pair(sides: _Sides, numbers: tuple[int | None, int | None]) -> StepPair:
    """Steps of either log; a price that only one of them has is looked for in the whole of the other."""
    steps = [
        None if number is None else side.moments[number]
        for side, number in zip(sides, numbers, strict=True)
    ]
    producer = next(
        side.keys[number][1]
        for side, number in zip(sides, numbers, strict=True)
        if number is not None
    )
    prices = [
        side.last.get(producer) if number is None else side.prices[number]
        for side, number in zip(sides, numbers, strict=True)
    ]
    return StepPair(steps[0], steps[1], prices[0], prices[1])


def _repriced(sides: _Sides) -> int:
    """How many steps both logs have, with another price or other words."""
    said: tuple[dict[_Key, list[str]], dict[_Key, list[str]]] = ({}, {})
    for side, found in zip(sides, said, strict=True):
        for number, key in enumerate(side.keys):
            found.setdefault(key, []).append("".join(side.word(number, prices=True)[1:]))
    return sum(
        one != other
        for key, words in said[0].items()
        for one, other in zip(words, said[1].get(key, ()), strict=False)
    )


def _fused(sides: _Sides) -> Iterator[StepPair]:
    """The fusions of one log that the other has not, in the order of either."""
    made = [
        [number for number in side.decisions if side.keys[number][0] == "fused"] for side in sides
    ]
    counts = [
        Counter(side.keys[number] for number in numbers)
        for side, numbers in zip(sides, made, strict=True)
    ]
    for at, side in enumerate(sides):
        rest = counts[at] - counts[1 - at]
        for number in made[at]:
            if rest[side.keys[number]] > 0:
                rest[side.keys[number]] -= 1
                yield _pair(sides, (number, None) if at == 0 else (None, number))


def _devices(before: XlaLog, after: XlaLog) -> Iterator[tuple[str, str, str]]:
    first, second = _figures(before), _figures(after)
    for name in dict.fromkeys((*first, *second)):
        if first.get(name) != second.get(name):
            yield name, first.get(name, ""), second.get(name, "")


def _figures(log: XlaLog) -> dict[str, str]:
    """The device's figures, as its description has them."""
    waiting = list(log.message.fields.get(_DEVICE, ()))
    found: dict[str, str] = {}
    for entry in waiting:
        for name, values in entry.fields.items() if isinstance(entry, Message) else ():
            plain = [str(one.value) for one in values if isinstance(one, ScalarField)]
            if plain:
                found[name] = ", ".join(plain)
            waiting += (one for one in values if isinstance(one, Message))
    return found
