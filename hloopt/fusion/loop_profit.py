"""What making one kernel of a loop gains: its time against that of the best plan the host would run.

The host's plan is what fusion makes of the loop's body when the loop stays: a copy of body and condition is
fused as the module would be, and priced by the same model.  Both are predictions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hloopt.analysis.parallel_loop import Way, ways
from hloopt.analysis.trip_count import trip_count
from hloopt.cost_models.host_loops import HostTime, host_trip
from hloopt.cost_models.loop_time import LoopTime, clearly_best, is_priced, loop_time
from hloopt.cost_models.model import Comparison, CostModel
from hloopt.fusion.multi_output_fusion import MultiOutputFusion
from hloopt.fusion.priority_fusion import PriorityFusion
from hloopt.ir import Computation, Instruction, Module, build, edit, walk
from hloopt.targets import names

__all__ = ["ASSUMED_TRIPS", "LoopProfit", "loop_profit"]

ASSUMED_TRIPS: Final = 100
"""Where the module does not show how often a loop runs, on both sides: launches then hardly count, trips do."""


@dataclass(frozen=True, slots=True)
class LoopProfit:
    """One loop as a kernel, and trip by trip.

    way     the best of those that fit
    time    of its kernel
    others  times of all ways that fit, in order
    host    one trip of the host's plan
    """

    way: Way
    time: LoopTime
    others: tuple[tuple[Way, LoopTime], ...]
    host: HostTime
    launch_ns: float

    @property
    def host_ns(self) -> float:
        """Of all trips by the host."""
        return self.time.trips * self.host.ns(self.launch_ns)

    @property
    def comparison(self) -> Comparison:
        """Both, in microseconds."""
        return Comparison(self.host_ns / 1000, self.time.ns / 1000)

    @property
    def gains(self) -> bool:
        """Whether the one kernel takes no longer."""
        return self.time.ns <= self.host_ns

    @property
    def words(self) -> str:
        """Both, with what they are made of."""
        launches = round(self.host.launches * self.time.trips)
        return (
            f"{_duration(self.time.ns)} in one kernel ({self.time.words}) against"
            f" {_duration(self.host_ns)} in {launches:,} launches"
        )


def loop_profit(loop: Instruction, found: tuple[Way, ...], model: CostModel) -> LoopProfit | None:
    """What the best of the ways that fit would gain.

    None where none fits, and on devices for which nobody has measured what instructions take.
    """
    fitting = [way for way in found if not way.problem]
    target = model.target
    if not fitting or not is_priced(target):
        return None
    known = found[0].parallel.trips.count
    trips = trip_count(loop, believe=True) if known is None else known
    trips = ASSUMED_TRIPS if trips is None else trips
    timed = tuple((way, loop_time(way, target, trips=trips)) for way in fitting)
    best = clearly_best(timed)
    assert best is not None, "one fits"
    way, time = best
    return LoopProfit(way, time, timed, _best_host_trip(loop, model), model.launch_ns)


def _best_host_trip(loop: Instruction, model: CostModel) -> HostTime:
    """A trip of the host's plan: body and condition fused, loops in them as kernels where that takes less."""
    module, copy = _alone(loop)
    target = model.target.name
    PriorityFusion(cost_model=model.name).fuse(module, device=model.target)
    if target in names():
        MultiOutputFusion(cost_model=model.name, target=target).fuse(module)

    def inner(other: Instruction) -> HostTime | None:
        fitting = [way for way in ways(other, model.target) if not way.problem]
        times = [loop_time(way, model.target) for way in fitting]
        best = min(times, key=lambda time: time.ns, default=None)
        if best is None:
            return None
        return HostTime(1.0, best.exec_ns + best.more_launches_ns)

    return host_trip(copy, model, inner)


def _alone(loop: Instruction) -> tuple[Module, Instruction]:
    """A module that runs a copy of the loop, whatever it starts with."""
    module = Module("loop")
    copies: dict[Computation, Computation] = {}
    for computation in _callees_first(loop):
        cloned = build.clone_computation(computation, None, copies)
        copies[computation] = edit.add_computation(module, cloned)
    entry = edit.add_computation(module, Computation("main"))
    state = build.make(entry, "parameter", (), {"parameter_number": 0}, shape=loop.shape)
    called = {name: copies[loop.attributes[name]] for name in ("condition", "body")}
    copy = build.make(entry, "while", (state,), called, shape=loop.shape)
    entry.root = copy
    module.entry = entry
    return module, copy


def _callees_first(loop: Instruction) -> Iterator[Computation]:
    seen: set[Computation] = set()
    stack = [walk.called_computations(loop)]
    pending: list[Computation | None] = [None]
    while stack:
        called = next(stack[-1], None)
        if called is None:
            stack.pop()
            done = pending.pop()
            if done is not None:
                yield done
        elif called not in seen:
            seen.add(called)
            pending.append(called)
            stack.append(one for entry in called for one in walk.called_computations(entry))


def _duration(nanoseconds: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"
