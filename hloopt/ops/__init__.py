"""The op table: ``OPS`` maps every opcode of HLO to its row."""

from hloopt.ops.opdef import (
    MANY,
    Arity,
    Attribute,
    Infer,
    InferArgs,
    Kind,
    OpDef,
    ScalarArgs,
    Signature,
)

OPS: dict[str, OpDef] = {}

__all__ = [
    "MANY",
    "OPS",
    "Arity",
    "Attribute",
    "Infer",
    "InferArgs",
    "Kind",
    "OpDef",
    "ScalarArgs",
    "Signature",
]
