"""What a value of the module has become: a descending array, and which of its dimensions is which.

An *order* lists the logical dimensions from the slowest to the fastest.  A value ``x`` in order ``(1, 0)`` is
kept as the descending array ``transpose(x), dimensions={1,0}``: the very bytes that ``x`` has in layout
``{0,1}``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from hloopt.analysis.layout import major_to_minor
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, BufferShape, Layout, Shape, TupleShape, descending

__all__ = [
    "Orders",
    "Parts",
    "Raw",
    "Value",
    "Whole",
    "descends",
    "orders_of",
    "physical",
    "plain_orders",
]

Orders: TypeAlias = "tuple[int, ...] | tuple[Orders, ...]"


@dataclass(frozen=True, slots=True)
class Whole:
    """One instruction with descending layouts; ``orders`` has an order for each leaf."""

    instruction: Instruction
    orders: Orders


@dataclass(frozen=True, slots=True)
class Raw:
    """An instruction whose layouts are fixed from outside: a parameter of ENTRY, a custom call ..."""

    instruction: Instruction


@dataclass(frozen=True, slots=True)
class Parts:
    """A tuple that no instruction makes."""

    elements: tuple[Value, ...]


Value: TypeAlias = "Whole | Raw | Parts"


def orders_of(shape: Shape) -> Orders:
    """The order of each leaf by its layout."""
    if isinstance(shape, TupleShape):
        return tuple(orders_of(element) for element in shape.elements)
    if not isinstance(shape, ArrayShape):
        return ()
    return major_to_minor(shape) if shape.rank else ()


def plain_orders(shape: Shape) -> Orders:
    """The order of each leaf if all were descending."""
    if isinstance(shape, TupleShape):
        return tuple(plain_orders(element) for element in shape.elements)
    return tuple(range(shape.rank)) if isinstance(shape, ArrayShape) else ()


def descends(shape: Shape) -> bool:
    """Whether the layouts of all leaves are descending."""
    if isinstance(shape, TupleShape):
        return all(map(descends, shape.elements))
    if isinstance(shape, BufferShape):
        return descends(shape.element)
    return shape.layout is None or shape.layout.is_descending


def physical(shape: Shape, orders: Orders) -> Shape:
    """The descending shape that keeps a value of ``shape`` in these orders.

    Tiles, memory spaces and element sizes are about the order in memory and stay as they are.
    """
    if isinstance(shape, TupleShape):
        return TupleShape(
            tuple(
                physical(element, inner)  # type: ignore[arg-type]
                for element, inner in zip(shape.elements, orders, strict=True)
            )
        )
    if isinstance(shape, BufferShape) or (shape.layout is None and orders == plain_orders(shape)):
        return shape
    order: tuple[int, ...] = orders  # type: ignore[assignment]
    marks = tuple(shape.dynamic[dimension] for dimension in order) if shape.dynamic else ()
    layout = shape.layout if shape.layout is not None else descending(shape.rank)
    return ArrayShape(
        shape.dtype,
        tuple(shape.dims[dimension] for dimension in order),
        _descending(layout),
        marks,
    )


def _descending(layout: Layout) -> Layout:
    if layout.is_descending:
        return layout
    return replace(layout, minor_to_major=descending(len(layout.minor_to_major)).minor_to_major)
