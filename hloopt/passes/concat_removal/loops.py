"""Loops whose state may be carried in more, smaller arrays."""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.analysis.trip_count import trip_count
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.walk import (
    called_computations,
    callers_first,
    open_computations,
    top_level_computations,
    wrapped_computations,
)
from hloopt.ops.traits import SEQUENTIAL
from hloopt.types import ArrayShape

__all__ = ["UNKNOWN_TRIPS", "Loop", "Slot", "loops_of", "weights"]

UNKNOWN_TRIPS = 16
"""How often a loop is taken to run where the module does not show it."""


@dataclass(frozen=True, eq=False)
class Loop:
    """A ``while`` whose state is only ever looked at element by element."""

    instruction: Instruction

    @property
    def condition(self) -> Computation:
        """The computation that says whether to go on."""
        return self.instruction.condition

    @property
    def body(self) -> Computation:
        """The computation of one iteration."""
        return self.instruction.body

    @property
    def start(self) -> Instruction:
        """The state before the loop."""
        return self.instruction.operands[0]

    @property
    def sources(self) -> tuple[Instruction, Instruction, Instruction]:
        """The three instructions whose elements are the state: the while and both parameters."""
        return (self.instruction, self.body.parameters[0], self.condition.parameters[0])

    def elements(self, index: int) -> Iterator[Instruction]:
        """All instructions that read one element of the state."""
        for source in self.sources:
            for user in source.users:
                if user.tuple_index == index:
                    yield user


@dataclass(frozen=True)
class Slot:
    """One element of a loop's state."""

    loop: Loop
    index: int

    @property
    def shape(self) -> ArrayShape:
        """The shape of the element."""
        element = self.loop.instruction.elements[self.index]
        assert isinstance(element, ArrayShape)
        return element


def loops_of(module: Module) -> dict[Instruction, Loop]:
    """The loops that may change, by what makes their state: the start and the body's result."""
    found: dict[Instruction, Loop] = {}
    for computation in open_computations(module, top_level_computations(module)):
        for instruction in computation:
            if instruction.opcode == "while" and _may_change(instruction):
                found[instruction] = Loop(instruction)
    return found


def _may_change(instruction: Instruction) -> bool:
    loop = Loop(instruction)
    return (
        instruction.is_tuple
        and instruction.is_understood
        and not instruction.is_root
        and "sharding" not in instruction.attributes
        and sum(loop.body.callers.values()) == 1
        and sum(loop.condition.callers.values()) == 1
        and loop.body.root.opcode == "tuple"
        and not loop.body.root.users
        and not loop.body.root.is_tied
        and not any(source.is_tied for source in loop.sources[1:])
        and not any(source.is_root for source in loop.sources)
        and all(
            user.opcode == "get-tuple-element" for source in loop.sources for user in source.users
        )
    )


def weights(module: Module) -> dict[Computation, int]:
    """How often each computation of the control flow runs, with a guess where nobody knows."""
    found: dict[Computation, int] = {module.entry: 1}
    wrapped = wrapped_computations(module)
    for computation in callers_first(module):
        weight = found.get(computation, 0)
        for instruction in computation:
            if instruction.opcode not in SEQUENTIAL:
                continue
            times = weight
            if instruction.opcode == "while":
                count = trip_count(instruction)
                times = weight * max(1, UNKNOWN_TRIPS if count is None else count)
            for called in called_computations(instruction):
                found[called] = found.get(called, 0) + times
    return {
        computation: times for computation, times in found.items() if computation not in wrapped
    }
