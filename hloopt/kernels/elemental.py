"""Which ops can be computed one element at a time inside a kernel."""

from __future__ import annotations

from collections.abc import Collection

from hloopt.analysis.region import Region
from hloopt.ir import Instruction
from hloopt.ir.walk import called_computations

__all__ = ["ELEMENTAL", "elemental_problem"]

ELEMENTAL = frozenset({
    "add-dependency", "bitcast", "bitcast-convert", "broadcast", "call", "concatenate", "conditional",
    "constant", "convolution", "dot", "dynamic-slice", "dynamic-update-slice", "fusion", "gather",
    "get-dimension-size", "get-tuple-element", "iota", "map", "opt-barrier", "pad", "parameter",
    "partition-id", "reduce",
    "reduce-window", "replica-id", "reshape", "reverse", "rng-bit-generator", "select-and-scatter",
    "slice", "transpose", "tuple",
})  # fmt: skip
"""The opcodes beside the elementwise ones; ``codegen/elemental`` has an emitter for each."""


_IN_LOOPS = frozenset({"scatter", "while"})
"""What a thread would take long for, where nothing else is worth a loop in one kernel."""


def elemental_problem(
    region: Region, heroes: Collection[Instruction] = (), *, loops: bool = False
) -> str:
    """Why a region cannot be computed element by element: the first op that cannot; empty if it can.

    ``heroes`` are left out: the kernel computes them in its own way.  With ``loops`` it runs every ``while``
    and scatter, too.
    """
    pending: list[Instruction] = [one for one in region.body if one not in heroes]
    while pending:
        instruction = pending.pop()
        known = instruction.opcode in ELEMENTAL or (loops and instruction.opcode in _IN_LOOPS)
        if not instruction.op.is_elementwise and not known:
            return f"{instruction.name} is a {instruction.opcode}, which no thread computes alone"
        if instruction.shape.is_dynamic:
            return f"{instruction.name} has a bounded dynamic dimension"
        for computation in called_computations(instruction):
            pending.extend(computation)
    return ""
