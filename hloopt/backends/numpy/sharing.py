"""Which arrays may be overwritten, and which are kept for a later step that needs one like it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from hloopt.backends.numpy.plan import Code, Dims, Line, Step
from hloopt.graphs import UnionFind

__all__ = [
    "choose_memory",
    "deaths",
    "give_away",
    "most_alive",
    "own_results",
    "uncopy",
    "written_inputs",
]

_NEVER = 1 << 60  # after the last step: results are read there
_LARGE = 1 << 17  # bytes of an array that is worth keeping
_SOON = 64  # steps


def uncopy(line: Line) -> None:
    """Replace copies that only guard against writes by views, where nothing writes."""
    steps = [step for step in line.steps if step.uncopied is not None]
    if not steps:
        return
    sharing = _Sharing(line, ())
    written = {sharing.find(step.ins[at]) for step in line.steps for at in step.writes}
    for step in steps:
        both = (step.ins[0], step.outs[0])
        # Classes that nothing writes into stay so when two of them become one.
        if not written.intersection(map(sharing.find, both)):
            step.code, step.view = step.uncopied, True
            sharing.join(*both)


def written_inputs(line: Line) -> frozenset[int]:
    """The inputs that steps would overwrite, if all of them were given away."""
    own = _Sharing(line, frozenset(line.inputs))
    inputs = set(line.inputs)
    return frozenset(
        step.ins[at]
        for number, step in enumerate(line.steps)
        for at in own.free_writes(number, step)
        if step.ins[at] in inputs
    )


def give_away(line: Line, owned: frozenset[int]) -> None:
    """Own these inputs, and return separate arrays in the results at their positions.

    For bodies of loops, whose first results are the next iteration's first inputs.
    """
    line.owned = owned
    sharing = _Sharing(line, owned)
    for position, (slot, result) in enumerate(list(zip(line.inputs, line.results, strict=False))):
        if slot in owned and not sharing.is_own_result(result):
            copy = line.slot(line.kinds[result], line.dims[result])
            line.results[position] = line.step(_copied, (result,), copy)


def own_results(line: Line) -> tuple[bool, ...]:
    """Which results are arrays, or views of arrays, that the line made and that nothing else refers to."""
    sharing = _Sharing(line, ())
    kinds = [sharing.find(slot) for slot in line.results]
    counts = Counter(kinds)
    return tuple(counts[kind] == 1 and sharing.is_made_here(kind) for kind in kinds)


def most_alive(line: Line) -> int:
    """The peak bytes of live arrays made by steps."""
    change = [0] * (len(line.steps) + 1)
    for slot, start, end in _Sharing(line, ()).lives():
        size = prod(line.dims[slot]) * line.kinds[slot].itemsize
        change[start] += size
        change[min(end + 1, len(line.steps))] -= size
    return max(accumulate(change))


def choose_memory(line: Line) -> None:
    """Let steps write into what is free."""
    sharing = _Sharing(line, line.owned)
    left = _Left(line, sharing)
    for number, step in enumerate(line.steps):
        if step.writes:
            step.own = sharing.free_writes(number, step)
            if step.choose is not None:
                chosen = step.choose(step.own)
                if isinstance(chosen, Code):
                    step.code = chosen
                else:
                    step.function = chosen
            for at in step.own:
                left.use(step.ins[at])
        elif (step.ufunc or step.fills) and not step.several and step.code is None:
            step.into = sharing.free_operand(number, step) if step.ufunc else -1
            if step.into < 0:
                step.into = left.take(number, step)
            if step.into >= 0:
                left.use(step.into)
        left.add(number, step)


def deaths(line: Line) -> list[list[int]]:
    """For each step the slots whose live range ends there."""
    alive = {*line.results, *line.constants}
    dead: list[list[int]] = []
    for step in reversed(line.steps):
        gone = sorted({*step.ins, *step.outs, *step.taken()} - alive)
        alive.update(gone)
        dead.append(gone)
    return dead[::-1]


class _Sharing(UnionFind[int]):
    """Alias classes of slots, and where the live range of each ends."""

    def __init__(self, line: Line, owned: Iterable[int]) -> None:
        self._line = line
        self._known = range(len(line.dims))
        super().__init__()
        self._inputs = frozenset(line.inputs)
        self._own = set(owned)
        foreign = {*line.inputs, *line.constants}
        for step in line.steps:
            self._own.update(step.fresh())
            self.join(*step.linked())
            if step.view and (step.several or not step.ins):
                # A called computation may return its own constants.
                foreign.update(step.outs)
        self._foreign = {self.find(slot) for slot in foreign - self._own}
        self._last: dict[int, int] = {}
        for number, step in enumerate(line.steps):
            for slot in (*step.ins, *step.outs):
                self._last[self.find(slot)] = number
        for slot in line.results:
            self._last[self.find(slot)] = _NEVER

    def free_writes(self, number: int, step: Step) -> frozenset[int]:
        """Of the positions a step writes into, those whose arrays are free there."""
        return frozenset(
            at
            for at in step.writes
            if self._is_free(step.ins[at], number)
            and self._line.dims[step.ins[at]]
            # NumPy's assignments, in code, copy what overlaps; functions read while they write.
            and (step.function is None or self._is_alone(at, step))
        )

    def free_operand(self, number: int, step: Step) -> int:
        """An operand a ufunc may write into, or -1: of the result's type and size, fresh, and free.

        Inputs are left alone: to own one, a loop copies its first state, which pays for updates only.
        """
        out = step.outs[0]
        dims, kind = self._line.dims[out], self._line.kinds[out]
        for slot in step.ins:
            if (
                dims
                and self._line.dims[slot] == dims
                and self._line.kinds[slot] == kind
                and slot not in self._inputs
                and self._is_free(slot, number)
            ):
                return slot
        return -1

    def left_by(self, number: int, step: Step) -> list[tuple[int, int]]:
        """Classes that are not read after a step, each with one of its slots that is a new array."""
        found = {}
        for slot in (*step.ins, *step.outs):
            if slot in self._own and slot not in self._inputs and self._is_free(slot, number):
                found[self.find(slot)] = slot
        return list(found.items())

    def lives(self) -> Iterator[tuple[int, int, int]]:
        """The live range of each slot of a new array: the step that makes it, the last that reads its class."""
        for number, step in enumerate(self._line.steps):
            for slot in step.fresh():
                yield slot, number, self._last[self.find(slot)]

    def is_made_here(self, kind: int) -> bool:
        """Whether nothing in a class came from outside of the line."""
        return kind not in self._foreign

    def is_own_result(self, slot: int) -> bool:
        """Whether a result is a separate array, which no other result shares."""
        # What was added to the line since (copies of other results) shares memory with nothing.
        known = (other for other in self._line.results if other in self._known)
        same = [other for other in known if self.find(other) == self.find(slot)]
        return slot in self._own and self.find(slot) not in self._foreign and len(same) == 1

    def _is_free(self, slot: int, number: int) -> bool:
        found = self.find(slot)
        return slot in self._own and found not in self._foreign and self._last[found] <= number

    def _is_alone(self, at: int, step: Step) -> bool:
        found = self.find(step.ins[at])
        return sum(self.find(slot) == found for slot in step.ins) == 1


class _Left:
    """Large dead arrays, kept for a later ufunc that needs one like it.

    Fresh memory is not free: the system clears each page of it.  An array is kept only where that does not
    raise the peak of live bytes.
    """

    def __init__(self, line: Line, sharing: _Sharing) -> None:
        self._line, self._sharing = line, sharing
        self._left: dict[tuple[Dims, np.dtype[Any]], list[tuple[int, int]]] = {}
        self._used: set[int] = set()
        change = [0] * (len(line.steps) + 1)
        for slot, start, end in sharing.lives():
            change[start] += self._bytes(slot)
            change[min(end + 1, len(line.steps))] -= self._bytes(slot)
        self._alive = list(accumulate(change))
        self._most = max(self._alive)

    def _bytes(self, slot: int) -> int:
        return prod(self._line.dims[slot]) * self._line.kinds[slot].itemsize

    def use(self, slot: int) -> None:
        """The memory of a slot is another one's from now on."""
        self._used.add(self._sharing.find(slot))

    def add(self, number: int, step: Step) -> None:
        """Keep what a step reads last."""
        for kind, slot in self._sharing.left_by(number, step):
            if kind not in self._used and self._bytes(slot) >= _LARGE:
                key = (self._line.dims[slot], self._line.kinds[slot])
                self._left.setdefault(key, []).append((number, slot))

    def take(self, number: int, step: Step) -> int:
        """A slot whose array a step may write its result into, or -1."""
        out = step.outs[0]
        candidates = self._left.get((self._line.dims[out], self._line.kinds[out]))
        if not candidates:
            return -1
        died, slot = candidates.pop()
        between, size = range(died + 1, number), self._bytes(slot)
        if len(between) > _SOON or any(self._alive[at] + size > self._most for at in between):
            return -1
        for at in between:
            self._alive[at] += size
        return slot


def _copied(array: Any) -> Any:
    return np.array(array)
