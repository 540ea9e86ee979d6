"""Comparisons of positions: what they count, and where they are true."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from hloopt.analysis.matrix_properties.properties import (
    NOTHING,
    Band,
    CountedIndices,
    HotIndex,
    MatrixProperties,
    whole_band,
)
from hloopt.ir import Instruction
from hloopt.ops.traits import INVERSE, MIRRORED
from hloopt.types import Dims

__all__ = ["affine_of", "compared", "fits"]

_MOST_VIEWS: Final = 8
_EMPTY: Final[Band] = (1, 0)
_HOLDS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}


def fits(affine: CountedIndices, dims: Dims, value: Instruction) -> bool:
    """Whether no element would wrap around in the type of a value."""
    dtype = value.array.dtype
    if not dtype.is_integer:
        return False
    ends = [by * (dims[dim] - 1) for dim, by in affine.factors.items() if dims[dim]]
    low = affine.offset + sum(end for end in ends if end < 0)
    high = affine.offset + sum(end for end in ends if end > 0)
    least, greatest = dtype.limits
    return least <= low and high <= greatest


def affine_of(
    value: Instruction, operands: tuple[CountedIndices | None, ...], splat: int | None
) -> CountedIndices | None:
    """What arithmetic makes of what its operands count; ``splat`` is the number that all elements are."""
    if splat is not None:
        found: CountedIndices | None = CountedIndices(splat, {})
    elif value.opcode == "iota":
        found = CountedIndices(0, {value.iota_dimension: 1})
    elif any(operand is None for operand in operands):
        return None
    else:
        found = _arithmetic(value.opcode, [one for one in operands if one is not None])
    return found if found is not None and fits(found, value.array.dims, value) else None


def _arithmetic(opcode: str, operands: list[CountedIndices]) -> CountedIndices | None:
    if opcode in ("convert", "copy"):
        return operands[0]
    if opcode == "negate":
        return _combined(CountedIndices(0, {}), operands[0], -1)
    if opcode in ("add", "subtract"):
        one, other = operands
        return _combined(one, other, 1 if opcode == "add" else -1)
    if opcode == "multiply":
        for one, other in (operands, operands[::-1]):
            if not one.factors:
                return _combined(CountedIndices(0, {}), other, one.offset)
    return None


def _combined(one: CountedIndices, other: CountedIndices, times: int) -> CountedIndices:
    dims = one.factors.keys() | other.factors.keys()
    total = {
        dim: one.factors.get(dim, 0) + times * other.factors.get(dim, 0) for dim in sorted(dims)
    }
    offset = one.offset + times * other.offset
    return CountedIndices(offset, {dim: by for dim, by in total.items() if by})


def compared(
    compare: Instruction, left: MatrixProperties, right: MatrixProperties
) -> MatrixProperties:
    """Where a comparison is true; one-hot along a dimension whose position it finds equal to one number."""
    dims, direction = compare.array.dims, compare.direction
    found = NOTHING
    if left.affine is not None and right.affine is not None:
        difference = _combined(left.affine, right.affine, -1)
        found = _decided(difference, direction, dims)
    if direction != "EQ":
        return found
    hot: dict[int, HotIndex | None] = {}
    sides = zip((left, right), (right, left), compare.operands[::-1], strict=True)
    for counted, other, value in sides:
        affine = counted.affine
        if affine is None or len(affine.factors) != 1:
            continue
        ((dim, by),) = affine.factors.items()
        if by == 1 and dim in other.constant:
            hot[dim] = _index(value, -affine.offset)
    return replace(found, hot=hot)


def _index(value: Instruction, offset: int) -> HotIndex:
    """The index that a comparison spreads."""
    places: list[int | None] = list(range(value.array.rank))
    for _ in range(_MOST_VIEWS):
        if value.opcode == "broadcast":
            places = [places[dim] for dim in value.dimensions]
        elif value.opcode == "reshape" and value.array.elements:
            kept = [place for place, size in zip(places, value.array.dims, strict=True) if size > 1]
            sizes = [size for size in value.array.dims if size > 1]
            before = value.operands[0].array.dims
            if sizes != [size for size in before if size > 1]:
                break
            left = iter(kept)
            places = [next(left) if size > 1 else None for size in before]
        else:
            break
        value = value.operands[0]
    return HotIndex(value, tuple(places), offset)


def _decided(difference: CountedIndices, direction: str, dims: Dims) -> MatrixProperties:
    """Where ``difference DIRECTION 0``, by diagonals, or by the indices of one dimension."""
    factors = list(difference.factors.items())
    if len(factors) == 1:
        ((dim, by),) = factors
        low, high = _solutions(by, difference.offset, direction, (0, dims[dim] - 1))
        box = tuple(
            (max(low, 0), min(high + 1, size)) if place == dim else (0, size)
            for place, size in enumerate(dims)
        )
        return MatrixProperties(boxes=(box,))
    if len(factors) != 2 or factors[0][1] != -factors[1][1]:
        return NOTHING
    # By the diagonal x = q - p: offset + by * p - by * q = offset - by * x.
    (p, by), (q, _) = factors
    offset, whole = difference.offset, whole_band(dims, (p, q))
    is_even = direction in ("EQ", "NE") and offset == 0 and dims[p] == dims[q]
    is_unit = _HOLDS[direction](offset, 0)
    return MatrixProperties(
        bands={(p, q): _solutions(-by, offset, direction, whole)},
        true_bands={(p, q): _solutions(-by, offset, INVERSE[direction], whole)},
        units=frozenset({(p, q)} if is_unit else ()),
        symmetric={(p, q): True} if is_even else {},
    )


def _solutions(by: int, offset: int, direction: str, whole: Band) -> Band:
    """The least and the greatest x of ``whole`` with ``by * x + offset DIRECTION 0``; those of NE are all."""
    if by < 0:
        by, offset, direction = -by, -offset, MIRRORED[direction]
    low, high = whole
    below = -offset // by
    above = -(offset // by)
    if direction == "EQ":
        return (below, below) if below == above else _EMPTY
    if direction in ("GT", "GE"):
        return max(low, below + 1 if direction == "GT" else above), high
    if direction in ("LT", "LE"):
        return low, min(high, above - 1 if direction == "LT" else below)
    return whole
