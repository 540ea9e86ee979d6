"""The op table: ``OPS`` maps every opcode of HLO to its row."""

from __future__ import annotations

from collections.abc import Iterable

from hloopt.ops import (
    async_,
    collective,
    control,
    custom,
    elementwise,
    host,
    indexing,
    linear,
    movement,
    random,
    reduction,
    sort,
    source,
    tuples,
    window,
)
from hloopt.ops.attributes import COMMON_ATTRIBUTES
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

_FAMILIES = (
    elementwise,
    movement,
    indexing,
    reduction,
    window,
    linear,
    sort,
    control,
    tuples,
    random,
    collective,
    async_,
    host,
    custom,
    source,
)


def _table(rows: Iterable[OpDef]) -> dict[str, OpDef]:
    table: dict[str, OpDef] = {}
    for row in rows:
        if table.setdefault(row.opcode, row) is not row:
            raise ValueError(f"two rows for opcode {row.opcode}")
    return table


OPS: dict[str, OpDef] = _table(row for family in _FAMILIES for row in family.ROWS)

__all__ = [
    "COMMON_ATTRIBUTES",
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
