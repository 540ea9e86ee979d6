"""Shardings of a loop's state, which may be told element by element: ``{{replicated}, {maximal device=0}}``."""

from __future__ import annotations

from collections.abc import Collection

from hloopt.ir import Instruction, edit
from hloopt.types import Sharding, TupleShape, Verbatim

__all__ = ["by_element", "element_shardings", "keep_shardings"]


def by_element(instruction: Instruction) -> bool:
    """Whether each element of a tuple has a sharding of its own, or may have one."""
    sharding = Sharding.of(instruction.attributes)
    return "sharding" in instruction.attributes if sharding is None else bool(sharding.elements)


def element_shardings(instruction: Instruction) -> tuple[Sharding, ...] | None:
    """The shardings of the elements; None where there is not one for each of them."""
    sharding, shape = Sharding.of(instruction.attributes), instruction.shape
    parts = sharding.elements if sharding is not None else None
    if parts is None or not isinstance(shape, TupleShape) or len(parts) != len(shape.elements):
        return None
    if any(isinstance(element, TupleShape) for element in shape.elements):
        return None
    return parts


def keep_shardings(instruction: Instruction, kept: Collection[int]) -> None:
    """Leave out the shardings of all other elements; to be called while the shape still has them."""
    if by_element(instruction):
        parts = element_shardings(instruction) or ()
        left = tuple(part for index, part in enumerate(parts) if index in kept)
        sharding = Verbatim.of(Sharding(elements=left)) if left else None
        edit.set_attribute(instruction, "sharding", sharding)
