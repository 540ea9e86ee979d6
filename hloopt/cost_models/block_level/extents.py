"""How many indices a tile covers along a dimension, and how far apart: XLA's symbolic tiles.

An index of the form ``offset + stride * i`` with ``i`` from 0 to ``size - 1`` can be tiled.  XLA recognises a
few forms and rejects all others; tiles are arrays here, one number for each tiling that is tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from hloopt.analysis.index import Atom, Index, Quotient, Symbol

__all__ = ["Extent", "Flags", "Numbers", "Sizes", "extent"]

Numbers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Sizes: TypeAlias = Mapping[Symbol, Numbers]


class Extent(NamedTuple):
    """Size and stride of a tile along one dimension for each tiling, and whether the tiling is one there."""

    size: Numbers
    stride: Numbers
    fits: Flags | None = None


class _Summand(NamedTuple):
    """One term of an index: the size and stride of what it runs over.

    ``limit`` is the number of values a symbol can have; None for a quotient or remainder.
    """

    size: Numbers
    stride: int
    fits: Flags | None
    limit: int | None


def extent(index: Index, sizes: Sizes, count: int) -> Extent | None:
    """The extent of an index whose symbols cover ``sizes`` (tiled) or all of their range (every other one).

    ``count`` is the number of tilings.  None for an index for which XLA finds no extent.
    """
    if not index.terms:
        return Extent(np.ones(count, np.int64), np.zeros(count, np.int64))
    summands: list[_Summand] = []
    for atom, factor in index.terms:
        summand = _summand(atom, factor, sizes, count)
        if summand is None:
            return None
        summands.append(summand)
    if len(summands) == 1:
        only = summands[0]
        return Extent(only.size, np.full(count, only.stride, np.int64), only.fits)
    return _together(summands)


def _summand(atom: Atom, factor: int, sizes: Sizes, count: int) -> _Summand | None:
    if isinstance(atom, Symbol):
        limit = atom.high + 1
        size = sizes.get(atom)
        return _Summand(
            np.full(count, limit, np.int64) if size is None else size, factor, None, limit
        )
    inner = _tiled_symbol(atom.dividend, sizes)
    if isinstance(atom, Quotient):
        return None if inner is None else _Summand(-(-inner // atom.divisor), factor, None, None)
    if inner is None:
        inner = _tiled_quotient(atom.dividend, sizes)
        if inner is None:
            return None
    size, fits = _remainder(inner, atom.divisor)
    return _Summand(size, factor, fits, None)


def _tiled_symbol(index: Index, sizes: Sizes) -> Numbers | None:
    """The size of an index that is nothing but a tiled symbol."""
    if index.constant or len(index.terms) != 1:
        return None
    atom, factor = index.terms[0]
    return sizes.get(atom) if isinstance(atom, Symbol) and factor == 1 else None


def _tiled_quotient(index: Index, sizes: Sizes) -> Numbers | None:
    """The number of different values of an index that is nothing but a tiled symbol by a number."""
    if index.constant or len(index.terms) != 1:
        return None
    atom, factor = index.terms[0]
    if not isinstance(atom, Quotient) or factor != 1:
        return None
    inner = _tiled_symbol(atom.dividend, sizes)
    return None if inner is None else -(-inner // atom.divisor)


def _remainder(inner: Numbers, divisor: int) -> tuple[Numbers, Flags]:
    """Of a tile: all of it below the divisor, all remainders above; one must be a multiple of the other."""
    size = inner - (inner - 1) // divisor * divisor
    return size, (divisor % inner == 0) | (inner % divisor == 0)


def _together(summands: list[_Summand]) -> Extent | None:
    """A sum of indices is one where its symbols are the digits of a number.

    From the largest stride to the smallest, sizes must be ones, any one, some whole ones, and ones again.
    """
    digits = sorted(summands, key=lambda summand: abs(summand.stride), reverse=True)
    limits: list[int] = []
    for digit in digits:
        if digit.limit is None:
            return None
        limits.append(digit.limit)
    for upper, lower, limit in zip(digits, digits[1:], limits[1:], strict=False):
        if limit * abs(lower.stride) != abs(upper.stride):
            return None
    size = np.ones_like(digits[0].size)
    stride = np.zeros_like(digits[0].size)
    for digit in digits:
        size = size * digit.size
        stride = np.where(digit.size != 1, digit.stride, stride)
    return Extent(size, stride, _runs(digits, limits))


def _runs(digits: list[_Summand], limits: list[int]) -> Flags:
    ones = [digit.size == 1 for digit in digits]
    whole = [digit.size == limit for digit, limit in zip(digits, limits, strict=True)]
    found = np.zeros(len(ones[0]), np.bool_)
    for partial in range(len(digits)):
        before = np.logical_and.reduce(ones[:partial]) if partial else True
        for end in range(partial + 1, len(digits) + 1):
            full = np.logical_and.reduce(whole[partial + 1 : end]) if end > partial + 1 else True
            after = np.logical_and.reduce(ones[end:]) if end < len(digits) else True
            found |= before & full & after
    return found
