"""Values of an iteration that need nothing of earlier ones: each lane of a warp can compute another one's.

A value of the body is **free** where it depends on the number of the iteration and on what never changes, not
on a state that the iterations make: keys, counters, random numbers drawn from them, what is read by the
iteration's number. ``lanes`` threads that run one work item together compute the free values of as many
iterations at once, each those of its own iteration, and exchange them iteration by iteration.  With one thread
for a work item the lanes of a warp share what is the same for every work item.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

from hloopt.analysis.parallel_loop.model import Carried, ParallelLoop
from hloopt.analysis.parallel_loop.state import LoopState
from hloopt.analysis.parallel_loop.thread_plan import ThreadPlan
from hloopt.analysis.reduction import WARP_SIZE
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import MOVING
from hloopt.types import ArrayShape

__all__ = ["LANES", "MOST_HANDED", "LaneSplit", "LaneValues"]

LANES: Final = (1, 2, 4, 8, 16, 32)
"""Threads that may run a work item together: parts of a warp, whose lanes exchange values without waiting."""

MOST_HANDED: Final = 64
"""Elements that lanes exchange: each takes a register in all iterations of a group."""

_WORTH: Final = 12
"""Operations that passing an element on must save: the exchange takes a slower unit, and some waiting."""

_READING: Final = 32
"""Operations that a read of memory counts as: waiting for it takes longer than most of them."""

_MOST_COUNTED: Final = 1 << 20
"""Counts end here: as trees, values that are used twice count twice."""

_SHARED_ELEMENTS: Final = 16
"""Of an array that all work items share, so many elements at most: keys and counters."""


@dataclass(frozen=True, slots=True)
class LaneSplit:
    """Which lanes compute the free values of an iteration.

    exchanged  an iteration reads from another lane
    grouped    each lane computes for its own iteration, before the first of the group
    apart      of these, and of what advances, what an iteration does not use itself
    advancing  each lane computes for all iterations of the group
    """

    exchanged: frozenset[Instruction] = frozenset()
    grouped: frozenset[Instruction] = frozenset()
    apart: frozenset[Instruction] = frozenset()
    advancing: frozenset[Instruction] = frozenset()


@dataclass(frozen=True, eq=False)
class LaneValues:
    """The free values of a loop that runs a known number of times; none of any other loop."""

    parallel: ParallelLoop

    @cached_property
    def _body(self) -> Computation:
        return self.parallel.loop.body

    @cached_property
    def advanced(self) -> tuple[Carried, ...]:
        """Scalars of the state that follow from each other and free values: keys split in each iteration.

        All work items have the same ones.  Lanes that run a work item together each go through all iterations
        of a group with them first, and keep what they were before their own.
        """
        found = [
            one
            for one in self.parallel.carried
            if one.role == "uniform"
            and one.number not in self._counters
            and one.local_elements == 1
        ]
        root = self.parallel.loop.body.root.operands
        while found:
            free = self._free({one.number for one in found})
            kept = [one for one in found if root[one.number] in free]
            if len(kept) == len(found):
                break
            found = kept
        return tuple(found)

    @cached_property
    def _counters(self) -> frozenset[int]:
        return frozenset(LoopState(self.parallel.loop).counters)

    @cached_property
    def free(self) -> frozenset[Instruction]:
        """Instructions that need the iteration's number, what never changes, and ``advanced`` elements."""
        return self._free({one.number for one in self.advanced})

    @cached_property
    def timed(self) -> frozenset[Instruction]:
        """Of the free ones those that need no ``advanced`` element."""
        return self._free(set())

    def _free(self, states: set[int]) -> frozenset[Instruction]:
        if self.parallel.iterations.kind != "known" or not self.parallel.iterations.count:
            return frozenset()
        known = self._counters | states
        found: set[Instruction] = set()
        for instruction in self.parallel.loop.body:
            if not isinstance(instruction.shape, ArrayShape):
                continue
            opcode, operands = instruction.opcode, instruction.operands
            if (
                opcode == "get-tuple-element"
                and operands[0] is self.parallel.loop.body.parameters[0]
            ):
                number = instruction.attributes["index"]
                if self.parallel.carried[number].role == "invariant" or number in known:
                    found.add(instruction)
            elif opcode in _ALONE or (
                (_is_elementwise(instruction) or opcode in MOVING or opcode == "dynamic-slice")
                and all(operand in found for operand in operands)
            ):
                found.add(instruction)
        return frozenset(found)

    def exchangeable(self, lanes: int) -> frozenset[Instruction]:
        """Free values that lanes exchange where they are used: those that take enough work.

        With one lane for a work item those that are the same for all work items.
        """
        return self._worth if lanes > 1 else self._shared

    def width(self, lanes: int) -> int:
        """How many iterations are computed at once; 1 where nothing is exchanged."""
        if not self.exchangeable(lanes):
            return 1
        return lanes if lanes > 1 else WARP_SIZE

    def split(self, exchangeable: frozenset[Instruction], lanes: int) -> LaneSplit:
        """Which lanes compute the free values, where lanes exchange some of them."""
        root = self.parallel.loop.body.root
        advanced = {one.number for one in self.advanced} if lanes > 1 and exchangeable else set()
        following = {root.operands[number] for number in advanced}
        others = {one for at, one in enumerate(root.operands) if at not in advanced}
        advancing: set[Instruction] = set()
        exchanged: set[Instruction] = set()
        grouped: set[Instruction] = set()
        iteration: set[Instruction] = set()
        for instruction in reversed(list(self.parallel.loop.body)):
            if instruction not in self.free:
                continue
            users = [user for user in instruction.users if user is not root]
            if instruction in following or any(user in advancing for user in users):
                advancing.add(instruction)
            read = any(user not in self.free or user in iteration for user in users)
            if read or instruction in others:
                (exchanged if instruction in exchangeable else iteration).add(instruction)
            if instruction in exchanged or any(user in grouped for user in users):
                grouped.add(instruction)
        apart = (grouped | advancing) - exchanged - iteration
        return LaneSplit(*map(frozenset, (exchanged, grouped, apart, advancing)))

    @cached_property
    def _worth(self) -> frozenset[Instruction]:
        costs: dict[Instruction, int] = {}
        plan = ThreadPlan(self.parallel)
        for instruction in self.parallel.loop.body:
            if instruction in self.free:
                below = sum(costs.get(operand, 0) for operand in instruction.operands)
                own = plan.own_cost(instruction)
                if self._reads_memory(instruction):
                    own += _READING
                costs[instruction] = min(below + own, _MOST_COUNTED)
        return frozenset(
            one
            for one, cost in costs.items()
            if cost >= _WORTH and (_is_elementwise(one) or one.opcode == "dynamic-slice")
        )

    @cached_property
    def _shared(self) -> frozenset[Instruction]:
        return frozenset(
            one
            for one in self._worth & self.timed
            if (one, 0) not in self.parallel.owned and one.array.elements <= _SHARED_ELEMENTS
        )

    def _reads_memory(self, instruction: Instruction) -> bool:
        """Whether it is a slice of an array that lies outside the loop."""
        if instruction.opcode != "dynamic-slice":
            return False
        source = instruction.operands[0]
        while source.opcode in MOVING - {"copy"}:
            source = source.operands[0]
        return source.opcode == "get-tuple-element"


_ALONE: Final = frozenset({"constant", "iota"})


def _is_elementwise(instruction: Instruction) -> bool:
    """Whether an element needs those of the operands at the same index."""
    if instruction.opcode == "bitcast-convert":
        return instruction.array.dims == instruction.operands[0].array.dims
    return instruction.op.is_elementwise
