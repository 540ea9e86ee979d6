"""Dependence between instructions, kept up to date while they are merged.

Every instruction of a computation has a rank; operands and control predecessors rank lower.  A
question walks only what ranks between the two instructions, so that its cost is that of the region
in question and memory stays linear.  Ranks follow a merge by reordering the affected region alone
(Pearce and Kelly, "A dynamic topological sort algorithm for directed acyclic graphs", 2006).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from hloopt.ir import Computation, Instruction, walk

__all__ = ["Reachability"]

_Step: TypeAlias = Callable[[Instruction], Iterator[Instruction]]
_GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it, without their whole parts, spread evenly however many there are."""
_TRIES = 4


class Reachability:
    """Ranks of a computation's instructions, and dependence between them."""

    def __init__(self, computation: Computation) -> None:
        self._rank: dict[Instruction, float] = {
            instruction: at for at, instruction in enumerate(walk.post_order(computation))
        }
        self._taken: set[float] = set(self._rank.values())
        self._inserted = 0

    def rank(self, instruction: Instruction) -> float:
        """The instruction's place; whatever depends on it has a higher one."""
        return self._rank[instruction]

    def reaches(self, before: Instruction, after: Instruction) -> bool:
        """Whether ``after`` depends on ``before`` through operands or control edges (or is it)."""
        if before is after:
            return True
        floor, ceiling = self._rank[before], self._rank[after]
        if floor > ceiling:
            return False
        ahead, behind = {before}, {after}
        forward = self._search([before], _successors, floor, ceiling)
        backward = self._search([after], _predecessors, floor, ceiling)
        for user, source in zip(forward, backward, strict=False):
            ahead.add(user)
            behind.add(source)
            if user in behind or source in ahead:
                return True
        return False

    def connected(self, left: Instruction, right: Instruction) -> bool:
        """Whether one of the two depends on the other."""
        if self._rank[left] > self._rank[right]:
            left, right = right, left
        return self.reaches(left, right)

    def merge_makes_cycle(self, producer: Instruction, consumer: Instruction) -> bool:
        """Whether one instruction in place of the two would depend on itself.

        So it is when some path from producer to consumer leads through a third instruction.
        """
        middle = (producer.users.keys() | set(producer.control_successors)) - {consumer}
        bounds = self._rank[producer], self._rank[consumer]
        return bool(middle) and any(
            source in middle for source in self._search([consumer], _predecessors, *bounds)
        )

    def dependence(self, some: Sequence[Instruction]) -> tuple[list[int], list[int]]:
        """Which of ``some`` each of them depends on, and which depend on it: bit ``i`` is the ``i``-th.

        One walk of what ranks between them answers for all pairs.
        """
        bits = {instruction: 1 << at for at, instruction in enumerate(some)}
        bounds = [self._rank[instruction] for instruction in some]
        between = {*some, *self._search(some, _predecessors, min(bounds), max(bounds))}
        order = sorted(between, key=self._rank.__getitem__)
        before = _reaching(order, _predecessors, bits)
        after = _reaching(reversed(order), _successors, bits)
        return (
            [before[instruction] for instruction in some],
            [after[instruction] for instruction in some],
        )

    def _search(
        self, starts: Iterable[Instruction], step: _Step, floor: float, ceiling: float
    ) -> Iterator[Instruction]:
        """What steps lead to, nearest first, among what has its rank within the bounds."""
        seen = set(starts)
        pending = deque(seen)
        while pending:
            for neighbour in step(pending.popleft()):
                if neighbour not in seen and floor <= self._rank[neighbour] <= ceiling:
                    seen.add(neighbour)
                    pending.append(neighbour)
                    yield neighbour

    def replace(self, old: Instruction, new: Instruction) -> None:
        """``new`` stands where ``old`` stood, with no predecessors that rank higher."""
        self._rank[new] = self._rank.pop(old)

    def follow(self, merged: Instruction, gone: Iterable[Instruction]) -> None:
        """Make ranks right again after an edit: ``merged`` has taken over what some instructions did.

        Of ``gone``, those that have left the computation are forgotten; users of ``merged`` that are new (and
        their new users) get ranks.  Raises ``ValueError`` when the edit made a cycle.
        """
        for instruction in gone:
            if instruction.computation is None:
                self.forget(instruction)
        for user in merged.users:
            if user not in self._rank:
                self._adopt(user)
        self.restore(merged)

    def _adopt(self, new: Instruction) -> None:
        if new in self._rank:
            return
        for user in new.users:
            self._adopt(user)
        place = self._free_place(new)
        if place is None:
            order = sorted(self._rank, key=self._rank.__getitem__)
            self._rank = {instruction: at for at, instruction in enumerate(order)}
            self._taken = set(self._rank.values())
            place = self._free_place(new)
            assert place is not None
        self._rank[new] = place
        self._taken.add(place)

    def _free_place(self, new: Instruction) -> float | None:
        """A rank right below all that come after; None where floats have none left.

        Several may be put between the same two: each takes another part of the gap.
        """
        low = max((self._rank[source] for source in _predecessors(new)), default=-1.0)
        high = min((self._rank[user] for user in _successors(new)), default=low + 1.0)
        if low >= high:
            low = high - 1.0
        for _ in range(_TRIES):
            self._inserted += 1
            place = low + (high - low) * (self._inserted * _GOLDEN % 1)
            if low < place < high and place not in self._taken:
                return place
        return None

    def forget(self, instruction: Instruction) -> None:
        """The instruction has left the computation."""
        self._taken.discard(self._rank.pop(instruction))

    def restore(self, merged: Instruction) -> None:
        """Make ranks right again after ``merged`` got new predecessors or successors.

        Raises ``ValueError`` when the merge made a cycle.
        """
        for source in (*merged.operands, *merged.control_predecessors):
            if self._rank[source] >= self._rank[merged]:
                self._order(source, merged)
        for user in (*merged.users, *merged.control_successors):
            if self._rank[merged] >= self._rank[user]:
                self._order(merged, user)

    def path_instructions(
        self, before: Instruction, after: Instruction, limit: int
    ) -> set[Instruction] | None:
        """All instructions on paths from ``before`` to ``after``, both included.

        The search grows from both ends and stops when the smaller side is complete; None where that
        takes more than ``limit`` instructions.
        """
        floor, ceiling = self._rank[before], self._rank[after]
        forward = _Frontier(before)
        backward = _Frontier(after)
        steps = 0
        while forward.pending and backward.pending:
            if steps >= limit:
                return None
            steps += 1
            forward.extend(
                user
                for user in _successors(forward.pending.pop())
                if self._rank[user] < ceiling or user is after
            )
            backward.extend(
                source
                for source in _predecessors(backward.pending.pop())
                if self._rank[source] > floor or source is before
            )
        if not forward.pending:
            return _reached(after, forward.seen, _predecessors)
        return _reached(before, backward.seen, _successors)

    def _order(self, before: Instruction, after: Instruction) -> None:
        """Pearce-Kelly: reorder what lies between the two, when they rank the wrong way round."""
        floor, ceiling = self._rank[after], self._rank[before]
        if ceiling < floor:
            return
        ahead = {after, *self._search([after], _successors, floor, ceiling)}
        if before in ahead:
            raise ValueError(f"{before.name} and {after.name} depend on each other")
        behind = {before, *self._search([before], _predecessors, floor, ceiling)}
        moved = sorted(behind, key=self._rank.__getitem__)
        moved += sorted(ahead, key=self._rank.__getitem__)
        places = sorted(self._rank[instruction] for instruction in moved)
        for instruction, place in zip(moved, places, strict=True):
            self._rank[instruction] = place


class _Frontier:
    """A search that is advanced one instruction at a time."""

    def __init__(self, start: Instruction) -> None:
        self.seen = {start}
        self.pending = [start]

    def extend(self, neighbours: Iterator[Instruction]) -> None:
        for neighbour in neighbours:
            if neighbour not in self.seen:
                self.seen.add(neighbour)
                self.pending.append(neighbour)


def _reaching(
    order: Iterable[Instruction], step: _Step, bits: Mapping[Instruction, int]
) -> dict[Instruction, int]:
    """The bits of all that lead to each instruction, itself not among them."""
    found: dict[Instruction, int] = {}
    for instruction in order:
        mask = 0
        for neighbour in step(instruction):
            if neighbour in found:
                mask |= found[neighbour] | bits.get(neighbour, 0)
        found[instruction] = mask
    return found


def _reached(start: Instruction, within: set[Instruction], step: _Step) -> set[Instruction]:
    seen, pending = {start}, [start]
    while pending:
        for neighbour in step(pending.pop()):
            if neighbour in within and neighbour not in seen:
                seen.add(neighbour)
                pending.append(neighbour)
    return seen


def _predecessors(instruction: Instruction) -> Iterator[Instruction]:
    yield from instruction.operands
    yield from instruction.control_predecessors


def _successors(instruction: Instruction) -> Iterator[Instruction]:
    yield from instruction.users
    yield from instruction.control_successors
