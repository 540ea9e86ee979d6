"""Which loops a CPU runs as one kernel: those that take no longer so than iteration by iteration.

Iteration by iteration a loop is a few loops over arrays, each of which may use all cores and the library's
products, and starts in a fraction of a microsecond; what one of them makes is there for all others.  In one
kernel work items fill vectors and stay in the cache, but what they do not keep is computed anew for each reader
(``cost_models/host_while.py``).  A loop that might never end is left to a driver, too, which checks between
iterations whether it makes progress, and whether it is to stop.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from hloopt.analysis.parallel_loop import LoopMapping
from hloopt.analysis.parallel_loop.host_mapping import host_mapping
from hloopt.analysis.trip_count import counted_iterations
from hloopt.cost_models.host import HostModel
from hloopt.cost_models.host_loops import HostTime, host_iteration
from hloopt.cost_models.host_while import whole_loop_ns
from hloopt.cost_models.model import Comparison
from hloopt.fusion.decision import ALLOWED, Decision, forbid
from hloopt.fusion.loop_profit import best_host_iteration, duration
from hloopt.fusion.loop_verdict import LoopVerdict, refusal_of
from hloopt.ir import Computation, Instruction
from hloopt.targets.target import HOST

__all__ = ["KERNEL", "judge_host"]

KERNEL: Final = "native-while"
"""The kernel of loops that a CPU runs as one."""

_MOST_STEPS: Final = 1 << 30
"""Most instructions of a work item in all its iterations: seconds, in which it cannot be stopped."""


def judge_host(loop: Instruction, always: bool, fused: Collection[Computation] = ()) -> LoopVerdict:
    """Decide whether a loop fits, and unless ``always`` whether it is profitable.

    ``fused`` are its body and condition as a driver would run them; without them, what fusion would make of
    the loop.
    """
    mapping = host_mapping(loop)
    if mapping.problem:
        return LoopVerdict((mapping,), refusal_of(mapping))
    return LoopVerdict((mapping,), ALLOWED if always else _gain(mapping, fused))


def _gain(mapping: LoopMapping, fused: Collection[Computation]) -> Decision:
    """Whether one kernel is profitable for a loop."""
    loop, bounds = mapping.parallel.loop, mapping.parallel.iterations
    size = len(loop.body)
    if bounds.most is None or bounds.most * size > _MOST_STEPS:
        most = "an unknown number of" if bounds.most is None else f"up to {bounds.most}"
        words = (
            f"it may run for {most} iterations, and only a driver's run can be stopped between them"
        )
        return forbid("loop-slower", words=words)
    iterations = counted_iterations(loop).count
    model = HostModel(HOST)
    whole = whole_loop_ns(mapping, HOST) + model.launch_ns
    iteration = (
        host_iteration(fused, model, _as_kernel)
        if fused
        else best_host_iteration(loop, model, _as_kernel)
    )
    driven = iterations * iteration.ns(model.launch_ns)
    comparison = Comparison(driven / 1000, whole / 1000)
    if whole <= driven:
        return replace(ALLOWED, comparison=comparison)
    words = (
        f"{duration(whole)} in one kernel against {duration(driven)} in"
        f" {round(iteration.launches * iterations):,} kernels, predicted by {model.name}"
    )
    return forbid("loop-slower", words=words, comparison=comparison)


def _as_kernel(loop: Instruction) -> HostTime | None:
    mapping = host_mapping(loop)
    return None if mapping.problem else HostTime(1.0, whole_loop_ns(mapping, HOST))
