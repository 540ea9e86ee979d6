"""A computation as a straight line of steps over numbered slots.

A slot holds one array; tuples exist only while the line is made, so that ``tuple`` and
``get-tuple-element`` cost nothing when it runs.  The line is written out as a Python function of local
variables (``v7 = f7(v3, v5)``) made of numbers alone: nothing of the module's text ever reaches it.

Memory.  A slot is *fresh* when its step makes a new array that nothing else refers to.  Slots that may
share memory form a class; a class is free at a step when all its members are fresh (or inputs the caller
gave away, ``Line.owned``) and none is read later.  What is free may be written over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod
from typing import Any, TypeAlias

import numpy as np

from hloopt.interpret.progress import Progress

__all__ = ["Dims", "Function", "Line", "Step"]

Dims: TypeAlias = "tuple[int, ...]"
Function: TypeAlias = "Callable[..., Any]"

_NEVER = 1 << 60  # after the last step: results are read there
_LARGE = 1 << 17  # bytes of an array that is worth keeping
_SOON = 64  # steps
_TOLD_EVERY = 8  # steps, so that telling costs next to nothing


@dataclass(slots=True)
class Step:
    """``outs = function(*ins)``; one ``out`` gets the result itself, several unpack a tuple.

    view       the outs may share memory with the ins
    ufunc      ``function`` takes ``out=``, an array to write into
    writes     positions of ``ins`` that the function writes into, each giving the ``out`` of the same
               position; ``choose(own)`` gives the function for the set of those positions that are free,
               which has to copy the others first
    keep       to be run even when nobody reads the outs
    into       the slot whose array ``function`` gets as ``out=``, or -1
    """

    function: Function
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    several: bool = False
    view: bool = False
    ufunc: bool = False
    writes: tuple[int, ...] = ()
    choose: Callable[[frozenset[int]], Function] | None = None
    keep: bool = False
    into: int = -1

    def fresh(self) -> tuple[int, ...]:
        """The outs that are new arrays of their own."""
        return tuple(self.outs[at] for at in self.writes) if self.view else self.outs

    def taken(self) -> tuple[int, ...]:
        """The slot whose array the step writes into, if there is one."""
        return () if self.into < 0 else (self.into,)

    def linked(self) -> tuple[int, ...]:
        """The slots that may share memory because of this step."""
        if not self.view:
            return ()
        outs = [slot for at, slot in enumerate(self.outs) if at not in self.writes]
        ins = [slot for at, slot in enumerate(self.ins) if at not in self.writes]
        return (*outs, *ins) if outs else ()


@dataclass
class Line:
    """The steps of one computation while it is compiled.

    ``kinds`` and ``dims`` describe each slot's array; ``owned`` are inputs whose arrays may be written
    over; ``kernels`` is added to the launches of a run.
    """

    inputs: list[int] = field(default_factory=list)
    owned: frozenset[int] = frozenset()
    steps: list[Step] = field(default_factory=list)
    constants: dict[int, Any] = field(default_factory=dict)
    kinds: list[np.dtype[Any]] = field(default_factory=list)
    dims: list[Dims] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    kernels: int = 0

    def slot(self, kind: np.dtype[Any], dims: Dims) -> int:
        """A new slot for arrays of a type and dimensions."""
        self.kinds.append(kind)
        self.dims.append(dims)
        return len(self.dims) - 1

    def step(self, function: Function, ins: tuple[int, ...], out: int, **flags: Any) -> int:
        """Append a step with one result."""
        self.steps.append(Step(function, ins, (out,), **flags))
        return out

    def drop_unused(self) -> None:
        """Remove the steps that no result needs."""
        needed = set(self.results)
        kept = []
        for step in reversed(self.steps):
            if step.keep or needed.intersection(step.outs):
                needed.update(step.ins)
                kept.append(step)
        self.steps = kept[::-1]

    def written_inputs(self) -> frozenset[int]:
        """The inputs that steps would write over, if all of them were given away."""
        own = _Sharing(self, frozenset(self.inputs))
        inputs = set(self.inputs)
        return frozenset(
            step.ins[at]
            for number, step in enumerate(self.steps)
            for at in own.free_writes(number, step)
            if step.ins[at] in inputs
        )

    def give_away(self, owned: frozenset[int]) -> None:
        """Own these inputs, and return arrays of their own in the results at their positions.

        For bodies of loops, whose first results are the next trip's first inputs.
        """
        self.owned = owned
        sharing = _Sharing(self, owned)
        for position, (slot, result) in enumerate(
            list(zip(self.inputs, self.results, strict=False))
        ):
            if slot in owned and not sharing.is_own_result(result):
                copy = self.slot(self.kinds[result], self.dims[result])
                self.results[position] = self.step(_copied, (result,), copy)

    def most_alive(self) -> int:
        """The most bytes of arrays made by steps that are needed at once."""
        change = [0] * (len(self.steps) + 1)
        for slot, start, end in _Sharing(self, ()).lives():
            size = prod(self.dims[slot]) * self.kinds[slot].itemsize
            change[start] += size
            change[min(end + 1, len(self.steps))] -= size
        return max(accumulate(change))

    def compile(self, launches: list[int], progress: Progress | None = None) -> Function:
        """The line as a function from arrays to a tuple of arrays.

        ``launches[0]`` is increased by ``kernels`` on each run; ``progress`` is kept up to date, if not
        to the step.
        """
        self._choose_memory()
        deaths = self._deaths()
        scope: dict[str, Any] = {f"v{slot}": value for slot, value in self.constants.items()}
        scope["launches"] = launches
        lines = [f"def line({', '.join(f'v{slot}' for slot in self.inputs)}):"]
        if progress is not None:
            scope["progress"] = progress
            lines.append(f"    progress.total = {len(self.steps)}")
        for number, step in enumerate(self.steps):
            if progress is not None and number % _TOLD_EVERY == 0:
                lines.append(f"    progress.done = {number}")
            scope[f"f{number}"] = step.function
            arguments = [f"v{slot}" for slot in step.ins]
            if step.into >= 0:
                arguments.append(f"out=v{step.into}")
            targets = ", ".join(f"v{slot}" for slot in step.outs)
            if step.several:
                targets = f"({targets},)" if step.outs else "()"
            lines.append(f"    {targets} = f{number}({', '.join(arguments)})")
            if deaths[number]:
                lines.append(f"    del {', '.join(f'v{slot}' for slot in deaths[number])}")
        if self.kernels:
            lines.append(f"    launches[0] += {self.kernels}")
        lines.append(f"    return ({''.join(f'v{slot}, ' for slot in self.results)})")
        exec(compile("\n".join(lines), "<numpy line>", "exec"), scope)  # noqa: S102 - numbers alone
        function: Function = scope["line"]
        return function

    def _choose_memory(self) -> None:
        """Let steps write into what is free."""
        sharing = _Sharing(self, self.owned)
        left = _Left(self, sharing)
        for number, step in enumerate(self.steps):
            if step.choose is not None:
                own = sharing.free_writes(number, step)
                step.function = step.choose(own)
                for at in own:
                    left.use(step.ins[at])
            elif step.ufunc:
                step.into = sharing.free_operand(number, step)
                if step.into < 0:
                    step.into = left.take(number, step)
                if step.into >= 0:
                    left.use(step.into)
            left.add(number, step)

    def _deaths(self) -> list[list[int]]:
        """For each step the slots that no later step and no result needs."""
        alive = {*self.results, *self.constants}
        dead: list[list[int]] = []
        for step in reversed(self.steps):
            gone = sorted({*step.ins, *step.outs, *step.taken()} - alive)
            alive.update(gone)
            dead.append(gone)
        return dead[::-1]


class _Sharing:
    """Which slots may share memory, and when each class of them is read last."""

    def __init__(self, line: Line, owned: Iterable[int]) -> None:
        self._line = line
        self._parent = list(range(len(line.dims)))
        self._inputs = frozenset(line.inputs)
        self._own = set(owned)
        foreign = {*line.inputs, *line.constants}
        for step in line.steps:
            self._own.update(step.fresh())
            self._link(step.linked())
            if step.view and (step.several or not step.ins):
                # A called computation may return its own constants.
                foreign.update(step.outs)
        self._foreign = {self._find(slot) for slot in foreign - self._own}
        self._last: dict[int, int] = {}
        for number, step in enumerate(line.steps):
            for slot in (*step.ins, *step.outs):
                self._last[self._find(slot)] = number
        for slot in line.results:
            self._last[self._find(slot)] = _NEVER

    def free_writes(self, number: int, step: Step) -> frozenset[int]:
        """Of the positions a step writes into, those whose arrays are free there."""
        return frozenset(
            at
            for at in step.writes
            if self._is_free(step.ins[at], number)
            and self._line.dims[step.ins[at]]
            and (not step.several or self._is_alone(at, step))
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
        """Classes that nobody reads after a step, each with one of its slots that is a new array."""
        found = {}
        for slot in (*step.ins, *step.outs):
            if slot in self._own and slot not in self._inputs and self._is_free(slot, number):
                found[self._find(slot)] = slot
        return list(found.items())

    def lives(self) -> Iterator[tuple[int, int, int]]:
        """Each slot of a new array with the steps that make it and read its class last."""
        for number, step in enumerate(self._line.steps):
            for slot in step.fresh():
                yield slot, number, self._last[self._find(slot)]

    def kind(self, slot: int) -> int:
        """The class of a slot."""
        return self._find(slot)

    def is_own_result(self, slot: int) -> bool:
        """Whether a result is an array of its own, which no other result shares."""
        # What was added to the line since (copies of other results) shares memory with nothing.
        known = (other for other in self._line.results if other < len(self._parent))
        same = [other for other in known if self._find(other) == self._find(slot)]
        return slot in self._own and self._find(slot) not in self._foreign and len(same) == 1

    def _is_free(self, slot: int, number: int) -> bool:
        found = self._find(slot)
        return slot in self._own and found not in self._foreign and self._last[found] <= number

    def _is_alone(self, at: int, step: Step) -> bool:
        found = self._find(step.ins[at])
        return sum(self._find(slot) == found for slot in step.ins) == 1

    def _link(self, slots: tuple[int, ...]) -> None:
        for slot in slots[1:]:
            self._parent[self._find(slot)] = self._find(slots[0])

    def _find(self, slot: int) -> int:
        parent = self._parent
        while parent[slot] != slot:
            parent[slot] = parent[parent[slot]]
            slot = parent[slot]
        return slot


class _Left:
    """Large arrays that nobody reads any more, kept for a ufunc soon after that needs one like it.

    Fresh memory is not free: the system clears each page of it.  An array is kept only where that does not
    raise the most bytes that are alive at once.
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
        self._used.add(self._sharing.kind(slot))

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
