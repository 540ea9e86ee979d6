"""What making one kernel of a loop gains: its time against that of the best plan the host would run.

Where the kernel takes no longer than the host needs for the launches that any plan has in each iteration,
that is the answer: a bound, and reported as one.  Where it does, the host's plan is priced: what fusion makes
of the loop's body when the loop stays (a copy of body and condition is fused as the module would be), by the
same model.  Both are predictions.
"""

from __future__ import annotations

from typing import Final

from hloopt.analysis.emitters.kind import has_kernel
from hloopt.analysis.hero import roots
from hloopt.analysis.layout import moves_nothing
from hloopt.analysis.parallel_loop import LoopMapping, gpu_mappings
from hloopt.analysis.trip_count import IterationCounts, counted_iterations
from hloopt.cost_models.host_loops import HostTime, Inner, host_iteration
from hloopt.cost_models.loop_time import LoopTime, clearly_best, is_priced, loop_time
from hloopt.cost_models.model import Comparison, CostModel
from hloopt.dataclass import dataclass
from hloopt.fusion.fusible import may_be_fused
from hloopt.fusion.loop_opened import CALLED, alone
from hloopt.fusion.multi_output_fusion import MultiOutputFusion
from hloopt.fusion.priority_fusion import PriorityFusion
from hloopt.ir import Computation, Instruction, walk
from hloopt.targets import Target, names

__all__ = ["ASSUMED_ITERATIONS", "LoopProfit", "best_host_iteration", "duration", "loop_profit"]

ASSUMED_ITERATIONS: Final = 100
"""Where the module does not show how often a loop runs, on both sides: iterations count, launches hardly."""


@dataclass(frozen=True, slots=True)
class LoopProfit:
    """One loop as a kernel, and iteration by iteration.

    mapping the best of those that fit
    time    of its kernel
    others  times of all mappings that fit, in order
    host    one iteration of the host's plan
    at_least  whether ``host`` is not a plan but the launches that any plan has
    """

    mapping: LoopMapping
    time: LoopTime
    others: tuple[tuple[LoopMapping, LoopTime], ...]
    host: HostTime
    launch_ns: float
    at_least: bool = False

    @property
    def host_ns(self) -> float:
        """The time of all iterations by the host, or a lower bound of it."""
        return self.time.iterations * self.host.ns(self.launch_ns)

    @property
    def comparison(self) -> Comparison:
        """Both, in microseconds."""
        return Comparison(self.host_ns / 1000, self.time.ns / 1000, self.at_least)

    @property
    def gains(self) -> bool:
        """Whether the one kernel takes no longer."""
        return self.time.ns <= self.host_ns

    @property
    def words(self) -> str:
        """Both, with what they are made of."""
        launches = round(self.host.launches * self.time.iterations)
        least = "at least " if self.at_least else ""
        alone = " alone" if self.at_least else ""
        return (
            f"{duration(self.time.ns)} in one kernel ({self.time.words}) against"
            f" {least}{duration(self.host_ns)} in {launches:,} launches{alone}"
        )


def loop_profit(
    loop: Instruction, found: tuple[LoopMapping, ...], model: CostModel, *, priced: bool = False
) -> LoopProfit | None:
    """What the best of the mappings that fit would gain; ``priced``: by the host's whole plan in any case.

    None where none fits, and on devices for which instructions are not measured.
    """
    fitting = [mapping for mapping in found if not mapping.problem]
    target = model.target
    if not fitting or not is_priced(target):
        return None
    iterations = counted_iterations(loop)
    if iterations.known == "at least":
        iterations = IterationCounts(max(iterations.count, ASSUMED_ITERATIONS), "assumed")
    timed = tuple(
        (mapping, loop_time(mapping, target, iterations=iterations)) for mapping in fitting
    )
    best = clearly_best(timed)
    assert best is not None, "one fits"
    mapping, time = best
    least = HostTime(_least_launches(loop))
    if not priced and time.ns <= iterations.count * least.ns(model.launch_ns):
        return LoopProfit(mapping, time, timed, least, model.launch_ns, at_least=True)
    return LoopProfit(
        mapping, time, timed, best_host_iteration(loop, model, _as_kernel(target)), model.launch_ns
    )


def best_host_iteration(loop: Instruction, model: CostModel, inner: Inner) -> HostTime:
    """An iteration of the host's plan: body and condition fused, inner loops as kernels where faster."""
    module, copy = alone(loop)
    target = model.target.name
    PriorityFusion(cost_model=model.name).fuse(module, device=model.target)
    if target in names():
        MultiOutputFusion(cost_model=model.name, target=target).fuse(module)
    return host_iteration((copy.attributes[key] for key in CALLED), model, inner)


def _as_kernel(target: Target) -> Inner:
    def time(loop: Instruction) -> HostTime | None:
        fitting = [mapping for mapping in gpu_mappings(loop, target) if not mapping.problem]
        times = [loop_time(mapping, target) for mapping in fitting]
        best = min(times, key=lambda time: time.ns, default=None)
        return None if best is None else HostTime(1.0, best.exec_ns + best.more_launches_ns)

    return time


def _least_launches(loop: Instruction) -> int:
    """Kernels that an iteration launches whatever is fused: those that share none, and one for the rest."""
    body = loop.body
    condition = loop.condition
    return sum(map(_least_kernels, (body, condition)))


def _least_kernels(computation: Computation) -> int:
    needed = walk.post_order(computation, [computation.root])
    own = sum(has_kernel(one) and not may_be_fused(one) for one in needed)
    return max(own, int(any(map(_is_computed, roots(computation)))))


def _is_computed(result: Instruction) -> bool:
    """Whether a kernel computes it: not what is passed through, nor calls."""
    return has_kernel(result) and result.opcode != "copy" and not moves_nothing(result)


def duration(nanoseconds: float) -> str:
    """In the largest unit that leaves something before the point."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"
