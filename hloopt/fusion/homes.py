"""Where fusions are made: the computations whose instructions are run one by one."""

from __future__ import annotations

from hloopt.ir import Computation, Module, walk

__all__ = ["fusible_computations"]

_RUN_ONE_BY_ONE = ("while", "conditional", "call")


def fusible_computations(module: Module) -> list[Computation]:
    """Computations whose instructions are run one by one, callers first.

    The entry and what is called by while, conditional and call only: never the body of a fusion, a
    region applied to elements, or what an async-start wraps.
    """
    return [
        computation
        for computation in walk.top_level_computations(module)
        if all(caller.opcode in _RUN_ONE_BY_ONE for caller in computation.callers)
    ]
