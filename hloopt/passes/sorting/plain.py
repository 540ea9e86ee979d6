"""Comparators that compare one operand, as it is."""

from __future__ import annotations

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction

__all__ = ["PlainOrder", "plain_order", "sorted_dim"]


@dataclass(frozen=True, slots=True)
class PlainOrder:
    """``compare(a, b)`` of the elements of operand ``operand``.

    decides   whether elements that compare equal have the same bits: integers, and floats in total order
    """

    operand: int
    descending: bool
    decides: bool


def plain_order(comparator: Computation) -> PlainOrder | None:
    """What a comparator compares that is a single ``<`` or ``>``, else None."""
    root = comparator.root
    direction = root.attributes.get("direction")
    if root.opcode != "compare" or direction not in ("LT", "GT"):
        return None
    left, right = root.operands
    if left.opcode != "parameter" or right.opcode != "parameter":
        return None
    first, second = left.parameter_number, right.parameter_number
    if first // 2 != second // 2 or first == second:
        return None
    dtype = left.array.dtype
    total = root.attributes.get("type") == "TOTALORDER"
    decides = dtype.is_integer or dtype.is_pred or (dtype.is_float and total)
    return PlainOrder(first // 2, (direction == "GT") == (first < second), decides)


def sorted_dim(sort: Instruction) -> int:
    """The dimension along which a sort orders."""
    dimension: int = sort.dimensions[0]
    return dimension
