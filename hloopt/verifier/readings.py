"""Parts of tuple shapes, and outputs aliased with operands, as several constraints read them."""

from __future__ import annotations

from collections.abc import Iterable

from hloopt.ir import Instruction
from hloopt.types import AliasEntry, Shape, TupleShape, record_of

__all__ = ["aliases", "part_of"]


def part_of(shape: Shape, index: Iterable[int]) -> Shape | None:
    """The part of a shape that a tuple index names, or None."""
    for step in index:
        if not isinstance(shape, TupleShape) or not 0 <= step < len(shape.elements):
            return None
        shape = shape.elements[step]
    return shape


def aliases(instruction: Instruction) -> tuple[AliasEntry, ...]:
    """``output_to_operand_aliasing={ {}: (0, {}) }``; empty where there is none."""
    return record_of(instruction.attributes, "output_to_operand_aliasing", tuple) or ()
