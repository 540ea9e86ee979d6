"""What counts as a kernel: an instruction that would be launched by itself.

On a GPU every top-level instruction that reads and writes memory is one launch; bookkeeping, control
flow and changes of shape that move no byte are none.
"""

from __future__ import annotations

from hloopt.analysis.layout import moves_nothing
from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.ops.traits import CONTROL_FLOW, DEVICE_NUMBERS, FREE

__all__ = ["computation_kernels", "is_kernel", "module_kernels"]

_ZERO_COST = FREE | CONTROL_FLOW | DEVICE_NUMBERS | {"get-dimension-size"}


def is_kernel(instruction: Instruction) -> bool:
    """Whether an instruction of a top-level computation is a launch of its own.

    A reshape between row-major layouts and a bitcast are other names for the same bytes.
    """
    return instruction.opcode not in _ZERO_COST and not moves_nothing(instruction)


def computation_kernels(computation: Computation) -> int:
    """Kernels that stand in a computation itself; those it calls are not counted."""
    return sum(map(is_kernel, computation))


def module_kernels(module: Module) -> int:
    """Kernels of the whole program: the entry and what it reaches through control flow."""
    return sum(map(computation_kernels, walk.top_level_computations(module)))
