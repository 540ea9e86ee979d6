"""Custom calls: a target by name, and whatever its attributes say."""

from __future__ import annotations

from hloopt.ops.attributes import OUTPUT_ALIASING
from hloopt.ops.opdef import MANY, Attribute, Kind, OpDef
from hloopt.ops.shapes import declared

__all__ = ["ROWS"]

_API_VERSIONS = (
    "API_VERSION_UNSPECIFIED",
    "API_VERSION_ORIGINAL",
    "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED",
    "API_VERSION_TYPED_FFI",
)

ROWS = (
    OpDef(
        "custom-call",
        (0, MANY),
        "custom",
        declared,
        (
            Attribute("window", Kind.WINDOW),
            Attribute("dim_labels", Kind.CONV_DIMS),
            Attribute("feature_group_count", Kind.INT),
            Attribute("batch_group_count", Kind.INT),
            Attribute("operand_precision", Kind.VERBATIM),
            Attribute(
                "padding_type",
                Kind.WORD,
                words=("PADDING_INVALID", "PADDING_VALID", "PADDING_SAME"),
            ),
            Attribute("to_apply", Kind.COMPUTATION),
            Attribute("called_computations", Kind.COMPUTATIONS),
            Attribute("custom_call_target", Kind.STRING, required=True),
            Attribute("operand_layout_constraints", Kind.SHAPES),
            Attribute("custom_call_has_side_effect", Kind.BOOL),
            Attribute("literal", Kind.LITERAL),
            OUTPUT_ALIASING,
            Attribute(
                "schedule",
                Kind.WORD,
                words=("SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST"),
            ),
            Attribute("api_version", Kind.WORD, words=_API_VERSIONS),
        ),
        inferable=False,
        doc="code outside of HLO, found by its target's name",
    ),
)
