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
    Attribute("sharding", Kind.VERBATIM),
    Attribute("frontend_attributes", Kind.VERBATIM),
    Attribute("statistics", Kind.VERBATIM),
    Attribute("parameter_replication", Kind.VERBATIM),
    Attribute("control-predecessors", Kind.VERBATIM),
    Attribute("metadata", Kind.VERBATIM),
    Attribute("backend_config", Kind.VERBATIM),
    Attribute("origin", Kind.VERBATIM),
)

DIMENSIONS = Attribute("dimensions", Kind.INTS, required=True)
DIMENSIONS_OPTIONAL = Attribute("dimensions", Kind.INTS)
TO_APPLY = Attribute("to_apply", Kind.COMPUTATION, required=True)
EXECUTION_THREAD = Attribute("async_execution_thread", Kind.STRING)
RESULT_ACCURACY = Attribute("result_accuracy", Kind.VERBATIM)
OUTPUT_ALIASING = Attribute("output_to_operand_aliasing", Kind.VERBATIM)

CHANNEL = (
    Attribute("channel_id", Kind.INT),
    Attribute("replica_groups", Kind.GROUPS),
    Attribute(
        "mode",
        Kind.WORD,
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
    Attribute("lhs_batch_dims", Kind.INTS),
    Attribute("lhs_contracting_dims", Kind.INTS),
    Attribute("rhs_batch_dims", Kind.INTS),
    Attribute("rhs_contracting_dims", Kind.INTS),
    Attribute("operand_precision", Kind.VERBATIM),
    Attribute("algorithm", Kind.WORD, words=ALGORITHMS),
)


def integers(*names: str) -> tuple[Attribute, ...]:
    """Required lists of dimensions."""
    return tuple(Attribute(name, Kind.INTS, required=True) for name in names)
