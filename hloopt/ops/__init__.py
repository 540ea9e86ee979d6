"""The op table: ``OPS`` maps every opcode of HLO to its row; ``op_of`` has one for others, too."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

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
from hloopt.ops.shapes import declared

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
_CALLING = tuple(
    {
        entry.name: Attribute(entry.name, entry.kind)
        for row in OPS.values()
        for entry in row.attributes
        if entry.kind in (Kind.COMPUTATION, Kind.COMPUTATIONS)
    }.values()
)


_KNOWN_ATTRIBUTES = {
    opcode: frozenset(entry.name for entry in (*COMMON_ATTRIBUTES, *row.attributes))
    for opcode, row in OPS.items()
}


_NAMES = frozenset().union(*_KNOWN_ATTRIBUTES.values())


def is_attribute(name: str) -> bool:
    """Whether any op of the table has an attribute of this name."""
    return name in _NAMES


def attributes_of(opcode: str) -> frozenset[str] | None:
    """The names of the attributes an op may have; None for an opcode that is not in the table."""
    return _KNOWN_ATTRIBUTES.get(opcode)


@cache
def op_of(opcode: str) -> OpDef:
    """The row of an opcode.

    One that the table lacks (of a newer XLA) gets a row of family ``unknown`` that promises nothing: any
    operands, the result shape as written, side effects.  Attributes that hold computations in other
    rows do so here, too.
    """
    row = OPS.get(opcode)
    if row is not None:
        return row
    return OpDef(
        opcode,
        (0, MANY),
        "unknown",
        declared,
        _CALLING,
        side_effect=True,
        inferable=False,
        doc="not known here",
    )


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
    "attributes_of",
    "is_attribute",
    "op_of",
]
