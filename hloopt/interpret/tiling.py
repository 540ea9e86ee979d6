"""Tiled layouts: which element of an array lies where in its buffer.

A tile ``T(8,128)`` divides the most minor physical dimensions: each is padded to a multiple of the tile's size,
the tiles follow each other in the order of the layout, and the elements of one tile are together.  A further
tile divides the dimensions that the first one has made (``T(8,128)(2,1)``).  From XLA's "Tiled layout" page; a
``*`` joins a dimension with the next more minor one before the tile is applied.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

import numpy as np

from hloopt.types import Array, ArrayShape, descending

__all__ = ["elements_in_memory", "is_tiled", "order", "taken_elements", "tiles_of"]

_TILES = re.compile(r"T((?:\([0-9,*]*\))+)")
_TILE = re.compile(r"\(([0-9,*]*)\)")
_JOINED = "*"


def is_tiled(shape: ArrayShape) -> bool:
    """Whether a layout has tiles."""
    return shape.layout is not None and _TILES.search(shape.layout.suffix) is not None


def tiles_of(shape: ArrayShape) -> tuple[tuple[int | str, ...], ...]:
    """The tiles of a layout, each with its sizes from major to minor; ``*`` is kept.

    Raises ``ValueError`` for a tile without elements, and where ``*`` is last: nothing is there to join.
    """
    found = _TILES.search(shape.layout.suffix) if shape.layout is not None else None
    if found is None:
        return ()
    tiles = tuple(
        tuple(size if size == _JOINED else int(size) for size in tile.split(",") if size)
        for tile in _TILE.findall(found[1])
    )
    for tile in tiles:
        if 0 in tile or tile[-1:] == (_JOINED,):
            raise ValueError(f"({','.join(map(str, tile))}) is not a tile")
    return tiles


def elements_in_memory(shape: ArrayShape) -> Array:
    """The row-major number of the element at each place of the buffer, in elements; -1 is padding.

    Where a tile has more dimensions than there are, the array has further ones of size 1 (``s32[]{:T(128)}``).
    """
    numbers = np.arange(prod(shape.dims)).reshape(shape.dims)
    physical = numbers.transpose(order(shape)[::-1])
    for tile in tiles_of(shape):
        physical = _divide(physical, tile)
    return np.ascontiguousarray(physical).reshape(-1)


def taken_elements(source: ArrayShape, target: ArrayShape) -> Array:
    """Which element of ``source`` each element of ``target`` is, both in row-major order, in one buffer.

    Raises ``ValueError`` where an element lies where ``source`` has padding, or nothing at all.
    """
    if source.dims == target.dims and _same_memory(source, target):
        return np.arange(prod(target.dims))
    given, wanted = elements_in_memory(source), elements_in_memory(target)
    places = np.flatnonzero(wanted >= 0)
    if places.size and (places[-1] >= given.size or (given[places] < 0).any()):
        raise ValueError("elements of the result lie in the padding of the operand's tiles")
    taken = np.empty(places.size, np.int64)
    taken[wanted[places]] = given[places]
    return taken


def _same_memory(source: ArrayShape, target: ArrayShape) -> bool:
    return order(source) == order(target) and tiles_of(source) == tiles_of(target)


def order(shape: ArrayShape) -> tuple[int, ...]:
    """Minor to major; a layout that only says how it is tiled (``{:T(128)}``) is of rank 0 or 1."""
    layout = shape.layout or descending(shape.rank)
    if len(layout.minor_to_major) != shape.rank:
        return descending(shape.rank).minor_to_major
    return layout.minor_to_major


def _divide(array: Array, tile: Sequence[int | str]) -> Array:
    """The array with its last dimensions in tiles: first the tiles' dimensions, then those within one."""
    array = array.reshape((1,) * (len(tile) - array.ndim) + array.shape)
    first = array.ndim - len(tile)
    array, sizes = _join(array, tile, first)
    lengths = array.shape[first:]
    padding = [-length % size for length, size in zip(lengths, sizes, strict=True)]
    array = np.pad(array, [(0, 0)] * first + [(0, more) for more in padding], constant_values=-1)
    split = array.shape[:first]
    for length, size in zip(array.shape[first:], sizes, strict=True):
        split += (length // size, size)
    array = array.reshape(split)
    outer, inner = range(first, array.ndim, 2), range(first + 1, array.ndim, 2)
    return array.transpose(*range(first), *outer, *inner)


def _join(array: Array, tile: Sequence[int | str], first: int) -> tuple[Array, list[int]]:
    """Dimensions marked ``*`` made one with the next."""
    dims = list(array.shape[:first])
    sizes: list[int] = []
    waiting = 1
    for length, size in zip(array.shape[first:], tile, strict=True):
        waiting *= length
        if isinstance(size, int):
            dims.append(waiting)
            sizes.append(size)
            waiting = 1
    return array.reshape(dims), sizes
