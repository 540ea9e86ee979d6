"""Loops whose state may be carried in more, smaller arrays."""

from __future__ import annotations

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
from hloopt.passes.loops.carried import is_read_by_element, states
from hloopt.types import ArrayShape

__all__ = ["UNKNOWN_COUNT", "StateElement", "loops_of", "weights"]

UNKNOWN_COUNT = 16
"""How often a loop is taken to run where the module does not show it."""


@dataclass(frozen=True)
class StateElement:
    """One element of a loop's state."""

    loop: Instruction
    index: int

    @property
    def shape(self) -> ArrayShape:
        """The shape of the element."""
        element = self.loop.elements[self.index]
        assert isinstance(element, ArrayShape)
        return element

    @property
    def reads(self) -> list[Instruction]:
        """All instructions that read the element, in the loop and after it."""
        return [
            user
            for state in states(self.loop)[::-1]
            for user in state.users
            if user.tuple_index == self.index
        ]


def loops_of(module: Module) -> list[Instruction]:
    """The loops that may change."""
    return [
        instruction
        for computation in open_computations(module, top_level_computations(module))
        for instruction in computation
        if instruction.opcode == "while" and _may_change(instruction)
    ]


def _may_change(loop: Instruction) -> bool:
    return is_read_by_element(loop) and loop.is_understood and "sharding" not in loop.attributes


def weights(module: Module) -> dict[Computation, int]:
    """How often each computation of the control flow runs, estimated where the module does not show it."""
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
                times = weight * max(1, UNKNOWN_COUNT if count is None else count)
            for called in called_computations(instruction):
                found[called] = found.get(called, 0) + times
    return {
        computation: times for computation, times in found.items() if computation not in wrapped
    }
