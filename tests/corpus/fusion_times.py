"""The times our model of 2026 gives fusions, beside those XLA wrote into its log.

    python -m tests.corpus.fusion_times [--worst N] [NAME...]

For each ``corpus/jax`` NAME with ``NAME.fusion_log.txt``: XLA's steps are done again on the module of the log,
and at each that prices a producer with its users our model is asked for the same two times.  Printed are the
shares that agree exactly (to XLA's quarter of a nanosecond for each kernel), within 2 % and within 10 %, and
those that do not, by the producer's and the users' opcodes and kernels.

XLA's log of a producer whose users have changed tells the change: a launch and the times of each new fusion,
less the times of the users it replaces, and what the producer itself takes longer.  XLA does not always find
the times it has to take off, so that such steps are never all the same.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf, isfinite
from pathlib import Path
from typing import NamedTuple

import hloopt
from hloopt.cost_models.model import Comparison
from hloopt.cost_models.xla_2026 import Xla2026
from hloopt.errors import HlooptError
from hloopt.fusion.replay import Event, replay
from hloopt.fusion.xla_log import Fused, Priced, XlaLog, read_log
from hloopt.ir import Instruction
from hloopt.source import Source

ROOT = Path(__file__).resolve().parents[2]

__all__ = ["Agreement", "Pricer", "Pricing", "pricings"]

EXACT = 1e-4
"""Microseconds that the log's digits, and the rounding of sums in other orders, may hide."""


@dataclass(frozen=True, slots=True)
class Pricing:
    """One step of a log: what was priced in words, XLA's times and ours."""

    place: str
    words: str
    theirs: Comparison
    ours: Comparison

    @property
    def is_exact(self) -> bool:
        """Whether both times are the same, as far as the log tells."""
        pairs = (
            (self.ours.unfused_us, self.theirs.unfused_us),
            (self.ours.fused_us, self.theirs.fused_us),
        )
        return all(
            ours == theirs
            or (isfinite(theirs) and abs(ours - theirs) <= EXACT * max(1.0, abs(theirs) / 10))
            for ours, theirs in pairs
        )

    @property
    def error(self) -> float:
        """The larger relative difference of the two times."""
        return max(
            _apart(self.ours.unfused_us, self.theirs.unfused_us),
            _apart(self.ours.fused_us, self.theirs.fused_us),
        )


class Pricer:
    """Our model's answers to the steps of one log.

    ``_last``: of each producer its time, and the times of its users and of the fusions with them, when it was
    priced last; the form of an instruction changes when it grows.
    """

    def __init__(self, log: XlaLog) -> None:
        self.log = log
        self.model = Xla2026(log.target())
        self._forms: Counter[Instruction] = Counter()
        self._last: dict[Instruction, tuple[float, dict[Instruction, _Times]]] = {}

    def follow(self, event: Event) -> None:
        """A fusion has been made."""
        (consumer,) = event.consumers
        fusion = event.fusion
        assert fusion is not None
        if fusion is not consumer:
            self.model.forget(consumer)
        self.model.grown(fusion)
        self._forms[fusion] += 1
        if event.removed:
            self.model.forget(event.producer)

    def price(self, event: Event, step: Priced) -> Pricing:
        """The whole, or the change since the last time: whichever of them the log tells."""
        model, producer = self.model, event.producer
        times = {
            consumer: _Times(
                self._forms[consumer],
                model.run_time(consumer).exec_ns,
                model.fused_run_time(producer, consumer).exec_ns,
            )
            for consumer in event.consumers
        }
        own = model.run_time(producer).exec_ns
        last = self._last.get(producer)
        self._last[producer] = own, times
        answers = [model.compare(producer, event.consumers)]
        if last is not None:
            answers.append(_change(last[1], times, model.launch_ns, own - last[0]))
        found = [
            Pricing(self.log.place(step), self.words(event), step.times, ours) for ours in answers
        ]
        return min(found, key=lambda pricing: pricing.error)

    def words(self, event: Event) -> str:
        """What is priced: opcodes and kernels."""
        users = {self._what(consumer) for consumer in event.consumers}
        return f"{self._what(event.producer)} -> {', '.join(sorted(users))}"

    def _what(self, instruction: Instruction) -> str:
        kind = self.model.kernels.of(instruction).kind
        return instruction.opcode if kind == "loop" else f"{instruction.opcode} ({kind})"


class _Times(NamedTuple):
    """A user's form, its time in nanoseconds, and that of the fusion with it."""

    form: int
    alone: float
    fused: float


def _change(
    last: dict[Instruction, _Times], now: dict[Instruction, _Times], launch: float, own: float
) -> Comparison:
    """``own``: how much longer the producer takes by itself than it did."""
    new = [
        times for user, times in now.items() if user not in last or last[user].form != times.form
    ]
    gone = [
        times for user, times in last.items() if user not in now or now[user].form != times.form
    ]
    alone = sum(times.alone for times in new) - sum(times.alone for times in gone)
    fused = sum(times.fused for times in new) - sum(times.fused for times in gone)
    launches = launch * len(new)
    return Comparison((launches + alone + own) / 1000, (launches + fused) / 1000)


@dataclass
class Agreement:
    """How many agree, and how the others are spread."""

    priced: int = 0
    exact: int = 0
    near: int = 0
    close: int = 0
    groups: Counter[str] = field(default_factory=Counter)
    worst: list[Pricing] = field(default_factory=list)

    def take(self, pricing: Pricing) -> None:
        """Count one step."""
        error = pricing.error
        self.priced += 1
        self.exact += pricing.is_exact
        self.near += error <= 0.02
        self.close += error <= 0.1
        if not pricing.is_exact:
            self.groups[pricing.words] += 1
            self.worst.append(pricing)

    def add(self, other: Agreement) -> None:
        """Count all that ``other`` has counted."""
        self.priced += other.priced
        self.exact += other.exact
        self.near += other.near
        self.close += other.close
        self.groups += other.groups
        self.worst += other.worst

    def __str__(self) -> str:
        whole = max(1, self.priced)
        parts = {"exact": self.exact, "2 %": self.near, "10 %": self.close}
        shares = ", ".join(f"{name} {count / whole:8.3%}" for name, count in parts.items())
        return f"{self.priced:6} priced: {shares}"


def _apart(ours: float, theirs: float) -> float:
    if not (isfinite(ours) and isfinite(theirs)):
        return 0.0 if ours == theirs else inf
    return abs(ours - theirs) / abs(theirs) if theirs else abs(ours)


def pricings(log: XlaLog) -> Iterator[Pricing]:
    """Every step of the log that prices a producer, asked of our model for the log's device."""
    module = hloopt.parse(log.module_text)
    pricer = Pricer(log)
    for event in replay(module, log):
        if isinstance(event.step, Fused):
            pricer.follow(event)
        elif isinstance(event.step, Priced):
            yield pricer.price(event, event.step)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--worst", type=int, default=10)
    options = parser.parse_args()
    folder = Path(os.environ["HLOOPT_CORPUS"]) / "jax"
    names = options.names or sorted(
        path.name.removesuffix(".fusion_log.txt") for path in folder.glob("*.fusion_log.txt")
    )
    total = Agreement()
    for name in names:
        log = folder / f"{name}.fusion_log.txt"
        own = Agreement()
        start = time.perf_counter()
        try:
            for pricing in pricings(read_log(Source(log.read_text(), log.name))):
                own.take(pricing)
        except HlooptError as error:
            print(f"{name:34} {error}", flush=True)
        print(f"{name:34} {own}, {time.perf_counter() - start:5.1f} s", flush=True)
        total.add(own)
    print(f"{'all':34} {total}")
    for words, count in total.groups.most_common(options.worst):
        print(f"{count:6} {words}")
    for pricing in sorted(total.worst, key=lambda entry: -entry.error)[: options.worst]:
        print(f"{pricing.error:8.2%} {pricing.place} {pricing.words}")
        print(f"         XLA {pricing.theirs}\n         we  {pricing.ours}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
