"""What may not be removed, merged or computed twice, for a whole module at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.walk import (
    called_computations,
    callees,
    callees_first,
    of_opcode,
    open_computations,
    remembered,
)
from hloopt.ops import attributes_of, op_of

__all__ = ["Effects", "visit_loops"]


class Effects:
    """Which computations, and so which calls, have side effects: one look at each instruction.

    A computation has side effects when an instruction in it has, or calls one that has.  Collectives,
    transfers and asynchronous pairs count: other devices take part in them.
    """

    def __init__(self, module: Module) -> None:
        self._computations: set[Computation] = set()
        for computation in callees_first(module):
            if remembered(computation, _has_effect) or any(
                called in self._computations for called in callees(computation)
            ):
                self._computations.add(computation)

    def has(self, instruction: Instruction) -> bool:
        """Whether running the instruction does more than make its result."""
        known = _plain_attributes(instruction.opcode)
        if known is not None:
            attributes = instruction.attributes
            return bool(attributes) and not attributes.keys() <= known
        return _does_more(instruction) or any(
            called in self._computations for called in called_computations(instruction)
        )


def _has_effect(computation: Computation) -> bool:
    """Whether any instruction itself has an effect; what they call is not looked at."""
    return any(map(_does_more, computation))


def _does_more(instruction: Instruction) -> bool:
    """Whether an instruction itself has an effect; what it calls is not looked at."""
    known = _plain_attributes(instruction.opcode)
    if known is not None:
        attributes = instruction.attributes
        return bool(attributes) and not attributes.keys() <= known
    return (
        instruction.op.side_effect
        or instruction.op.family in ("collective", "async", "host")
        or bool(instruction.attributes.get("custom_call_has_side_effect"))
        or not instruction.is_understood
    )


@cache
def _plain_attributes(opcode: str) -> frozenset[str] | None:
    """The attributes of an op that has no effects where it has no others; None where one must look closer."""
    row, known = op_of(opcode), attributes_of(opcode)
    if known is None or row.side_effect or row.family in ("collective", "async", "host"):
        return None
    closer = "custom_call_has_side_effect" in known or row.computation_attributes()
    return None if closer else known


def visit_loops(module: Module, visit: Callable[[Instruction, Effects], bool]) -> bool:
    """Visit each ``while`` outside of fusions, inner ones first; whether any visit changed something.

    Where it made a copy of a computation that several shared, effects are found anew.
    """
    effects, changed = Effects(module), False
    for computation in open_computations(module, callees_first(module)):
        for loop in of_opcode(computation, "while") if computation.module is not None else ():
            if loop.computation is computation:
                computations = len(module.computations)
                changed |= visit(loop, effects)
                if len(module.computations) > computations:
                    effects = Effects(module)
    return changed
