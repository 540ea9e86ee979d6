"""How often each instruction runs while the entry runs once: iterations of loops, branches, calls.

Costs are linear in instructions and calls.
"""

from __future__ import annotations

from collections.abc import Callable

from hloopt.analysis.trip_count import IterationCounts, counted_iterations
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.ops.traits import CONTROL_FLOW

__all__ = ["Execution", "executions"]


@dataclass(frozen=True, slots=True)
class Execution:
    """How often the instructions of one computation run.

    times    as often as it is reached when every branch around it is taken
    counted  in a run that takes the heaviest branch of each conditional; 0 in all others
    known    whether the module shows the trip counts of all loops around it
    bounded  whether it shows at least how many there can be, which count then; other loops count once
    """

    times: int
    counted: int
    known: bool = True
    bounded: bool = True


def executions(
    module: Module, weight: Callable[[Instruction], float]
) -> dict[Computation, Execution]:
    """The executions of all top-level computations, callers first.

    ``weight`` is what one run of an instruction costs, without what it calls through while, conditional and
    call; it decides which branch of a conditional counts (the first of equal ones).
    """
    order = walk.callers_first(module)
    loops = {
        entry: counted_iterations(entry)
        for computation in order
        for entry in computation
        if entry.opcode == "while"
    }
    weights: dict[Computation, float] = {}
    for computation in reversed(order):
        weights[computation] = sum(
            weight(entry) + _called_weight(entry, loops, weights) for entry in computation
        )
    found = dict.fromkeys(order, Execution(0, 0))
    found[module.entry] = Execution(1, 1)
    for computation in order:
        here = found[computation]
        for entry in computation:
            iterations = loops.get(entry, _ONCE)
            for callee, times, counts in _calls(entry, loops, weights):
                if callee in found:
                    before = found[callee]
                    found[callee] = Execution(
                        before.times + here.times * times,
                        before.counted + here.counted * times * counts,
                        before.known and here.known and iterations.known == "exact",
                        before.bounded and here.bounded and iterations.known != "at least",
                    )
    return found


_Iterations = dict[Instruction, IterationCounts]
_ONCE = IterationCounts(1, "exact")


def _calls(
    entry: Instruction, loops: _Iterations, weights: dict[Computation, float]
) -> list[tuple[Computation, int, bool]]:
    """What an instruction runs: computation, times, whether that counts."""
    if entry.opcode == "while":
        times = loops[entry].count
        body, condition = entry.body, entry.condition
        return [(body, times, True), (condition, times + 1, True)]
    if entry.opcode == "conditional":
        branches = list(walk.called_computations(entry))
        heaviest = max(range(len(branches)), key=lambda index: weights[branches[index]])
        return [(branch, 1, index == heaviest) for index, branch in enumerate(branches)]
    if entry.opcode in ("call", "async-start"):
        return [(callee, 1, True) for callee in walk.called_computations(entry)]
    return []


def _called_weight(
    entry: Instruction, loops: _Iterations, weights: dict[Computation, float]
) -> float:
    if entry.opcode not in CONTROL_FLOW:
        return 0.0
    return sum(
        times * weights.get(callee, 0.0)
        for callee, times, counts in _calls(entry, loops, weights)
        if counts
    )
