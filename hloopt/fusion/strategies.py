"""Which passes fuse."""

from __future__ import annotations

from typing import Final

from hloopt.rewrite import Pass, Pipeline

__all__ = ["STRATEGIES", "asks_advice", "has_strategy", "is_strategy"]

STRATEGIES: Final = frozenset({
    "instruction-fusion", "fusion-merger", "multi-output-fusion", "priority-fusion",
    "horizontal-loop-fusion", "horizontal-input-fusion", "loop-fusion", "gemm-fusion",
})  # fmt: skip
"""The passes of hloopt that decide what is fused with what."""


def is_strategy(instance: Pass) -> bool:
    """Whether a pass decides about all that can be fused: one of hloopt's, or one that says ``asks_advice``.

    What stands there before the first of them is what lock files and explanations are about.
    """
    if type(instance).__module__.startswith("hloopt."):
        return instance.name in STRATEGIES
    return asks_advice(instance)


def asks_advice(instance: Pass) -> bool:
    """Whether a pass asks for advice about what it fuses."""
    return instance.name in STRATEGIES or bool(getattr(instance, "asks_advice", False))


def has_strategy(pipeline: Pipeline) -> bool:
    """Whether a pipeline fuses anything."""
    return any(map(asks_advice, pipeline.passes()))
