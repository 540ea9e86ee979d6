"""Products and sums: what they make of the properties of matrices."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod
from typing import Final

from hloopt.analysis.matrix_properties.moves import Lookup, view_of
from hloopt.analysis.matrix_properties.properties import (
    NOTHING,
    Band,
    Box,
    DimPair,
    MatrixProperties,
    box_of,
)
from hloopt.analysis.matrix_properties.zeros import EMPTY, band_of, intersection, pairs_of
from hloopt.analysis.values import Values
from hloopt.ir import Instruction
from hloopt.types import Dims, DotDims

__all__ = ["dotted", "summed"]

_MOST_PAIRED: Final = 64


def dotted(value: Instruction, of: Lookup, values: Values) -> MatrixProperties:
    """Of a product: where no two factors meet, it is zero."""
    if len(value.operands) != 2 or any("sparsity" in name for name in value.attributes):
        return NOTHING
    dims = DotDims.of(value.attributes)
    sides = tuple(of(operand) for operand in value.operands)
    says = [side.bands or side.boxes is not None for side in sides]
    meets = all(
        values.of(near).is_finite
        for near, other in zip(value.operands, says[::-1], strict=True)
        if other
    )
    is_exact = value.array.dtype.is_integer and all(
        operand.array.dtype.is_integer for operand in value.operands
    )
    is_clean = all(side.is_clean for side in sides) and (
        is_exact or (meets and "algorithm" not in value.attributes)
    )
    lhs, rhs = value.operands
    places = dims.places(lhs.array.rank, rhs.array.rank)
    found = MatrixProperties(is_clean=is_clean, ranks=_product_ranks(value, sides, dims, places))
    if any(side is not NOTHING for side in sides):
        bands = _kept_bands(value, sides, places) | _product_bands(value, sides, dims, places)
        found = replace(
            found,
            bands=bands,
            boxes=_product_boxes(value, sides, dims, places),
            orthonormal=_product_of_orthonormal(value, sides, dims),
        )
    pair = _mirrored(value, dims) or _congruent(value, of, dims)
    if pair is None:
        return found
    p, q, definite = pair
    return replace(
        found,
        symmetric={(p, q): False},
        definite={(p, q): definite} if definite is not None and value.array.dtype.is_float else {},
    )


def _kept_bands(
    value: Instruction, sides: tuple[MatrixProperties, ...], places: tuple[dict[int, int], ...]
) -> dict[DimPair, Band]:
    """Pairs of one operand that both come back."""
    moved = [side.moved(place, value.array.dims) for side, place in zip(sides, places, strict=True)]
    return {
        pair: intersection(band_of(one, pair, value.array.dims) for one in moved)
        for pair in pairs_of(*moved)
    }


def _product_bands(
    value: Instruction,
    sides: tuple[MatrixProperties, ...],
    dims: DotDims,
    places: tuple[dict[int, int], ...],
) -> dict[DimPair, Band]:
    """Diagonals of A by diagonals of B: k - i of the one and j - k of the other add up to j - i."""
    left, right = sides
    lhs, rhs = (operand.array.dims for operand in value.operands)
    found: dict[DimPair, Band] = {}
    if not left.bands and not right.bands:
        return found
    for i, j in product(dims.lhs_free(len(lhs)), dims.rhs_free(len(rhs))):
        pair = places[0][i], places[1][j]
        bands = []
        for k, m in zip(dims.lhs_contracting, dims.rhs_contracting, strict=True):
            one, other = _oriented(left, i, k, lhs), _oriented(right, m, j, rhs)
            both = one[0] <= one[1] and other[0] <= other[1]
            bands.append((one[0] + other[0], one[1] + other[1]) if both else EMPTY)
        if bands:
            found[pair] = intersection(bands)
    return found


def _oriented(side: MatrixProperties, row: int, column: int, dims: Dims) -> Band:
    """The band of rows and columns in any order."""
    low, high = band_of(side, (min(row, column), max(row, column)), dims)
    return (low, high) if row < column or low > high else (-high, -low)


def _product_boxes(
    value: Instruction,
    sides: tuple[MatrixProperties, ...],
    dims: DotDims,
    places: tuple[dict[int, int], ...],
) -> tuple[Box, ...] | None:
    """The blocks that blocks of both sides make, which meet in the contracted dimensions."""
    if sides[0].boxes is None and sides[1].boxes is None:
        return None
    boxes = [
        side.boxes if side.boxes is not None else (box_of(operand.array.dims),)
        for side, operand in zip(sides, value.operands, strict=True)
    ]
    if len(boxes[0]) * len(boxes[1]) > _MOST_PAIRED:
        return None
    shared = [
        *zip(dims.lhs_contracting, dims.rhs_contracting, strict=True),
        *zip(dims.lhs_batch, dims.rhs_batch, strict=True),
    ]
    found: list[Box] = []
    for one, other in product(*boxes):
        if any(_is_apart(one[k], other[m]) for k, m in shared):
            continue
        box = list(box_of(value.array.dims))
        for own, place in ((one, places[0]), (other, places[1])):
            for dim, at in place.items():
                box[at] = (max(box[at][0], own[dim][0]), min(box[at][1], own[dim][1]))
        found.append(tuple(box))
    return tuple(found)


def _is_apart(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return max(one[0], other[0]) >= min(one[1], other[1])


def _product_ranks(
    value: Instruction,
    sides: tuple[MatrixProperties, ...],
    dims: DotDims,
    places: tuple[dict[int, int], ...],
) -> dict[DimPair, int]:
    """No more than that of a factor, or than what is contracted; of one free dimension a side."""
    lhs, rhs = (operand.array.dims for operand in value.operands)
    left, right = dims.lhs_free(len(lhs)), dims.rhs_free(len(rhs))
    if len(left) != 1 or len(right) != 1:
        return {}
    limits = [prod(lhs[k] for k in dims.lhs_contracting)]
    if len(dims.lhs_contracting) == 1:
        limits += [
            rank
            for side, own, other in (
                (sides[0], left[0], dims.lhs_contracting[0]),
                (sides[1], right[0], dims.rhs_contracting[0]),
            )
            if (rank := side.rank(own, other)) is not None
        ]
    return {(places[0][left[0]], places[1][right[0]]): min(limits)}


def _product_of_orthonormal(
    value: Instruction, sides: tuple[MatrixProperties, ...], dims: DotDims
) -> frozenset[DimPair]:
    """Columns of A B, where those of both are orthonormal; two matrices without a batch."""
    if any(operand.array.rank != 2 for operand in value.operands) or dims.lhs_batch:
        return frozenset()
    if len(dims.lhs_contracting) != 1:
        return frozenset()
    (k,), (m,) = dims.lhs_contracting, dims.rhs_contracting
    found: set[DimPair] = set()
    if (1 - k, k) in sides[0].orthonormal and (m, 1 - m) in sides[1].orthonormal:
        found.add((0, 1))
    if (k, 1 - k) in sides[0].orthonormal and (1 - m, m) in sides[1].orthonormal:
        found.add((1, 0))
    return frozenset(found)


def _mirrored(value: Instruction, dims: DotDims) -> tuple[int, int, bool | None] | None:
    """The pair that a product of something with its own transpose can exchange: it is semidefinite."""
    lhs, rhs = value.operands
    (source, order), (root, others) = view_of(lhs), view_of(rhs)
    left, right = dims.lhs_free(lhs.array.rank), dims.rhs_free(rhs.array.rank)
    if source is not root or len(left) != 1 or order[left[0]] != others[right[0]]:
        return None
    shared = zip(
        (*dims.lhs_batch, *dims.lhs_contracting),
        (*dims.rhs_batch, *dims.rhs_contracting),
        strict=True,
    )
    if any(order[one] != others[other] for one, other in shared):
        return None
    rank = value.array.rank
    return rank - 2, rank - 1, False


def _congruent(
    value: Instruction, of: Lookup, dims: DotDims
) -> tuple[int, int, bool | None] | None:
    """``X S X'`` of matrices is symmetric as S is, and semidefinite as S is."""
    if not _is_of_matrices(value) or len(dims.lhs_contracting) != 1:
        return None
    (k,), (m,) = dims.lhs_contracting, dims.rhs_contracting
    lhs, rhs = value.operands
    for inner, free, outer, turned in ((lhs, 1 - k, rhs, 1 - m), (rhs, 1 - m, lhs, 1 - k)):
        source, order = view_of(inner)
        if source.opcode != "dot" or not _is_of_matrices(source):
            continue
        within = DotDims.of(source.attributes)
        if len(within.lhs_contracting) != 1:
            continue
        # Which operand of the inner product has the index that comes back, and which is in the middle.
        at = order[free]
        if at is None:
            continue
        contracted = (within.lhs_contracting[0], within.rhs_contracting[0])[at]
        edge, middle = source.operands[at], source.operands[1 - at]
        (one, own), (other, its) = view_of(edge), view_of(outer)
        if one is not other or own != (its if contracted == 1 - turned else its[::-1]):
            continue
        claims = of(middle)
        if claims.is_symmetric(0, 1):
            definite = False if (0, 1) in claims.definite else None
            return 0, 1, definite
    return None


def _is_of_matrices(dot: Instruction) -> bool:
    return all(one.array.rank == 2 for one in (dot, *dot.operands[:2]))


def summed(value: Instruction, of: Lookup) -> MatrixProperties:
    """A sum over other dimensions from zero; the caller has looked at what is summed, and how."""
    source, gone = of(value.operands[0]), set(value.dimensions)
    kept = [dim for dim in range(value.operands[0].array.rank) if dim not in gone]
    moved = source.moved({dim: at for at, dim in enumerate(kept)}, value.array.dims)
    return MatrixProperties(
        bands=moved.bands,
        boxes=moved.boxes,
        is_clean=moved.is_clean,
        symmetric=dict.fromkeys(moved.symmetric, False),
        definite=moved.definite,
    )
