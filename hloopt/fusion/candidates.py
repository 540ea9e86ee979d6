"""The operands of one consumer, in the order in which they are considered for fusion.

A refused operand is considered again only where what refused it may have changed; all other rules of
``rules.py`` are monotone: a larger consumer is refused as well.  So a join costs what joins, however large the
consumer is.  When nothing may join any more, all that are left are judged once more: the figures of a refusal
are those of the whole consumer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

from hloopt.fusion.decision import Decision
from hloopt.ir import Instruction

__all__ = ["Candidates"]


class Candidates:
    """A queue of the operands that may still join, highest rank first.

    ``rank`` is different for each operand.
    """

    def __init__(self, rank: Mapping[Instruction, int]) -> None:
        self._rank = rank
        self._met: set[Instruction] = set()
        self._queue: list[tuple[int, Instruction]] = []
        self._waiting: set[Instruction] = set()
        self._refused: dict[str, dict[Instruction, Decision]] = {}
        self._code: dict[Instruction, str] = {}
        self._room: list[tuple[int, int, Instruction]] = []
        self._grown = False

    def meet(self, operand: Instruction) -> bool:
        """Whether the consumer has an operand that it had not before."""
        if operand in self._met:
            return False
        self._met.add(operand)
        return True

    def ask(self, operand: Instruction) -> None:
        """Enqueue an operand, again if it was judged before."""
        code = self._code.pop(operand, None)
        if code is not None:
            del self._refused[code][operand]
        if operand not in self._waiting:
            self._waiting.add(operand)
            heappush(self._queue, (-self._rank[operand], operand))

    def next(self) -> Instruction | None:
        """The next operand to judge; None where all that are left have their final verdict."""
        if not self._queue and self._grown:
            self._grown = False
            self._room.clear()
            self._refused.clear()
            self._waiting.update(self._code)
            self._queue = [(-self._rank[operand], operand) for operand in self._code]
            heapify(self._queue)
            self._code.clear()
        if not self._queue:
            return None
        operand = heappop(self._queue)[1]
        self._waiting.remove(operand)
        return operand

    def refuse(self, operand: Instruction, decision: Decision, operands: int) -> None:
        """An operand may not join for now; ``operands`` is how many the consumer has."""
        self._code[operand] = decision.code
        self._refused.setdefault(decision.code, {})[operand] = decision
        if decision.code == "operands":
            assert decision.actual is not None
            assert decision.limit is not None
            excess = decision.actual - decision.limit - operands
            heappush(self._room, (excess, self._rank[operand], operand))

    def joined(self, producer: Instruction, reads: Iterable[Instruction], operands: int) -> None:
        """A producer has joined, and the consumer has ``operands`` now, among them what the producer ``reads``.

        Those have fewer users, or one that they had not.  There may be room where operands of the consumer
        have become operands of others, or are fewer.
        """
        self._grown = True
        self._met.discard(producer)
        excess = self._refused.get("operands", {})
        for operand in reads:
            if operand in self._code:
                self.ask(operand)
            if operand not in self._met and excess:
                users = operand.users
                fewer = users if len(users) < len(excess) else excess
                for other in [entry for entry in fewer if entry in users and entry in excess]:
                    self.ask(other)
        while self._room and self._room[0][0] + operands <= 0:
            operand = heappop(self._room)[2]
            if operand in self._code:
                self.ask(operand)

    def holds(self, codes: Iterable[str]) -> bool:
        """Whether some operand has been refused for one of these reasons."""
        return any(map(self._refused.get, codes))

    def ask_again(self, codes: Iterable[str]) -> None:
        """Judge those once more that were refused for one of these reasons."""
        for code in codes:
            for operand in list(self._refused.get(code, ())):
                self.ask(operand)

    def ask_all(self) -> None:
        """Judge all once more."""
        self.ask_again(tuple(self._refused))
        self._grown = False
