"""Branches and loops in terms: a choice among results, iterations, or what one iteration does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from hloopt.interpret.context import Value, array_of, leaf_arrays
from hloopt.interpret.control import branch_number, branches
from hloopt.ir import Instruction
from hloopt.prover.equivalence.symbolic import Handler, Symbolic

__all__ = ["CONTROL"]

_MOST_ITERATIONS: Final = 4096
_MOST_UNROLLED: Final = 1 << 15
"""Terms that a loop may make as a row of iterations."""


def _conditional(
    symbolic: Symbolic, instruction: Instruction, operands: tuple[Value, ...]
) -> Value:
    """The branch of a constant; else all of them, and of each element the one that counts."""
    computations = branches(instruction)
    selector, kind = array_of(operands[0]), instruction.operands[0].array.dtype
    if selector.size == 1 and symbolic.terms.are_constant(selector):
        known = symbolic.terms.values(selector, kind).reshape(())
        number = branch_number(known, len(computations))
        return symbolic.run(computations[number], [operands[number + 1]])
    results = [
        symbolic.run(computation, [argument])
        for computation, argument in zip(computations, operands[1:], strict=True)
    ]
    chosen = results[-1]
    for number in reversed(range(len(results) - 1)):
        here = symbolic.equals(selector, kind, number)
        chosen = symbolic.choose(here, results[number], chosen, instruction.shape)
    return chosen


def _while(
    symbolic: Symbolic, instruction: Instruction, operands: tuple[Value, ...]
) -> Value | None:
    """All iterations, where the condition of each is constant and they are few."""
    condition, body = instruction.attributes["condition"], instruction.attributes["body"]
    state, before = operands[0], len(symbolic.terms)
    for _ in range(_MOST_ITERATIONS):
        goes_on = np.unique(array_of(symbolic.run(condition, [state])))
        known = None if len(goes_on) != 1 else symbolic.terms.value(int(goes_on[0]))
        if known is None or len(symbolic.terms) - before > _MOST_UNROLLED:
            return _loop(symbolic, instruction, operands)
        if not known:
            return state
        state = symbolic.run(body, [state])
    return _loop(symbolic, instruction, operands)


def _loop(symbolic: Symbolic, instruction: Instruction, operands: tuple[Value, ...]) -> Value:
    """What a loop does to where it begins: its condition and its body, of a state that may be anything.

    Neither reads anything else, so that two loops with the same are the same function.
    """
    state = symbolic.fresh(instruction.shape, "state")
    parts = [symbolic.call(instruction.attributes[name], [state]) for name in ("condition", "body")]
    does = tuple(leaf.tobytes() for part in parts for leaf in leaf_arrays(part))
    return symbolic.function_of(instruction, operands, does)


CONTROL: Mapping[str, Handler] = {"conditional": _conditional, "while": _while}
