"""Constants, looked at once."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Final

import numpy as np

from hloopt.analysis.matrix_properties.properties import (
    NOTHING,
    Band,
    Box,
    DimPair,
    HotIndex,
    MatrixProperties,
)
from hloopt.types import Array

__all__ = ["MOST_ELEMENTS", "of_constant"]

MOST_ELEMENTS: Final = 1 << 20
_MOST_DIMS: Final = 6
_EMPTY: Final[Band] = (1, 0)
_LEAST_BLOCK: Final = 8
"""Rows of a block that is worth a product of its own."""


def of_constant(values: Array) -> MatrixProperties:
    """What the elements of a constant show; nothing of larger ones, and of those of many dimensions."""
    rank = values.ndim
    if not values.size or values.size > MOST_ELEMENTS or rank > _MOST_DIMS:
        return NOTHING
    constant = frozenset(dim for dim in range(rank) if _is_constant(np.moveaxis(values, dim, 0)))
    is_zero = values == 0
    if values.dtype.kind not in "biu" and bool(np.isnan(values).all()):
        # Whatever is zero or NaN.
        return MatrixProperties(boxes=(), is_clean=False, constant=constant)
    if not is_zero.any():
        return MatrixProperties(constant=constant, symmetric=_symmetric(values))
    if is_zero.all():
        return MatrixProperties(boxes=(), constant=constant, symmetric=_symmetric(values))
    places = np.nonzero(~is_zero)
    bands = {pair: _band(places, pair) for pair in combinations(range(rank), 2)}
    units = {pair for pair in bands if _has_ones(values, pair)}
    definite = {
        pair: bool(least > 0)
        for pair, band in bands.items()
        if band == (0, 0) and (least := _least_diagonal(values, pair)) is not None and least >= 0
    }
    hot: dict[int, HotIndex | None] = {}
    if bool((is_zero | (values == 1)).all()):
        hot = {dim: None for dim in range(rank) if (~is_zero).sum(axis=dim).max(initial=0) <= 1}
    return MatrixProperties(
        bands=bands,
        boxes=_boxes(places, values.shape),
        constant=constant,
        hot=hot,
        units=frozenset(units),
        symmetric=_symmetric(values),
        definite=definite,
    )


def _is_constant(values: Array) -> bool:
    """Whether all along the first dimension is the same; NaN is not, and zeros of both signs are not."""
    first = values[:1]
    with np.errstate(invalid="ignore"):
        same = bool((values == first).all())
    return same and bool((np.signbit(_real(values)) == np.signbit(_real(first))).all())


def _real(values: Array) -> Array:
    """Something with a sign."""
    if values.dtype == np.bool_:
        return values.astype(np.int8)
    if values.dtype.kind in "biu":
        return values
    return values.astype(np.float64) if values.dtype.kind != "c" else values.real


def _symmetric(values: Array) -> dict[DimPair, bool]:
    """Pairs that can be exchanged; bits are compared, so that 0 and -0 differ."""
    data = np.ascontiguousarray(values)
    words = data.view(np.uint8).reshape(*values.shape, data.itemsize)
    return {
        (p, q): True
        for p, q in combinations(range(values.ndim), 2)
        if values.shape[p] == values.shape[q] > 1 and np.array_equal(words, words.swapaxes(p, q))
    }


def _band(places: tuple[Array, ...], pair: DimPair) -> Band:
    apart = places[pair[1]] - places[pair[0]]
    return (int(apart.min()), int(apart.max())) if apart.size else _EMPTY


def _diagonal(values: Array, pair: DimPair) -> Array:
    return np.diagonal(values, axis1=pair[0], axis2=pair[1])


def _has_ones(values: Array, pair: DimPair) -> bool:
    return bool((_diagonal(values, pair) == 1).all())


def _least_diagonal(values: Array, pair: DimPair) -> float | None:
    """The least element on the diagonal of square matrices; None of those without an order, and with NaN."""
    if values.dtype.kind == "c" or values.shape[pair[0]] != values.shape[pair[1]]:
        return None
    found = _diagonal(values, pair).astype(np.float64)
    return None if np.isnan(found).any() else float(found.min())


def _boxes(places: tuple[Array, ...], dims: tuple[int, ...]) -> tuple[Box, ...]:
    """The blocks on the diagonal of a matrix, as small as they can be; else the box around all."""
    if not places[0].size:
        return ()
    if len(dims) != 2:
        return (tuple((int(own.min()), int(own.max()) + 1) for own in places),)
    rows, columns = places
    # The last column that rows up to this one reach, and the first of those behind.
    reach = np.full(dims[0], -1)
    np.maximum.at(reach, rows, columns)
    start = np.full(dims[0], dims[1])
    np.minimum.at(start, rows, columns)
    before = np.maximum.accumulate(reach)
    behind = np.minimum.accumulate(start[::-1])[::-1]
    cuts = [0, *(np.nonzero(before[:-1] < behind[1:])[0] + 1).tolist(), dims[0]]
    found: list[Box] = []
    for begin, end in pairwise(cuts):
        low, high = int(start[begin:end].min()), int(reach[begin:end].max()) + 1
        if low < high:
            found.append(((begin, end), (low, high)))
    if len(found) > 1 and any(end - begin < _LEAST_BLOCK for (begin, end), _ in found):
        return (tuple((int(own.min()), int(own.max()) + 1) for own in places),)
    return tuple(found)
