"""Whether a ``while`` can be one kernel, and if not, why: a refusal from what analysis says of both ways."""

from __future__ import annotations

from typing import Final

from hloopt.analysis.parallel_loop import LoopMapping, ParallelLoop, ways
from hloopt.analysis.trip_count import counted_trips
from hloopt.dataclass import dataclass
from hloopt.fusion.decision import ALLOWED, Decision, forbid
from hloopt.ir import Instruction
from hloopt.targets import Target
from hloopt.types import ArrayShape, Shape, leaves

__all__ = ["LOOP_KERNELS", "LoopVerdict", "judge", "refusal_of", "trips_text"]

LOOP_KERNELS: Final = {"thread": "while-per-thread", "block": "while-per-block"}
"""The kernel of each way."""


@dataclass(frozen=True)
class LoopVerdict:
    """The two ways that were considered, and the answer: allowed with the ways that fit, or why none does."""

    ways: tuple[LoopMapping, ...]
    decision: Decision

    @property
    def fitting(self) -> tuple[LoopMapping, ...]:
        """The ways that fit, in order of preference."""
        return tuple(way for way in self.ways if not way.problem)

    @property
    def parallel(self) -> ParallelLoop:
        """The loop taken apart as the preferred way has it."""
        return (self.fitting or self.ways)[0].parallel


def judge(loop: Instruction, target: Target) -> LoopVerdict:
    """Ask both ways about a loop."""
    found = ways(loop, target)
    if any(not way.problem for way in found):
        return LoopVerdict(found, ALLOWED)
    # What keeps a whole block from running it is the last word: a block takes all that a thread takes.
    return LoopVerdict(found, refusal_of(found[-1]))


def _is_token(leaf: Shape) -> bool:
    return isinstance(leaf, ArrayShape) and not leaf.dtype.is_array


def trips_text(parallel: ParallelLoop) -> str:
    """How long a loop runs, in words; empty where it could not be taken apart."""
    if parallel.obstacle is not None:
        return ""
    counted = counted_trips(parallel.loop)
    if counted.known == "exact":
        return counted.words
    most = f", {counted.words}" if counted.known == "at most" else ""
    return f"{_TRIPS[parallel.trips.kind]}{most}"


_TRIPS: Final = {
    "known": "",
    "scalar": "as long as one number says",
    "element": "each unit as long as its own condition holds",
    "gathered": "as long as all units together say",
}


def refusal_of(way: LoopMapping) -> Decision:
    """Why a way does not fit."""
    return forbid(f"loop-{_code(way)}", limit=way.limit, actual=way.actual, words=way.problem)


def _code(way: LoopMapping) -> str:
    obstacle, loop = way.parallel.obstacle, way.parallel.loop
    if obstacle is not None:
        is_flat = obstacle.instruction is not loop or any(map(_is_token, leaves(loop.shape)))
        return "side-effect" if is_flat else "not-flat"
    if way.code:
        return way.code
    if way.parallel.trips.kind == "gathered":
        return "gathered-condition"
    return "mixes" if way.parallel.mixing else "state-too-large"
