"""How much of each row a value has: ``row`` one element, ``full`` one a place of the row.

What a ``topk`` leaves of rows has ``pick`` a few elements of each, and ``after`` one computed from these.
"""

from __future__ import annotations

from collections.abc import Mapping

from hloopt.analysis.reduction import reduction_dims
from hloopt.ir import Instruction
from hloopt.kernels.families.reductions import passes_on

__all__ = ["pick_form", "pick_kind", "spread_kind"]


def spread_kind(broadcast: Instruction, kind: str, minor: int) -> str:
    """The kind of a broadcast of a ``row`` or ``full`` value; empty where it needs other rows or places."""
    source, shape = broadcast.operands[0].array, broadcast.array
    where = [
        dimension
        for dimension, size in zip(
            broadcast.attributes.get("dimensions", ()), source.dims, strict=True
        )
        if size > 1
    ]
    wide = [dimension for dimension, size in enumerate(shape.dims) if size > 1]
    if where != wide[: len(where)]:
        return ""
    if shape.elements == source.elements:
        return kind
    spread = shape.elements == source.elements * minor
    return "full" if kind == "row" and spread else ""


def pick_form(topk: Instruction) -> tuple[int, int, int] | None:
    """Rows, elements of each and how many of them a ``topk`` leaves; None where no kernel over rows has it."""
    source = topk.operands[0].array
    count, minor = topk.attributes["k"], source.dims[-1]
    is_ordered = source.dtype.is_integer or source.dtype.name in _ORDERED_FLOATS
    if (
        not source.elements
        or not 0 < count < minor
        or not is_ordered
        or not 8 <= source.dtype.bits <= 32
    ):
        return None
    return source.elements // minor, minor, count


_ORDERED_FLOATS = ("f16", "bf16", "f32")
"""Whose total order is that of integers of their width."""


def pick_kind(inner: Instruction, kinds: Mapping[Instruction, str], rows: int, count: int) -> str:
    """``pick`` or ``after``: computed from ``count`` values of the row; empty where it needs other rows."""
    if inner.opcode == "get-tuple-element":
        return kinds[inner.operands[0]]
    if inner.opcode == "broadcast":
        kind = kinds[inner.operands[0]]
        spread = spread_kind(inner, "row" if kind == "after" else kind, count)
        return {"full": "pick", "row": "after"}.get(spread, spread)
    if inner.opcode == "reduce" and not any(part in kinds for part in inner.fold_inits):
        form = reduction_dims(inner)
        if form is not None and form.is_row and form.dims == (1, rows, count):
            inputs = {kinds.get(part, "pick") for part in inner.fold_inputs}
            return "after" if inputs == {"pick"} else ""
    passed = set(passes_on(inner))
    found = {kinds[part] for part in inner.operands if part in kinds}
    if len(found) != 1 or any(part in kinds and part not in passed for part in inner.operands):
        return ""
    return found.pop()
