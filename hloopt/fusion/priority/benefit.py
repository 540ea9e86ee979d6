"""What fusing a producer into all of its users would gain, kept up to date while users come and go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from math import inf, isinf
from typing import Final

from hloopt.cost_models.model import Comparison, CostModel
from hloopt.dataclass import dataclass
from hloopt.fusion.advice import Advice
from hloopt.fusion.decision import Decision, forbid
from hloopt.fusion.priority.rules import PairRules, is_fusible_bitcast
from hloopt.ir import Instruction

__all__ = ["Account", "Benefits"]

_TICKS: Final = 4000
"""In a microsecond: XLA's durations count in quarters of a nanosecond, and equal priorities are to be equal."""


@dataclass
class Account:
    """One producer and its users.

    bitcasts   users that are bitcasts: nothing is fused into them, but XLA's priority counts their times
    paid       the bitcasts' times, once computed
    unjudged   users that the rules have not judged
    untimed    users that may take the producer in, and whose times are not known
    allowed    users that may take the producer in, with their times
    wanted     users that the user wants to take it in, and that can
    blocker    a user that may not take it in, and why: then no other does
    """

    bitcasts: dict[Instruction, None] = field(default_factory=dict)
    paid: dict[Instruction, Comparison] = field(default_factory=dict)
    unjudged: dict[Instruction, None] = field(default_factory=dict)
    untimed: dict[Instruction, None] = field(default_factory=dict)
    allowed: dict[Instruction, Comparison] = field(default_factory=dict)
    wanted: dict[Instruction, Decision] = field(default_factory=dict)
    blocker: tuple[Instruction, Decision] | None = None
    unfused: int = 0
    fused: int = 0
    endless: int = 0

    def drop(self, consumer: Instruction) -> None:
        """A user was removed or changed."""
        self.bitcasts.pop(consumer, None)
        self.unjudged.pop(consumer, None)
        self.untimed.pop(consumer, None)
        self.wanted.pop(consumer, None)
        times = self.allowed.pop(consumer, None) or self.paid.pop(consumer, None)
        if times is not None:
            self._count(times, -1)
        if self.blocker is not None and self.blocker[0] is consumer:
            self.blocker = None

    def add_times(self, consumer: Instruction, times: Comparison) -> None:
        """What fusing into one user alone would take."""
        self.allowed[consumer] = times
        self._count(times, 1)

    def pay(self, bitcast: Instruction, times: Comparison) -> None:
        """What a bitcast that stays would take."""
        self.paid[bitcast] = times
        self._count(times, 1)

    def _count(self, times: Comparison, sign: int) -> None:
        if isinf(times.fused_us):
            self.endless += sign
            return
        self.unfused += sign * round(times.unfused_us * _TICKS)
        self.fused += sign * round(times.fused_us * _TICKS)


class Benefits:
    """The accounts of all producers of one computation.

    XLA adds the gains of all users up: the producer's own kernel and its launch are saved once, each user's
    kernel changes by itself.  So does this, whatever the model; another user costs no visit to the others.
    """

    def __init__(self, rules: PairRules, model: CostModel, advice: Advice) -> None:
        self._rules = rules
        self._model = model
        self._advice = advice
        self._accounts: dict[Instruction, Account] = {}

    def __contains__(self, producer: Instruction) -> bool:
        return producer in self._accounts

    def judge(self, producer: Instruction, consumer: Instruction) -> Decision:
        """The verdict on two: the user's advice, then the rules."""
        advised = self._advice.decide(producer, consumer)
        if not advised:
            return advised
        decision = self._rules.decide(producer, consumer, wanted=advised.wanted)
        return decision and advised

    def open(self, producer: Instruction) -> None:
        """Begin anew with a producer that was made or has changed."""
        account = self._accounts[producer] = Account()
        self._add(producer, account, producer.users)

    def changed(
        self, producer: Instruction, gone: Iterable[Instruction], new: Instruction | None
    ) -> None:
        """Some users were removed, and one is new or changed."""
        account = self._accounts.get(producer)
        if account is None:
            self.open(producer)
            return
        for consumer in gone:
            account.drop(consumer)
        if new is not None:
            account.drop(new)
            self._add(producer, account, (new,))

    def gone(self, producer: Instruction, consumer: Instruction) -> None:
        """A user was removed."""
        account = self._accounts.get(producer)
        if account is not None:
            account.drop(consumer)

    def forget(self, producer: Instruction) -> None:
        """A producer was removed."""
        self._accounts.pop(producer, None)

    def _add(
        self, producer: Instruction, account: Account, consumers: Iterable[Instruction]
    ) -> None:
        for consumer in consumers:
            if self._advice:
                advised = self._advice.decide(producer, consumer)
                if advised.wanted:
                    decision = self._rules.decide(producer, consumer, wanted=True)
                    if decision:
                        account.wanted[consumer] = advised
                        continue
            waiting = account.bitcasts if is_fusible_bitcast(consumer) else account.unjudged
            waiting[consumer] = None

    def priority(self, producer: Instruction) -> float:
        """Ticks saved; endless where the user wants it, minus endless where the producer stays as it is."""
        account = self._accounts[producer]
        if account.wanted:
            return inf
        if self.refusal(producer) is not None:
            return -inf
        return self._gain(producer, account)

    def consumers(self, producer: Instruction) -> list[Instruction]:
        """The consumers to fuse a producer into: only those the user wants, while there are any."""
        account = self._accounts[producer]
        return list(account.wanted or (*account.allowed, *account.untimed))

    def is_wanted(self, producer: Instruction) -> bool:
        """Whether the user requested what ``consumers`` returns."""
        return bool(self._accounts[producer].wanted)

    def comparison(self, producer: Instruction) -> Comparison | None:
        """All of a producer's kernels apart, and fused; None where the user decided instead of a model."""
        account = self._accounts[producer]
        if account.wanted or not account.allowed:
            return None
        if account.endless:
            return Comparison(account.unfused / _TICKS, inf)
        own = (len(account.allowed) + len(account.paid) - 1) * self._own_ticks(producer)
        return Comparison((account.unfused - own) / _TICKS, account.fused / _TICKS)

    def refusal(self, producer: Instruction) -> tuple[Instruction | None, Decision] | None:
        """Why a producer is not to be fused, with the user that decides; None where it may be."""
        account = self._accounts[producer]
        while account.unjudged and account.blocker is None:
            consumer = next(iter(account.unjudged))
            decision = self.judge(producer, consumer)
            if not decision:
                account.blocker = consumer, decision
            else:
                account.untimed[consumer] = None
            del account.unjudged[consumer]
        if account.blocker is not None:
            return account.blocker
        if not account.allowed and not account.untimed:
            return None, forbid("only-bitcast-users" if producer.users else "no-users")
        return None

    def _gain(self, producer: Instruction, account: Account) -> float:
        for consumer in account.untimed:
            account.add_times(consumer, self._model.compare(producer, (consumer,)))
        account.untimed.clear()
        for bitcast in account.bitcasts:
            account.pay(bitcast, self._model.compare(producer, (bitcast,)))
        account.bitcasts.clear()
        if account.endless:
            return -inf
        own = (len(account.allowed) + len(account.paid) - 1) * self._own_ticks(producer)
        return account.unfused - own - account.fused

    def _own_ticks(self, producer: Instruction) -> int:
        own_ns = self._model.launch_ns + self._model.run_time(producer).exec_ns
        return round(own_ns * _TICKS / 1000)
