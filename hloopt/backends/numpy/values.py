"""Between values of shapes and flat arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from hloopt.types import Shape, TupleShape

__all__ = ["Slots", "leaf_slots", "pack", "unpack"]

Slots: TypeAlias = "int | tuple[Slots, ...]"
"""The slots of a value, in the structure of its shape."""


def leaf_slots(slots: Slots) -> list[int]:
    """The slots of a value, depth first."""
    if isinstance(slots, int):
        return [slots]
    return [leaf for element in slots for leaf in leaf_slots(element)]


def pack(shapes: Sequence[Shape]) -> Callable[..., tuple[Any, ...]]:
    """A function from flat arrays to a tuple of values of ``shapes``."""

    def build(shape: Shape, arrays: Any) -> Any:
        if isinstance(shape, TupleShape):
            return tuple(build(element, arrays) for element in shape.elements)
        return next(arrays)

    def packed(*arrays: Any) -> tuple[Any, ...]:
        rest = iter(arrays)
        return tuple(build(shape, rest) for shape in shapes)

    return packed


def unpack(value: Any) -> tuple[Any, ...]:
    """The arrays of a value, depth first."""
    if isinstance(value, tuple):
        return tuple(leaf for element in value for leaf in unpack(element))
    return (value,)
