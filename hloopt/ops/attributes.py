"""Attributes that several ops share, and those every op may have."""

from __future__ import annotations

from hloopt.ops.opdef import Attribute, Kind

__all__ = [
    "CHANNEL",
    "COMMON_ATTRIBUTES",
    "DIMENSIONS",
    "DIMENSIONS_OPTIONAL",
    "DOT",
    "EXECUTION_THREAD",
    "OUTPUT_ALIASING",
    "RESULT_ACCURACY",
    "TO_APPLY",
    "integers",
]

COMMON_ATTRIBUTES: tuple[Attribute, ...] = (
    Kind.VERBATIM("sharding"),
    Kind.VERBATIM("frontend_attributes"),
    Kind.VERBATIM("statistics"),
    Kind.VERBATIM("parameter_replication"),
    Kind.VERBATIM("control-predecessors"),
    Kind.VERBATIM("metadata"),
    Kind.VERBATIM("backend_config"),
    Kind.VERBATIM("origin"),
)

DIMENSIONS = Kind.INTS("dimensions", required=True)
DIMENSIONS_OPTIONAL = Kind.INTS("dimensions")
TO_APPLY = Kind.COMPUTATION("to_apply", required=True)
EXECUTION_THREAD = Kind.STRING("async_execution_thread")
RESULT_ACCURACY = Kind.VERBATIM("result_accuracy")
OUTPUT_ALIASING = Kind.VERBATIM("output_to_operand_aliasing")

CHANNEL = (
    Kind.INT("channel_id"),
    Kind.GROUPS("replica_groups"),
    Kind.WORD(
        "mode",
        words=("cross_replica", "cross_partition", "cross_replica_and_partition", "flattened_id"),
    ),
)

ALGORITHMS = (
    "dot_unset",
    "dot_any_f8_any_f8_f32",
    "dot_any_f8_any_f8_f32_fast_accum",
    "dot_any_f8_any_f8_any",
    "dot_any_f8_any_f8_any_fast_accum",
    "dot_f16_f16_f16",
    "dot_f16_f16_f32",
    "dot_bf16_bf16_bf16",
    "dot_bf16_bf16_f32",
    "dot_bf16_bf16_f32_x3",
    "dot_bf16_bf16_f32_x6",
    "dot_bf16_bf16_f32_x9",
    "dot_tf32_tf32_f32",
    "dot_tf32_tf32_f32_x3",
    "dot_f32_f32_f32",
    "dot_f64_f64_f64",
)

DOT = (
    Kind.INTS("lhs_batch_dims"),
    Kind.INTS("lhs_contracting_dims"),
    Kind.INTS("rhs_batch_dims"),
    Kind.INTS("rhs_contracting_dims"),
    Kind.VERBATIM("operand_precision"),
    Kind.WORD("algorithm", words=ALGORITHMS),
)


def integers(*names: str) -> tuple[Attribute, ...]:
    """Required lists of dimensions."""
    return tuple(Attribute(name, Kind.INTS, required=True) for name in names)
