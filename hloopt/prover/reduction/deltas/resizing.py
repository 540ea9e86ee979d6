"""Attributes that speak of sizes, for operands and results of other sizes than they were written for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np

from hloopt.errors import ShapeError
from hloopt.ir import Instruction
from hloopt.ops.traits import op_table
from hloopt.types import ArrayShape, Literal, Shape, SliceRange

__all__ = ["resized_attributes"]

_Rule: TypeAlias = Callable[[Instruction, ArrayShape, ArrayShape], dict[str, Any]]


def resized_attributes(one: Instruction, before: Shape, wanted: Shape) -> dict[str, Any]:
    """The attributes that change where the operands have new shapes and the result is to be ``wanted``.

    ``before`` is the result's shape so far.  Raises ``ShapeError`` where the op cannot have these sizes.
    """
    rule = _RULES.get(one.opcode)
    if rule is None or not isinstance(before, ArrayShape) or not isinstance(wanted, ArrayShape):
        return {}
    return rule(one, before, wanted)


def _slice(one: Instruction, before: ArrayShape, wanted: ArrayShape) -> dict[str, Any]:
    """As many elements as wanted, from the same start, or from an earlier one where there is no room."""
    found = []
    ranges: tuple[SliceRange, ...] = one.attributes["slice"]
    for part, size, old, new in zip(
        ranges, one.operands[0].array.dims, before.dims, wanted.dims, strict=True
    ):
        count = min(new, size) if old == part.size else new
        reach = (count - 1) * part.stride + 1 if count else 0
        if reach > size:
            count, reach = 1, 1
        start = min(part.start, max(size - reach, 0))
        found.append(SliceRange(start, start + reach, part.stride))
    return {"slice": tuple(found)}


def _dynamic_slice(one: Instruction, before: ArrayShape, wanted: ArrayShape) -> dict[str, Any]:
    sizes = zip(wanted.dims, one.operands[0].array.dims, strict=True)
    return {"dynamic_slice_sizes": tuple(min(size, room) for size, room in sizes)}


def _gather(one: Instruction, before: ArrayShape, wanted: ArrayShape) -> dict[str, Any]:
    sizes = zip(one.attributes["slice_sizes"], one.operands[0].array.dims, strict=True)
    return {"slice_sizes": tuple(min(size, room) for size, room in sizes)}


def _pad(one: Instruction, before: ArrayShape, wanted: ArrayShape) -> dict[str, Any]:
    """Padding that crops must leave something."""
    padding = list(one.attributes["padding"])
    for number, (part, size) in enumerate(zip(padding, one.operands[0].array.dims, strict=True)):
        if size + part.low + part.high + part.interior * max(size - 1, 0) < 1:
            padding[number] = replace(part, low=max(part.low, 0), high=max(part.high, 0))
    return {"padding": tuple(padding)}


def _constant(one: Instruction, before: ArrayShape, wanted: ArrayShape) -> dict[str, Any]:
    """The first elements."""
    literal = one.literal
    if before == wanted or literal is None:
        return {}
    if literal.array is None:
        raise ShapeError(f"{one.name}: values that the text leaves out cannot be cut")
    array = np.ascontiguousarray(literal.array[tuple(slice(size) for size in wanted.dims)])
    return {"literal": Literal(wanted, array)}


def _reshape(one: Instruction, before: ArrayShape, wanted: ArrayShape) -> dict[str, Any]:
    """No attribute: sizes that do not fit are refused here, with a message that says so."""
    if one.operands[0].array.elements != wanted.elements:
        raise ShapeError(f"{one.name}: {one.operands[0].array} has other elements than {wanted}")
    return {}


_RULES: Final[Mapping[str, _Rule]] = op_table(
    {
        "constant": _constant,
        "slice": _slice,
        "dynamic-slice": _dynamic_slice,
        "gather": _gather,
        "pad": _pad,
        "reshape": _reshape,
    },
    otherwise="no attribute of it speaks of sizes, or inference says what does not fit",
)
