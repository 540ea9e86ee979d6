"""Which instructions need a kernel, and where they stand."""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.ops.traits import CONTROL_FLOW, FREE
from hloopt.types import BufferShape, leaves

__all__ = ["needs_kernel", "selectable"]

_ZERO_COST = FREE | CONTROL_FLOW | {"copy-start"}
"""Values that are there already, other names for the same bytes, control flow, and plain copies."""


def needs_kernel(instruction: Instruction) -> bool:
    """Whether an instruction of a top-level computation writes memory of its own.

    What has no element and no side effect does not.
    """
    if instruction.opcode in _ZERO_COST:
        return False
    for leaf in leaves(instruction.shape):
        array = leaf.element if isinstance(leaf, BufferShape) else leaf
        if array.byte_size:
            return True
    return walk.has_side_effect(instruction)


def selectable(module: Module) -> Iterator[tuple[Computation, Instruction]]:
    """The instructions that need a kernel, computation by computation, callers first."""
    for computation in walk.top_level_computations(module):
        for instruction in computation:
            if needs_kernel(instruction):
                yield computation, instruction
