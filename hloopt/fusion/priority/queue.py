"""Producers by what fusing them gains; the one that gains most comes first."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count

from hloopt.ir import Instruction

__all__ = ["ProducerQueue"]


class ProducerQueue:
    """A queue of producers with priorities that change.

    Of equal priorities the instruction made last comes first, as XLA orders by (priority, unique id).  The
    order of the text stands for the order in which its instructions were made; fusions are made later.
    ``numbers`` are their places in this order.
    """

    def __init__(self) -> None:
        self.numbers: dict[Instruction, int] = {}
        self._counter = count()
        self._heap: list[tuple[float, int, int, Instruction]] = []
        self._entries = count()
        self._current: dict[Instruction, tuple[float, int]] = {}

    def made(self, instruction: Instruction) -> None:
        """An instruction exists; it keeps its place among equals from now on."""
        if instruction not in self.numbers:
            self.numbers[instruction] = next(self._counter)

    def put(self, producer: Instruction, priority: float) -> None:
        """Enqueue a producer, or change its priority."""
        key = (-priority, -self.numbers[producer])
        if self._current.get(producer) != key:
            self._current[producer] = key
            # The same priority may come back: two entries then differ by their number.
            heappush(self._heap, (*key, next(self._entries), producer))

    def drop(self, producer: Instruction) -> None:
        """Take a producer out, if it is there."""
        self._current.pop(producer, None)

    def gone(self, instruction: Instruction) -> None:
        """An instruction is no longer in the module."""
        self.drop(instruction)
        self.numbers.pop(instruction, None)

    def pop(self) -> Instruction | None:
        """The producer with the highest priority, taken out; None where there is none left."""
        while self._heap:
            negated, number, _, producer = heappop(self._heap)
            if self._current.get(producer) == (negated, number):
                del self._current[producer]
                return producer
        return None

    def __contains__(self, producer: Instruction) -> bool:
        return producer in self._current

    def waiting(self) -> list[Instruction]:
        """All producers enqueued, in no order."""
        return list(self._current)
