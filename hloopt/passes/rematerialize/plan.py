"""Deciding in one sweep over an order which values to let go and to compute again.

The sweep works on numbers (``analysis/memory.py``) and changes no instruction; ``RepeatPlan.again`` says what
to compute again before which instruction.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from operator import attrgetter

from hloopt.analysis.memory import MemoryModel
from hloopt.dataclass import dataclass

__all__ = ["CHAIN", "TIMES", "OrderStep", "RepeatPlan", "plan_again"]

CHAIN = 8
"""The most instructions that are computed again for one value."""

TIMES = 3
"""How often one instruction may be computed again: it bounds the work, and the module."""

_GAP = 1 << 40
_KEY = attrgetter("key")


@dataclass(eq=False)
class OrderStep:
    """One instruction of the order, or the second computation of one (``again``)."""

    key: int
    number: int
    previous: OrderStep | None = None
    following: OrderStep | None = None
    again: bool = False


@dataclass
class RepeatPlan:
    """What to compute again: (instruction, before which instruction), in order.

    ``peak`` is the peak in bytes then, ``cost`` that of all second computations.
    """

    peak: int = 0
    cost: float = 0.0
    again: list[tuple[int, int]] = field(default_factory=list)


def plan_again(
    model: MemoryModel, called: Sequence[int], costs: Mapping[int, float], limit: int
) -> RepeatPlan:
    """Keep below ``limit`` bytes where that can be had.

    ``costs`` has the instructions that may be repeated, by number, and what that costs.
    """
    return _Sweep(model, called, costs, limit).run()


class _Sweep:
    def __init__(
        self,
        model: MemoryModel,
        called: Sequence[int],
        costs: Mapping[int, float],
        limit: int,
    ) -> None:
        self.model, self.called, self.costs, self.limit = model, called, costs, limit
        steps = [OrderStep((at + 1) * _GAP, at) for at in range(len(model.instructions))]
        for left, right in pairwise(steps):
            left.following, right.previous = right, left
        self.first = steps[0] if steps else None
        self.uses: list[list[OrderStep]] = [[] for _ in model.sizes]
        for step in steps:
            for buffer in model.touched[step.number]:
                self.uses[buffer].append(step)
        end = OrderStep((len(steps) + 1) * _GAP, -1)
        for buffer in model.results:
            self.uses[buffer].append(end)
        self.alive: set[int] = set(model.parameters)
        self.waiting: dict[int, OrderStep] = {}
        self.heir: dict[int, int] = {}
        self.heap: list[tuple[float, int]] = []
        self.bytes = sum(model.sizes[buffer] for buffer in model.parameters)
        self.plan = RepeatPlan()
        self.times = [0] * len(model.instructions)

    def run(self) -> RepeatPlan:
        step = self.first
        while step is not None:
            self.visit(step)
            step = step.following
        self.list_steps()
        return self.plan

    def list_steps(self) -> None:
        """The second computations in order, each with the instruction of the text that it comes before."""
        step, pending = self.first, []
        while step is not None:
            if step.again:
                pending.append(step.number)
            else:
                self.plan.again += [(number, step.number) for number in pending]
                pending = []
            step = step.following

    def visit(self, step: OrderStep) -> None:
        model = self.model
        defined, touched = model.defined[step.number], model.touched[step.number]
        given: set[int] = set()
        inherited: set[int] = set()
        for source, target in () if step.again else model.taken[step.number]:
            if self.next_use(source, step) is None and model.may_take(source):
                given.add(source)
                inherited.add(target)
                self.heir[target] = self.heir.get(source, source)
        for buffer in defined:
            self.alive.add(buffer)
            self.waiting.pop(buffer, None)
            if buffer not in inherited:
                self.bytes += model.sizes[buffer]
        extra = self.called[step.number]
        while self.bytes + extra > self.limit and self.let_go(step):
            pass
        self.plan.peak = max(self.plan.peak, self.bytes + extra)
        for buffer in {*touched, *defined}:
            if self.next_use(buffer, step) is None:
                self.free(buffer, given)
            elif self.owner(buffer) in self.costs:
                self.offer(buffer)

    def owner(self, buffer: int) -> int:
        return self.model.owners[buffer][0]

    def offer(self, buffer: int) -> None:
        """A value may be let go: those that give back most bytes for what they cost come first."""
        score = self.model.sizes[buffer] / (1.0 + self.costs[self.owner(buffer)])
        heapq.heappush(self.heap, (-score, buffer))

    def free(self, buffer: int, given: set[int]) -> None:
        if buffer in self.model.parameters:
            return
        self.alive.discard(buffer)
        if buffer not in given:
            first = self.heir.get(buffer, buffer)
            if first not in self.model.parameters:
                self.bytes -= self.model.sizes[first]

    def next_use(self, buffer: int, step: OrderStep) -> OrderStep | None:
        uses = self.uses[buffer]
        at = bisect_right(uses, step.key, key=_KEY)
        return uses[at] if at < len(uses) else None

    def let_go(self, step: OrderStep) -> bool:
        """Free the best value that is not needed right now; False where there is none."""
        later: list[tuple[float, int]] = []
        found = False
        while self.heap and not found:
            entry = heapq.heappop(self.heap)
            buffer = entry[1]
            if buffer not in self.alive:
                continue
            here = (
                buffer in self.model.touched[step.number]
                or buffer in self.model.defined[step.number]
            )
            if here:
                later.append(entry)
            else:
                found = self.evict(buffer, step)
        for entry in later:
            heapq.heappush(self.heap, entry)
        return found

    def evict(self, buffer: int, step: OrderStep) -> bool:
        """Let a value go and plan to compute it again before its next user, with what that needs."""
        user = self.next_use(buffer, step)
        if user is None or user.previous is None:
            return False
        number = self.owner(buffer)
        numbers: list[int] = []
        if user.key - user.previous.key <= 1 << CHAIN or not self.collect(number, user, numbers):
            return False
        longer = sum(
            self.model.sizes[source]
            for source in {entry for at in numbers for entry in self.model.touched[at]}
            if source not in self.model.parameters
            and (source in self.alive or self.is_constant(source))
            and self.uses[source][-1].key < user.key
        )
        if longer >= self.model.sizes[buffer]:
            return False
        for entry in numbers:
            self.insert(entry, user)
        self.alive.discard(buffer)
        self.bytes -= self.model.sizes[buffer]
        return True

    def collect(self, number: int, user: OrderStep, numbers: list[int], depth: int = 1) -> bool:
        """What must be computed again before ``user``, in order; False if it is too much or cannot be."""
        if depth > CHAIN or self.times[number] >= TIMES:
            return False
        for source in self.model.touched[number]:
            if self.will_live(source, user):
                continue
            owner = self.owner(source)
            if owner in numbers:
                continue
            if owner not in self.costs or not self.collect(owner, user, numbers, depth + 1):
                return False
        numbers.append(number)
        return len(numbers) <= CHAIN

    def insert(self, number: int, user: OrderStep) -> None:
        assert user.previous is not None
        again = OrderStep(
            (user.previous.key + user.key) // 2, number, user.previous, user, again=True
        )
        user.previous.following = again
        user.previous = again
        for source in self.model.touched[number]:
            if self.is_constant(source) and source not in self.alive:
                self.alive.add(source)
                self.bytes += self.model.sizes[source]
            insort(self.uses[source], again, key=_KEY)
        for made in self.model.defined[number]:
            self.waiting[made] = again
            if self.uses[made][-1].key < user.key:
                # It has no other user: only what is computed next reads it, which is inserted in a moment.
                self.alive.discard(made)
        self.times[number] += 1
        self.plan.cost += self.costs[number]

    def is_constant(self, buffer: int) -> bool:
        return self.model.instructions[self.owner(buffer)].opcode == "constant"

    def will_live(self, buffer: int, step: OrderStep) -> bool:
        """Whether a value is there, or will be, when ``step`` comes."""
        if buffer in self.alive or self.is_constant(buffer):
            return True
        again = self.waiting.get(buffer)
        return (
            again is not None and again.key < step.key and self.next_use(buffer, again) is not None
        )
