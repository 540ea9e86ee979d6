"""The time of a loop whose iterations the host starts: launches of each kernel of body and condition.

Kernels are priced as the instructions stand: what is not fused yet is a separate kernel.  That the host waits
for the condition of each iteration is not counted: XLA's models have no figure for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from hloopt.analysis.emitters.kind import has_kernel
from hloopt.analysis.layout import moves_nothing
from hloopt.analysis.trip_count import counted_iterations
from hloopt.cost_models.model import CostModel
from hloopt.cost_models.predictor import Predictor
from hloopt.dataclass import dataclass
from hloopt.interpret.control import branches
from hloopt.ir import Computation, Instruction

__all__ = ["NO_TIME", "HostTime", "Inner", "host_iteration"]


@dataclass(frozen=True, slots=True)
class HostTime:
    """Kernels launched, and nanoseconds they run, launches not among them."""

    launches: float = 0.0
    exec_ns: float = 0.0

    def __add__(self, other: HostTime) -> HostTime:
        return HostTime(self.launches + other.launches, self.exec_ns + other.exec_ns)

    def __mul__(self, times: float) -> HostTime:
        return HostTime(self.launches * times, self.exec_ns * times)

    def ns(self, launch_ns: float) -> float:
        """Launches included."""
        return self.launches * launch_ns + self.exec_ns


NO_TIME: Final = HostTime()

Inner = Callable[[Instruction], HostTime | None]
"""The time of a nested loop where it is a kernel; None where it is not one, or the time is unknown."""


def host_iteration(
    called: Iterable[Computation], model: CostModel, inner: Inner = lambda _: None
) -> HostTime:
    """One iteration of a ``while`` that calls a body and a condition.

    Loops within it that ``inner`` says to be kernels count as such where that takes less; iterations
    count as ``counted_iterations`` has them.  Of a conditional the longest branch counts.
    """
    run = _Run(model, inner)
    return sum(map(run.computation, called), NO_TIME)


class _Run:
    def __init__(self, model: CostModel, inner: Inner) -> None:
        self.model = model
        self.inner = inner
        self.prices = Predictor(model)

    def computation(self, computation: Computation) -> HostTime:
        total = NO_TIME
        for entry in computation:
            total = total + self.instruction(entry)
        return total

    def instruction(self, entry: Instruction) -> HostTime:
        opcode, attributes = entry.opcode, entry.attributes
        if opcode == "while":
            return self.loop(entry)
        if opcode == "conditional":
            found = [self.computation(branch) for branch in branches(entry)]
            return max(found, key=lambda one: one.ns(self.model.launch_ns))
        if opcode == "call":
            return self.computation(attributes["to_apply"])
        if not has_kernel(entry) or moves_nothing(entry):
            return NO_TIME
        return HostTime(1.0, self.prices.run_time(entry)[0].exec_ns)

    def loop(self, loop: Instruction) -> HostTime:
        iteration = self.computation(loop.body)
        iteration = iteration + self.computation(loop.condition)
        whole = iteration * counted_iterations(loop).count
        other = self.inner(loop)
        launch = self.model.launch_ns
        if other is not None and other.ns(launch) < whole.ns(launch):
            return other
        return whole
