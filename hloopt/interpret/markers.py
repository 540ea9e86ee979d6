"""Custom calls that compute nothing."""

from __future__ import annotations

__all__ = ["MARKERS"]

MARKERS = (
    "LayoutConstraint",
    "MoveToDevice",
    "MoveToHost",
    "Pin",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "ShardBarrierFrom",
    "ShardBarrierTo",
    "Sharding",
    "Unpin",
    "__xla_internal_call_marker_after",
    "__xla_internal_call_marker_before",
    "annotate_device_placement",
    "xla.sdy.FuncResultSharding",
    "xla.sdy.GlobalToLocalShape",
    "xla.sdy.LocalToGlobalShape",
    "xla.sdy.PropagationBarrier",
    "xla.sdy.Sharding",
)
"""Targets whose result is their operand (their operands)."""
