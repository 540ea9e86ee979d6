"""Which passes fuse, and where."""

from __future__ import annotations

from typing import Final

from hloopt.ir import Computation, Module, walk
from hloopt.ops.traits import SEQUENTIAL
from hloopt.rewrite import Pass, Pipeline

__all__ = [
    "STRATEGIES",
    "asks_advice",
    "begins_fusion",
    "fusible_computations",
    "has_strategy",
    "is_strategy",
]

STRATEGIES: Final = frozenset({
    "instruction-fusion", "fusion-merger", "multi-output-fusion", "priority-fusion",
    "horizontal-loop-fusion", "horizontal-input-fusion", "loop-fusion", "row-fusion", "gemm-fusion",
    "attention-recognition", "loop-along-fusion", "product-fusion",
})  # fmt: skip
"""The passes of hloopt that decide what is fused with what."""


def is_strategy(instance: Pass) -> bool:
    """Whether a pass decides about all that can be fused: one of hloopt's, or one that says ``asks_advice``.

    Lock files and explanations are about the module before the first of them.
    """
    if type(instance).__module__.startswith("hloopt."):
        return instance.name in STRATEGIES
    return asks_advice(instance)


def asks_advice(instance: Pass) -> bool:
    """Whether a pass consults advice about what it fuses."""
    return instance.name in STRATEGIES or bool(getattr(instance, "asks_advice", False))


def has_strategy(pipeline: Pipeline) -> bool:
    """Whether a pipeline fuses anything."""
    return any(map(asks_advice, pipeline.passes()))


def begins_fusion(instance: Pass) -> bool:
    """Whether a pass is a strategy, or makes the fusions of a lock file before any of them."""
    return is_strategy(instance) or instance.name == "locked-fusion"


def fusible_computations(module: Module) -> list[Computation]:
    """Computations whose instructions are run one by one, callers first.

    The entry and what is called by while, conditional and call only: never the body of a fusion, a
    region applied to elements, or what an async-start wraps.
    """
    return [
        computation
        for computation in walk.top_level_computations(module)
        if all(caller.opcode in SEQUENTIAL for caller in computation.callers)
    ]
