"""What a loop does to each element of its state: passes it through, counts, writes a part in each iteration."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

from hloopt.analysis.induction import Affine, Inductions
from hloopt.analysis.loop_reader import StateSlot, WhileLoop
from hloopt.analysis.parallel_loop.edges import LoopNames, leaf_count
from hloopt.analysis.trip_count import TripBounds, iteration_bounds, trip_count
from hloopt.ir import Instruction

__all__ = ["LoopState"]


class LoopState:
    """The state of a ``while``, which is a flat tuple of arrays put together by the body's root."""

    def __init__(self, loop: Instruction) -> None:
        self.loop = loop
        self.body = loop.body
        self.condition = loop.condition
        self.parameter = self.body.parameters[0]
        self.count = leaf_count(self.parameter)
        self._inductions = Inductions(WhileLoop(loop))

    @cached_property
    def bounds(self) -> TripBounds:
        """How often the loop runs: the count, or what its condition says without evaluating iterations."""
        count = trip_count(self.loop)
        return iteration_bounds(self.loop, 0) if count is None else TripBounds(count, count)

    @cached_property
    def invariant(self) -> frozenset[int]:
        """Elements that the body passes through, whatever tuples, calls and loops inside they go through."""
        return LoopNames().invariant(self.loop)

    @cached_property
    def counters(self) -> dict[int, Affine]:
        """Elements that are one number, known before, in each iteration."""
        found = (
            (number, self._inductions.variable(StateSlot(number))) for number in range(self.count)
        )
        return {
            number: one
            for number, one in found
            if one is not None and number not in self.invariant and self._is_scalar(number)
        }

    @cached_property
    def updates(self) -> dict[int, Instruction]:
        """Elements that are only written, a part an iteration, each with its one dynamic-update-slice."""
        return {
            number: update
            for number, update in enumerate(self.body.root.operands)
            if self._is_written(number, update)
        }

    @cached_property
    def results(self) -> frozenset[int] | None:
        """Elements that are read after the loop; None where that may be any."""
        found: set[int] = set()
        for user in self.loop.users:
            if user.opcode != "get-tuple-element":
                return None
            if _is_alive(user):
                found.add(user.attributes["index"])
        return None if self.loop.is_root else frozenset(found)

    def is_spread(self, update: Instruction) -> bool:
        """Whether the parts that the iterations write do not overlap; False where that is not known."""
        count, part = self.bounds.exact, update.operands[1].array.dims
        if count is None or len(update.operands) != 2 + len(part):
            return False
        spread = count < 2
        for dim, (size, whole) in enumerate(zip(part, update.array.dims, strict=True)):
            if size == whole:
                continue
            start = self._start(update, dim, max(count - 1, 0))
            # Anywhere else the part would be moved to fit in.
            if start is None or start[0] < 0 or start[1] > whole - size:
                return False
            spread = spread or start[2] >= size
        return spread

    def covers(self, update: Instruction) -> bool:
        """Whether an update leaves nothing of what it writes into is after the last iteration.

        Shown where the loop runs a known number of times and the slices, each as its start is clamped, lie side
        by side or overlap, from one end of a dimension to the other.
        """
        count, part = self.bounds.exact, update.operands[1].array
        if not count or not part.elements:
            return False
        whole = update.array.dims
        short = [dim for dim, size in enumerate(part.dims) if size < whole[dim]]
        if not short:
            return True
        if len(short) > 1 or len(update.operands) != 2 + part.rank or update.operands[2].array.rank:
            return False
        size, start = part.dims[short[0]], self._start(update, short[0], count - 1)
        if start is None:
            return False
        low, high, step = start
        return step <= size and low <= 0 and high >= whole[short[0]] - size

    def _start(self, update: Instruction, dim: int, last: int) -> tuple[int, int, int] | None:
        """The least and greatest start of what is written up to iteration ``last``, and the distance of two."""
        at = self._inductions.affine(update.operands[2 + dim])
        if at is None:
            return None
        ends = at.first, at.first + last * at.step
        return (min(ends), max(ends), abs(at.step)) if (at.at(0), at.at(last)) == ends else None

    def _is_scalar(self, number: int) -> bool:
        shape = WhileLoop(self.loop).shape(StateSlot(number))
        return shape is not None and shape.rank == 0

    def _is_written(self, number: int, update: Instruction) -> bool:
        if update.opcode != "dynamic-update-slice":
            return False
        before = update.operands[0]
        if not _is_read(before, self.parameter, number) or set(before.users) != {update}:
            return False
        if before in update.operands[1:] or self.body.root.operands.count(update) != 1:
            return False
        return set(update.users) == {self.body.root} and self._reads[number] == [before]

    @cached_property
    def _reads(self) -> dict[int, list[Instruction]]:
        """The instructions that read each element, in body and condition."""
        found: dict[int, list[Instruction]] = defaultdict(list)
        for parameter in (self.parameter, self.condition.parameters[0]):
            for user in parameter.users:
                if user.opcode == "get-tuple-element":
                    if _is_alive(user):
                        found[user.attributes["index"]].append(user)
                else:
                    for number in range(self.count):
                        found[number].append(user)
        return found


def _is_alive(read: Instruction) -> bool:
    return bool(read.users) or read.is_root


def _is_read(value: Instruction, state: Instruction, number: int) -> bool:
    return (
        value.opcode == "get-tuple-element"
        and value.operands[0] is state
        and value.attributes["index"] == number
    )
