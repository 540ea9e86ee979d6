"""What may not be removed, merged or computed twice, for a whole module at once."""

from __future__ import annotations

from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.walk import called_computations, callees_first

__all__ = ["Effects"]


class Effects:
    """Which computations, and so which calls, have side effects: one look at each instruction.

    A computation has side effects when an instruction in it has, or calls one that has.  Collectives,
    transfers and asynchronous pairs count: other devices take part in them.
    """

    def __init__(self, module: Module) -> None:
        self._computations: set[Computation] = set()
        for computation in callees_first(module):
            if any(map(self.has, computation)):
                self._computations.add(computation)

    def has(self, instruction: Instruction) -> bool:
        """Whether running the instruction does more than make its result."""
        return (
            instruction.op.side_effect
            or instruction.op.family in ("collective", "async", "host")
            or bool(instruction.attributes.get("custom_call_has_side_effect"))
            or not instruction.is_understood
            or any(called in self._computations for called in called_computations(instruction))
        )
