"""What it costs the threads of a block to compute values again, to store them, to fold them together.

Costs are counted in steps of a thread: an addition that waits for the one before it is one, four to six
cycles.  A read of shared or cached memory is then about five, a shuffle as many, a barrier eight.  Only their
ratio matters here, for decisions that are far apart; times are left to the cost models.
"""

from __future__ import annotations

from typing import Final

from hloopt.analysis.parallel_loop.edges import LoopValue
from hloopt.analysis.parallel_loop.flow import Flow
from hloopt.analysis.reduction import WARP_SIZE
from hloopt.analysis.trip_count import iteration_bounds
from hloopt.ops.traits import TRANSCENDENTAL, VIEWS

__all__ = ["StepCosts"]

_LOAD: Final = 5
_BARRIER: Final = 8
_SHUFFLE: Final = 5
_FUNCTION: Final = 12
"""Of a function that takes many instructions."""

_ITERATIONS: Final = 16
"""Of a loop whose trip count is not known."""

_FUNCTIONS = TRANSCENDENTAL | {"divide", "remainder"}

_FREE = VIEWS | {"constant", "iota"}


class StepCosts:
    """Of the values of a loop in a block of ``threads``."""

    def __init__(self, flow: Flow, threads: int) -> None:
        self.flow = flow
        self.threads = threads
        self._stored: set[LoopValue] = set()
        self._of: dict[LoopValue, float] = {}

    def store(self, value: LoopValue) -> None:
        """From now on reading an element of a value is a read of shared memory."""
        self._stored.add(value)

    def read(self, value: LoopValue) -> float:
        """Steps to have an element of a value."""
        if value in self._stored or not value.path or value.instruction.opcode == "parameter":
            return _LOAD
        return self.of(value)

    def of(self, value: LoopValue) -> float:
        """Steps to compute an element, requested in an order with operands first."""
        found = self._of.get(value)
        if found is None:
            own = self._own(value)
            reads = self.flow.reads(value)
            found = own + sum(read.count * self.read(read.value) for read in reads)
            self._of[value] = found
        return found

    def _own(self, value: LoopValue) -> float:
        instruction = value.instruction
        if instruction.opcode in _FREE:
            return 0
        if instruction.opcode == "while" and value.path:
            iterations = iteration_bounds(instruction)
            return (iterations.exact or iterations.most or _ITERATIONS) * len(
                list(instruction.body)
            )
        each = _FUNCTION if instruction.opcode in _FUNCTIONS else 1
        return each * max((read.count for read in self.flow.reads(value)), default=1)

    def again(self, value: LoopValue, wanted: float) -> float:
        """Steps of a thread if every user computes the elements it wants; ``wanted`` of all users."""
        return self._share(wanted) * self.of(value)

    def stored(self, value: LoopValue, wanted: float) -> float:
        """Steps of a thread if each element is computed once and read from shared memory."""
        once = self._share(self.flow.elements(value)) * self.of(value)
        return once + _BARRIER + self._share(wanted) * _LOAD

    def fold(self, value: LoopValue, wanted: float) -> tuple[int, float]:
        """The best number of threads for each result of a reduce or dot (0: all of them), and its steps."""
        fold = value.instruction
        results = 1 if fold.opcode == "dot" else len(fold.fold_inputs)
        elements = self.flow.elements(value)
        reads = [read for read in self.flow.reads(value) if read.count > 1]
        if not reads or not elements:
            return 1, self.stored(value, wanted)
        length = reads[0].count
        each = 1 + sum(self.read(read.value) for read in reads)
        best, cost = 1, self.stored(value, wanted)
        lanes = 2
        while lanes <= WARP_SIZE:
            rounds = self._share(elements * lanes)
            steps = rounds * (-(-length // lanes) * each + lanes.bit_length() * _SHUFFLE * results)
            steps += _BARRIER + self._share(wanted) * _LOAD
            if steps < cost:
                best, cost = lanes, steps
            lanes *= 2
        if elements == 1 and length > WARP_SIZE and self.threads > WARP_SIZE:
            warps = self.threads // WARP_SIZE
            steps = self._share(length) * each + 5 * _SHUFFLE * results + _BARRIER
            steps += min(warps * 2, 5 * _SHUFFLE) * results
            if steps < cost:
                best, cost = 0, steps
        return best, cost

    def _share(self, elements: float) -> float:
        return -(-elements // self.threads)
