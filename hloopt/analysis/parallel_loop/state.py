"""What a loop does to each element of its state: hands it on, counts, writes a part of it in each trip."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

from hloopt.analysis.induction import Affine, Inductions
from hloopt.analysis.loop_reader import Loop, Slot
from hloopt.analysis.parallel_loop.edges import Names, leaf_count
from hloopt.analysis.trip_count import TripBounds, trip_bounds, trip_count
from hloopt.ir import Instruction

__all__ = ["State"]


class State:
    """The state of a ``while``, which is a flat tuple of arrays put together by the body's root."""

    def __init__(self, loop: Instruction) -> None:
        self.loop = loop
        self.body = loop.body
        self.condition = loop.condition
        self.parameter = self.body.parameters[0]
        self.count = leaf_count(self.parameter)
        self._inductions = Inductions(Loop(loop))

    @cached_property
    def bounds(self) -> TripBounds:
        """How often the loop runs: the count, or what its condition says without running it by hand."""
        count = trip_count(self.loop)
        return trip_bounds(self.loop, 0) if count is None else TripBounds(count, count)

    @cached_property
    def invariant(self) -> frozenset[int]:
        """Elements that the body hands on, whatever tuples, calls and loops inside they pass through."""
        return Names().invariant(self.loop)

    @cached_property
    def counters(self) -> dict[int, Affine]:
        """Elements that are one number, known before, in each trip."""
        found = ((number, self._inductions.variable(Slot(number))) for number in range(self.count))
        return {
            number: one
            for number, one in found
            if one is not None and number not in self.invariant and self._is_scalar(number)
        }

    @cached_property
    def updates(self) -> dict[int, Instruction]:
        """Elements that are only written, a part a trip, each with its one dynamic-update-slice."""
        return {
            number: update
            for number, update in enumerate(self.body.root.operands)
            if self._is_written(number, update)
        }

    @cached_property
    def results(self) -> frozenset[int] | None:
        """Elements that somebody reads after the loop; None where that may be any."""
        found: set[int] = set()
        for user in self.loop.users:
            if user.opcode != "get-tuple-element":
                return None
            if _is_alive(user):
                found.add(user.attributes["index"])
        return None if self.loop.is_root else frozenset(found)

    def is_spread(self, update: Instruction) -> bool:
        """Whether the parts that the trips write do not overlap; False where nobody knows."""
        count, source = self.bounds.exact, update.operands[1].array
        if count is None or len(update.operands) != 2 + source.rank:
            return False
        spread = count < 2
        for dim, (index, part) in enumerate(zip(update.operands[2:], source.dims, strict=True)):
            at = self._inductions.affine(index)
            if part == update.array.dims[dim]:
                continue
            if at is None:
                return False
            trips = max(count - 1, 0)
            last = at.first + trips * at.step
            low, high = min(at.first, last), max(at.first, last)
            if (at.at(0), at.at(trips)) != (at.first, last):
                return False
            # Anywhere else the part would be moved to fit in.
            if low < 0 or high > update.array.dims[dim] - part:
                return False
            spread = spread or abs(at.step) >= part
        return spread

    def _is_scalar(self, number: int) -> bool:
        shape = Loop(self.loop).shape(Slot(number))
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
