"""Which loops a processor runs as one kernel: those whose units fill vectors, and those with next to no state.

Elsewhere a trip is a few loops over arrays, each of which may use all cores and the library's products, and
begins in a fraction of a microsecond: nothing is gained by keeping them together.  So it is where a loop might
never end: between the trips of a driver somebody looks at whether it gets anywhere, and whether it shall stop.
"""

from __future__ import annotations

from typing import Final

from hloopt.analysis.parallel_loop import Way, fused_loop
from hloopt.analysis.parallel_loop.host_way import LANES, host_way, unit_bytes
from hloopt.fusion.decision import ALLOWED, forbid
from hloopt.fusion.loop_verdict import Verdict, refusal_of
from hloopt.ir import Computation, Instruction, Module, build, edit

__all__ = ["KERNEL", "judge_host", "open_other_loops"]

KERNEL: Final = "native-while"
"""The kernel of loops that a processor runs as one."""

_SMALL_BYTES: Final = 1024
"""Of the state of units too few for a vector: so few numbers are in registers, or nearly."""


_MOST_STEPS: Final = 1 << 30
"""Instructions that a unit may come to in all its trips: seconds, in which nobody can stop it."""


def judge_host(loop: Instruction, always: bool) -> Verdict:
    """Ask whether a loop fits, and unless ``always`` whether it gains anything."""
    way = host_way(loop)
    if way.problem:
        return Verdict((way,), refusal_of(way))
    words = "" if always else _loss(way)
    return Verdict((way,), forbid("loop-slower", words=words) if words else ALLOWED)


def _loss(way: Way) -> str:
    """Why a loop is quicker left to a driver, empty where it is not."""
    trips = way.parallel.trips
    size = len(way.parallel.loop.attributes["body"])
    if trips.most is None or trips.most * size > _MOST_STEPS:
        most = "nobody knows how many" if trips.most is None else f"up to {trips.most}"
        return f"it may go on for {most} trips, and between those of a driver a run can be stopped"
    units, bytes_each = way.parallel.units, unit_bytes(way.parallel)
    if units >= LANES or units * bytes_each <= _SMALL_BYTES:
        return ""
    return f"{units} of its units are no {LANES} lanes of a vector, and {bytes_each} bytes each are no scalars"


def open_other_loops(module: Module) -> int:
    """Turn fusions of loops that no block of lanes runs into calls, which inlining dissolves; how many."""
    opened = 0
    for computation in list(module):
        for fusion in [one for one in computation if one.opcode == "fusion"]:
            inner = fused_loop(fusion)
            if inner is None or judge_host(inner.loop, always=False).decision:
                continue
            called: Computation = fusion.attributes["calls"]
            call = build.make(
                fusion, "call", fusion.operands, {"to_apply": called}, shape=fusion.shape
            )
            edit.replace_instruction(fusion, call)
            opened += 1
    return opened
