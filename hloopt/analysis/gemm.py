"""A dot as matrix products of a BLAS library: dimensions merged, strides, leading dimensions.

A library's product (``gemm``) has matrices of two dimensions each, one of which is contiguous, column by
column, and a batch dimension with any stride.  HLO's dot has any number of dimensions in any order and
layout.  Dimensions that lie one within the other in all arrays that have them are one; of the others one
is the matrix's, one the batch's, and the rest are repeated products.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from hloopt.dataclass import dataclass
from hloopt.types import ArrayShape, DotDims

__all__ = ["Gemm", "Matrix", "gemm_of"]

_LIMIT = 1 << 31  # the libraries count in signed integers of 32 bits
_MOST_CALLS = 64


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix column by column: elements from one column to the next, or one row where ``transposed``.

    ``batch`` is the distance from one matrix of the batch to the next in elements, 0 where it is the same.
    """

    leading: int
    transposed: bool
    batch: int


@dataclass(frozen=True, slots=True)
class Gemm:
    """``rows`` x ``columns`` products over ``depth``, ``batch`` of them a call, a call for each of ``offsets``.

    left, right, out  the factors and the product, column by column
    swapped           the left factor is the dot's right operand: the dot's result lies row by row
    offsets           where left, right and out of each call begin, in elements
    """

    rows: int
    columns: int
    depth: int
    batch: int
    left: Matrix
    right: Matrix
    out: Matrix
    swapped: bool
    offsets: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class _Dim:
    """A dimension with its strides in lhs, rhs and result; 0 where an array does not have it."""

    size: int
    strides: tuple[int, int, int]


_ONE = _Dim(1, (0, 0, 0))


def gemm_of(lhs: ArrayShape, rhs: ArrayShape, out: ArrayShape, dims: DotDims) -> Gemm | str:
    """The products that make a dot of these shapes, or in words why there are none.

    The result has the batch dimensions, the rest of lhs, then the rest of rhs, as HLO says.  No dimension may
    be empty.
    """
    batch, rows, columns, depth = map(_merged, _groups(lhs, rhs, out, dims))
    if len(depth) > 1:
        return f"the {len(depth)} contracted dimensions do not lie one within the other"
    inner = depth[0] if depth else _ONE
    found = []
    for row, column in product(rows or [_ONE], columns or [_ONE]):
        repeated = [dim for dim in (*batch, *rows, *columns) if dim not in (row, column)]
        found += [_gemm(row, column, inner, repeated, swapped) for swapped in (True, False)]
    possible = [gemm for gemm in found if isinstance(gemm, Gemm)]
    if not possible:
        return min(gemm for gemm in found if isinstance(gemm, str))
    best = max(possible, key=lambda gemm: gemm.rows * gemm.columns * gemm.batch)
    sizes = (best.rows, best.columns, best.depth, best.batch)
    if max(*sizes, best.left.leading, best.right.leading, best.out.leading) >= _LIMIT:
        return "a dimension has 2^31 elements or more"
    return best


def _strides(shape: ArrayShape) -> list[int]:
    order = shape.layout.minor_to_major if shape.layout else tuple(reversed(range(shape.rank)))
    strides, step = [0] * shape.rank, 1
    for dim in order:
        strides[dim] = step
        step *= shape.dims[dim]
    return strides


def _groups(
    lhs: ArrayShape, rhs: ArrayShape, out: ArrayShape, dims: DotDims
) -> tuple[list[_Dim], list[_Dim], list[_Dim], list[_Dim]]:
    """Batch, rows (the rest of lhs), columns (the rest of rhs) and depth (contracted)."""
    left, right, result = map(_strides, (lhs, rhs, out))
    places = iter(range(out.rank))
    batch = [
        _Dim(lhs.dims[a], (left[a], right[b], result[next(places)]))
        for a, b in zip(dims.lhs_batch, dims.rhs_batch, strict=True)
    ]
    taken = {*dims.lhs_batch, *dims.lhs_contracting}
    rows = [
        _Dim(size, (left[a], 0, result[next(places)]))
        for a, size in enumerate(lhs.dims)
        if a not in taken
    ]
    taken = {*dims.rhs_batch, *dims.rhs_contracting}
    columns = [
        _Dim(size, (0, right[b], result[next(places)]))
        for b, size in enumerate(rhs.dims)
        if b not in taken
    ]
    depth = [
        _Dim(lhs.dims[a], (left[a], right[b], 0))
        for a, b in zip(dims.lhs_contracting, dims.rhs_contracting, strict=True)
    ]
    return batch, rows, columns, depth


def _merged(dims: Sequence[_Dim]) -> list[_Dim]:
    """Dimensions made one where the inner one fills the outer one's step in every array."""
    result: list[_Dim] = []
    for inner in sorted(dims, key=lambda dim: dim.strides, reverse=True):
        if inner.size == 1:
            continue
        outer = result[-1] if result else None
        if outer is not None and all(
            a == b * inner.size for a, b in zip(outer.strides, inner.strides, strict=True)
        ):
            result[-1] = _Dim(outer.size * inner.size, inner.strides)
        else:
            result.append(inner)
    return result


def _gemm(
    row: _Dim, column: _Dim, depth: _Dim, repeated: Sequence[_Dim], swapped: bool
) -> Gemm | str:
    """With the rows of the library's product those of the dot's or, swapped, its columns."""
    lhs, rhs, out = (1, 0, 2) if swapped else (0, 1, 2)
    if swapped:
        row, column = column, row
    by = max(repeated, key=lambda dim: dim.size, default=_ONE)
    left = _matrix(row, depth, lhs, by)
    right = _matrix(depth, column, rhs, by)
    result = _matrix(row, column, out, by)
    if left is None or right is None or result is None or result.transposed:
        return "an operand or the result has no contiguous dimension among those of its matrix"
    others = [dim for dim in repeated if dim is not by]
    calls = prod(dim.size for dim in others)
    if calls > _MOST_CALLS:
        return f"{calls} separate products, at most {_MOST_CALLS}"
    offsets = tuple(
        (_offset(index, others, lhs), _offset(index, others, rhs), _offset(index, others, out))
        for index in product(*(range(dim.size) for dim in others))
    )
    return Gemm(row.size, column.size, depth.size, by.size, left, right, result, swapped, offsets)


def _offset(index: Sequence[int], dims: Sequence[_Dim], which: int) -> int:
    return sum(i * dim.strides[which] for i, dim in zip(index, dims, strict=True))


def _matrix(rows: _Dim, columns: _Dim, which: int, batch: _Dim) -> Matrix | None:
    """An array's matrix of two of its dimensions; of a dimension of one element any step will do."""
    down = rows.strides[which] if rows.size > 1 else 0
    across = columns.strides[which] if columns.size > 1 else 0
    step = batch.strides[which] if batch.size > 1 else 0
    if down in (0, 1):
        return Matrix(across or rows.size, False, step)
    if across in (0, 1):
        return Matrix(down or columns.size, True, step)
    return None
