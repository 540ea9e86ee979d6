"""The choice of kernels: candidates for each instruction, selectors, launches, buffers.

Here: which instructions need a kernel of a device, and which count as one.  On a GPU every top-level
instruction that reads and writes memory is one launch; bookkeeping, control flow and changes of shape that
move no byte are none.
"""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.analysis.layout import moves_nothing
from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.ops.traits import CONTROL_FLOW, DEVICE_NUMBERS, FREE
from hloopt.types import BufferShape, leaves

__all__ = ["computation_kernels", "is_kernel", "module_kernels", "needs_kernel", "selectable"]

_ZERO_COST = FREE | CONTROL_FLOW | {"copy-start"}
"""Values that are there already, other names for the same bytes, control flow, and plain copies."""


def needs_kernel(instruction: Instruction) -> bool:
    """Whether an instruction of a top-level computation writes new memory.

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


_NO_LAUNCH = FREE | CONTROL_FLOW | DEVICE_NUMBERS | {"get-dimension-size"}


def is_kernel(instruction: Instruction) -> bool:
    """Whether an instruction of a top-level computation is a separate launch.

    A reshape between row-major layouts, a transpose that its layouts undo and a bitcast are other names for the
    same bytes.
    """
    return instruction.opcode not in _NO_LAUNCH and not moves_nothing(instruction)


def computation_kernels(computation: Computation) -> int:
    """Kernels in a computation itself; those it calls are not counted."""
    return sum(map(is_kernel, computation))


def module_kernels(module: Module) -> int:
    """Kernels of the whole program: the entry and what it reaches through control flow."""
    return sum(map(computation_kernels, walk.top_level_computations(module)))
