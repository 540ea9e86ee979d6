"""Reduces over parallel axes whose results are not waited for: they only go into streamed elements.

Each work item leaves its part of such a reduce in each iteration; the parts are put together after the loop,
all iterations at once, and what follows from them is computed then.  So a reduce is collected where

* its reducer may take elements in any order and grouping,
* the number of iterations is known before, and the reduce runs in each of them,
* what follows takes nothing but collected results, what the loop does not change, constants and counters,
* and ends in streamed elements, where the parts that the iterations write do not overlap.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final

from hloopt.analysis.elementwise import plain_opcode
from hloopt.analysis.parallel_loop.edges import LoopGraph, leaf_count, nodes_of, reached
from hloopt.analysis.parallel_loop.model import LoopNode
from hloopt.analysis.parallel_loop.state import LoopState
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops.traits import ASSOCIATIVE, BODIES, TUPLES

__all__ = ["Collected", "Collector"]

"""Reducers that take elements in any order and grouping (sums and products up to rounding)."""

_NEVER: Final = BODIES | TUPLES
"""What calls computations, or is not an array: nothing after the loop runs these."""


@dataclass(frozen=True, slots=True)
class Collected:
    """Reduces that are collected, what follows from them, and why others are not."""

    reduces: tuple[Instruction, ...]
    after: frozenset[Instruction]
    refused: Mapping[Instruction, str]


class Collector:
    """Answers for one loop; ``owned`` are the nodes that depend on the index of a work item."""

    def __init__(
        self,
        state: LoopState,
        graph: LoopGraph,
        users: Mapping[LoopNode, list[LoopNode]],
        owned: Collection[LoopNode],
    ) -> None:
        self.state = state
        self.users = users
        self.reduces = [
            one
            for one in graph.ops
            if one.opcode == "reduce"
            and one.computation is state.body
            and (one.operands[0], 0) in owned
        ]

    @cached_property
    def refused(self) -> dict[Instruction, str]:
        """Reduces that cannot be collected whatever the axes are, and why."""
        found = ((one, self._refusal(one)) for one in self.reduces)
        return {one: why for one, why in found if why}

    @cached_property
    def candidates(self) -> tuple[Instruction, ...]:
        """All other reduces."""
        return tuple(one for one in self.reduces if one not in self.refused)

    def collected(self, reduces: Iterable[Instruction]) -> Collected:
        """Of the candidates ``reduces`` over parallel axes those that are collected."""
        over = dict.fromkeys(reduces)
        after = dict.fromkeys(self._behind(over))
        refused: dict[Instruction, str] = {}
        pending: list[Instruction] = []
        for one in (*over, *after):
            why = self._needs(one, over, after)
            if why:
                refused[one] = why
                pending.append(one)
        while pending:
            one = pending.pop()
            for other in (*one.users, *(() if one in over else one.operands)):
                if (other in after or other in over) and other not in refused:
                    refused[other] = refused[one]
                    pending.append(other)
        return Collected(
            tuple(one for one in over if one not in refused),
            frozenset(one for one in after if one not in refused),
            {one: why for one, why in refused.items() if one in over},
        )

    def _refusal(self, reduce: Instruction) -> str:
        if leaf_count(reduce) != 1 or len(reduce.operands) != 2:
            return "it has several results"
        reducer = reduce.to_apply
        opcode = plain_opcode(reducer)
        if opcode not in ASSOCIATIVE:
            return f"its reducer {reducer.name} may depend on the order of elements"
        for user in reduce.users:
            if user not in self._streaming or not self._takes(user, reduce):
                return f"{user.opcode} {user.name} needs the result before the loop ends"
        if self.state.bounds.exact is None:
            return "how often the loop runs is not known before"
        return "" if reduce.users else "nothing reads the result"

    @cached_property
    def _streaming(self) -> frozenset[Instruction]:
        """Instructions of the body that only go into streamed elements."""
        found: set[Instruction] = set(self._updates)
        for one in reversed(list(self.state.body)):
            if one.users and one.opcode not in _NEVER:
                ends = (
                    user for user in one.users if user not in found or not self._takes(user, one)
                )
                if next(ends, None) is None:
                    found.add(one)
        return frozenset(found)

    def _takes(self, user: Instruction, value: Instruction) -> bool:
        """Whether an update writes a value, and uses it neither as its target nor as an index."""
        if user not in self._updates:
            return True
        return user.operands[1] is value and value.users[user] == 1

    @cached_property
    def _changing(self) -> dict[LoopNode, None]:
        """Nodes that depend on more than constants, counters and what the loop does not change."""
        state = self.state
        known = {*state.invariant, *state.counters}
        leaves = [number for number in range(state.count) if number not in known]
        return reached(self.users, ((state.parameter, number) for number in leaves))

    def _behind(self, reduces: Iterable[Instruction]) -> Iterator[Instruction]:
        """What takes results of ``reduces``, directly or not, but the root."""
        pending = list(reduces)
        seen = set(pending)
        while pending:
            for user in pending.pop().users:
                if user not in seen and user in self._streaming:
                    seen.add(user)
                    pending.append(user)
                    yield user

    def _needs(
        self, one: Instruction, over: Collection[Instruction], after: Collection[Instruction]
    ) -> str:
        """What keeps one of ``over`` and ``after`` from being computed after the loop."""
        if one in self._updates and not self.state.is_spread(one):
            return f"the parts that {one.opcode} {one.name} writes may overlap"
        operands = one.operands[1:] if one in over or one in self._updates else one.operands
        for operand in operands:
            if operand in over or operand in after:
                continue
            if any(node in self._changing for node in nodes_of(operand)):
                return f"{one.opcode} {one.name} needs {operand.name}, which is not known after the loop"
        return ""

    @cached_property
    def _updates(self) -> frozenset[Instruction]:
        return frozenset(self.state.updates.values())
