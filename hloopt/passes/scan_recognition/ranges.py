"""Arrays as combinations of ranges of another array.

An array is *described* when each of its elements along one dimension combines, by one op, the elements
``low[k]`` to ``high[k]`` of a source; where ``low[k] == high[k]`` it is ``fill``.  Slices, pads, concatenates
and the op itself keep arrays described, in whatever order a ladder of them is built.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops.traits import ASSOCIATIVE, IDEMPOTENT
from hloopt.rewrite.pattern import splat_literal
from hloopt.rewrite.regions import identity
from hloopt.types import Array, ArrayShape, PaddingDim, SliceRange

__all__ = ["Description", "Descriptions", "describe", "identity"]


Numbers: TypeAlias = Array
Descriptions: TypeAlias = "dict[Instruction, Description | None]"


@dataclass(frozen=True, eq=False)
class Description:
    """What the elements of an array are along ``dim``; ``opcode`` is empty where each is one element.

    ``zeros`` says that floats passed through additions of 0, which turn -0 into 0.
    """

    source: Instruction
    dim: int
    low: Numbers
    high: Numbers
    opcode: str = ""
    fill: Numbers | None = None
    zeros: bool = False

    @property
    def empty(self) -> Numbers:
        """Where an element is ``fill``."""
        found: Numbers = self.low == self.high
        return found


def describe(instruction: Instruction, known: Descriptions, longest: int) -> Description | None:
    """How an instruction combines ranges of another one; ``known`` has those of its operands."""
    shape = instruction.shape
    if (
        not isinstance(shape, ArrayShape)
        or not instruction.is_understood
        or shape.is_dynamic
        or not shape.dims
        or max(shape.dims) > longest
    ):
        return None
    if instruction.opcode == "slice":
        return _slice(instruction, known)
    if instruction.opcode == "pad":
        return _pad(instruction, known)
    if instruction.opcode == "concatenate":
        return _concatenate(instruction, known)
    if instruction.opcode in ASSOCIATIVE:
        return _combine(instruction, known)
    return None


def _itself(instruction: Instruction, dim: int) -> Description:
    places = np.arange(instruction.array.dims[dim])
    return Description(instruction, dim, places, places + 1)


def _along(instruction: Instruction, dim: int, known: Descriptions) -> Description:
    found = known.get(instruction)
    return found if found is not None and found.dim == dim else _itself(instruction, dim)


def _slice(instruction: Instruction, known: Descriptions) -> Description | None:
    operand = instruction.operands[0]
    ranges: tuple[SliceRange, ...] = instruction.attributes["slice"]
    dims = operand.array.dims
    cut = [dim for dim, entry in enumerate(ranges) if entry.size != dims[dim]]
    if not cut:
        return known.get(operand)
    if len(cut) != 1:
        return None
    (dim,) = cut
    inner, entry = _along(operand, dim, known), ranges[dim]
    part = slice(entry.start, entry.limit, entry.stride)
    return replace(inner, low=inner.low[part], high=inner.high[part])


def _pad(instruction: Instruction, known: Descriptions) -> Description | None:
    operand, value = instruction.operands
    padding: tuple[PaddingDim, ...] = instruction.attributes["padding"]
    padded = [dim for dim, entry in enumerate(padding) if entry != PaddingDim(0, 0)]
    fill = value.constant_array
    if len(padded) != 1 or fill is None:
        return None
    (dim,) = padded
    entry = padding[dim]
    inner = _along(operand, dim, known)
    if min(entry.low, entry.high) < 0 or (inner.fill is not None and inner.fill != fill):
        return None
    low = np.zeros(instruction.array.dims[dim], dtype=inner.low.dtype)
    high = low.copy()
    places = entry.low + np.arange(len(inner.low)) * (entry.interior + 1)
    low[places], high[places] = inner.low, inner.high
    return replace(inner, low=low, high=high, fill=fill)


def _concatenate(instruction: Instruction, known: Descriptions) -> Description | None:
    dim = instruction.dimensions[0]
    parts: list[Description | Instruction] = []
    for operand in instruction.operands:
        literal = splat_literal(operand)
        fixed = literal is not None and literal.array is not None
        parts.append(operand if fixed else _along(operand, dim, known))
    described = [part for part in parts if isinstance(part, Description)]
    if not described:
        return None
    first = described[0]
    lows, highs, fill = [], [], None
    for part in parts:
        if isinstance(part, Instruction):
            low = high = np.zeros(part.array.dims[dim], dtype=first.low.dtype)
            literal = splat_literal(part)
            here = None if literal is None else literal.array
        else:
            if part.source is not first.source:
                return None
            low, high, here = part.low, part.high, part.fill
        if fill is not None and here is not None and fill != here:
            return None
        fill = here if fill is None else fill
        lows.append(low)
        highs.append(high)
    opcodes = {part.opcode for part in described} - {""}
    if len(opcodes) > 1:
        return None
    return Description(
        first.source,
        dim,
        np.concatenate(lows),
        np.concatenate(highs),
        opcodes.pop() if opcodes else "",
        fill,
        any(part.zeros for part in described),
    )


def _combine(instruction: Instruction, known: Descriptions) -> Description | None:
    left, right = instruction.operands
    one, other = known.get(left), known.get(right)
    if one is None and other is None:
        return None
    if one is None or (other is not None and other.source is left):
        assert other is not None
        one = _itself(left, other.dim)
    if other is None or one.source is right:
        other = _itself(right, one.dim)
    if one.source is not other.source or one.dim != other.dim:
        return None
    return _put_together(instruction, one, other)


def _put_together(
    instruction: Instruction, one: Description, other: Description
) -> Description | None:
    opcode, dtype = instruction.opcode, instruction.array.dtype
    neutral = identity(opcode, dtype)
    for part in (one, other):
        if part.empty.any() and (part.fill is None or part.fill != neutral):
            return None
    both = ~one.empty & ~other.empty
    opcodes = {one.opcode, other.opcode} - {""}
    if both.any():
        if not opcodes <= {opcode}:
            return None
        touching = (one.high == other.low) | (other.high == one.low)
        if opcode in IDEMPOTENT:
            touching |= (one.low <= other.high) & (other.low <= one.high)
        if not touching[both].all():
            return None
        opcodes = {opcode}
    elif len(opcodes) > 1:
        return None
    low = np.where(
        one.empty, other.low, np.where(other.empty, one.low, np.minimum(one.low, other.low))
    )
    high = np.where(
        one.empty, other.high, np.where(other.empty, one.high, np.maximum(one.high, other.high))
    )
    padded = bool((one.empty | other.empty).any())
    zeros = padded and opcode == "add" and not (dtype.is_integer or dtype.is_pred)
    return Description(
        one.source, one.dim, low, high, opcodes.pop() if opcodes else "",
        neutral if bool((low == high).any()) else None,
        one.zeros or other.zeros or zeros,
    )  # fmt: skip
