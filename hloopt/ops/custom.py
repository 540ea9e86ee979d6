"""Custom calls: a target by name, and whatever its attributes say."""

from __future__ import annotations

from hloopt.ops.attributes import OUTPUT_ALIASING
from hloopt.ops.opdef import MANY, Kind, family
from hloopt.ops.shapes import declared

__all__ = ["MARKERS", "ROWS"]

MARKERS = frozenset(
    {
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
    }
)
"""Targets that compute nothing: the result is the operand (or the operands)."""

_API_VERSIONS = (
    "API_VERSION_UNSPECIFIED",
    "API_VERSION_ORIGINAL",
    "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED",
    "API_VERSION_TYPED_FFI",
)

ROWS = (
    family("custom")(
        "custom-call",
        (0, MANY),
        declared,
        Kind.WINDOW("window"),
        Kind.CONV_DIMS("dim_labels"),
        Kind.INT("feature_group_count"),
        Kind.INT("batch_group_count"),
        Kind.VERBATIM("operand_precision"),
        Kind.WORD(
            "padding_type",
            words=("PADDING_INVALID", "PADDING_VALID", "PADDING_SAME"),
        ),
        Kind.COMPUTATION("to_apply"),
        Kind.COMPUTATIONS("called_computations"),
        Kind.STRING("custom_call_target", required=True),
        Kind.SHAPES("operand_layout_constraints"),
        Kind.BOOL("custom_call_has_side_effect"),
        Kind.LITERAL("literal"),
        OUTPUT_ALIASING,
        Kind.WORD(
            "schedule",
            words=("SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST"),
        ),
        Kind.WORD("api_version", words=_API_VERSIONS),
        inferable=False,
        doc="code outside of HLO, found by its target's name",
    ),
)
