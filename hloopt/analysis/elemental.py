"""Ops of which a thread can compute any one element."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hloopt.ir import Instruction
from hloopt.ir.walk import called_computations
from hloopt.ops.traits import ELEMENTAL

__all__ = ["first_not_elemental"]


_IN_LOOPS: Final = frozenset({"scatter", "while"})
"""What a thread would take long for, where nothing else is worth a loop in one kernel."""


def first_not_elemental(body: Iterable[Instruction], *, loops: bool = False) -> Instruction | None:
    """The first instruction, of those given and of what they call, that no thread computes alone, or None.

    With ``loops`` threads run every ``while`` and scatter, too.
    """
    pending = list(body)
    while pending:
        instruction = pending.pop()
        known = instruction.opcode in ELEMENTAL or (loops and instruction.opcode in _IN_LOOPS)
        if not (instruction.op.is_elementwise or known) or instruction.shape.is_dynamic:
            return instruction
        for computation in called_computations(instruction):
            pending.extend(computation)
    return None
