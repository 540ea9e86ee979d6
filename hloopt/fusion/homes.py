"""Where fusions are made: the computations whose instructions are run one by one."""

from __future__ import annotations

from hloopt.ir import Computation, Module, walk
from hloopt.ops.traits import SEQUENTIAL

__all__ = ["fusible_computations"]


def fusible_computations(module: Module) -> list[Computation]:
    """Computations whose instructions are run one by one, callers first.

    The entry and what is called by while, conditional and call only: never the body of a fusion, a
    region applied to elements, or what an async-start wraps.
    """
    return [
        computation
        for computation in walk.top_level_computations(module)
        if all(caller.opcode in SEQUENTIAL for caller in computation.callers)
    ]
