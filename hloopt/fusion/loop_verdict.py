"""Whether a ``while`` can be one kernel, and if not, why: the refusal, from the verdicts on both mappings."""

from __future__ import annotations

from typing import Final

from hloopt.analysis.parallel_loop import LoopMapping, ParallelLoop, gpu_mappings
from hloopt.analysis.trip_count import counted_iterations
from hloopt.dataclass import dataclass
from hloopt.fusion.decision import ALLOWED, Decision, forbid
from hloopt.ir import Instruction
from hloopt.targets import Target
from hloopt.types import ArrayShape, Shape, leaves

__all__ = ["LOOP_KERNELS", "LoopVerdict", "iterations_text", "judge", "refusal_of"]

LOOP_KERNELS: Final = {"thread": "while-per-thread", "block": "while-per-block"}
"""The kernel of each mapping."""


@dataclass(frozen=True)
class LoopVerdict:
    """The two mappings that were considered, and the answer: allowed with those that fit, or why none does."""

    mappings: tuple[LoopMapping, ...]
    decision: Decision

    @property
    def fitting(self) -> tuple[LoopMapping, ...]:
        """The mappings that fit, in order of preference."""
        return tuple(mapping for mapping in self.mappings if not mapping.problem)

    @property
    def parallel(self) -> ParallelLoop:
        """The analysed loop of the preferred mapping."""
        return (self.fitting or self.mappings)[0].parallel


def judge(loop: Instruction, target: Target) -> LoopVerdict:
    """Judge both mappings of a loop."""
    found = gpu_mappings(loop, target)
    if any(not mapping.problem for mapping in found):
        return LoopVerdict(found, ALLOWED)
    # The refusal by a block is final: a block can run whatever a thread can.
    return LoopVerdict(found, refusal_of(found[-1]))


def _is_token(leaf: Shape) -> bool:
    return isinstance(leaf, ArrayShape) and not leaf.dtype.is_array


def iterations_text(parallel: ParallelLoop) -> str:
    """How long a loop runs, in words; empty where it could not be analysed."""
    if parallel.obstacle is not None:
        return ""
    counted = counted_iterations(parallel.loop)
    if counted.known == "exact":
        return counted.words
    most = f", {counted.words}" if counted.known == "at most" else ""
    return f"{_ITERATIONS[parallel.iterations.kind]}{most}"


_ITERATIONS: Final = {
    "known": "",
    "scalar": "as long as one number says",
    "element": "each work item as long as its own condition holds",
    "gathered": "as long as all work items together say",
}


def refusal_of(mapping: LoopMapping) -> Decision:
    """Why a mapping does not fit."""
    return forbid(
        f"loop-{_code(mapping)}", limit=mapping.limit, actual=mapping.actual, words=mapping.problem
    )


def _code(mapping: LoopMapping) -> str:
    obstacle, loop = mapping.parallel.obstacle, mapping.parallel.loop
    if obstacle is not None:
        is_flat = obstacle.instruction is not loop or any(map(_is_token, leaves(loop.shape)))
        return "side-effect" if is_flat else "not-flat"
    if mapping.code:
        return mapping.code
    if mapping.parallel.iterations.kind == "gathered":
        return "gathered-condition"
    return "mixes" if mapping.parallel.mixing else "state-too-large"
