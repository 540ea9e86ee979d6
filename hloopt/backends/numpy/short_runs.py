"""Short dimensions at the end of an array: what NumPy's inner loops run along, made long.

A ufunc calls its inner loop once for each run of elements that all operands lie alike along, and a reduction
once for each result of a folded last dimension: some 10 to 20 ns a call, the time of 50 additions (Zen 5).
Of f32[56,56,32,2] a sum over all but the third dimension takes 1900 us, in two turns 130; a product with
f32[32,1] takes 370 us, with that stretched to f32[32,2] before 65.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, Final

import numpy as np

from hloopt.backends.numpy.plan import Dims
from hloopt.dataclass import dataclass

__all__ = ["fold", "stretched_from"]

# Elements of an array below which an extra call costs what it saves.
_LEAST: Final = 1 << 12
# Elements folded at the end from which on a call for each result is lost in the work.
_LONG_TAIL: Final = 512
# Elements folded at the end so that adding columns is quicker, one after the other.
_COLUMNS: Final = 16
# Elements kept at the end from which on rows are long enough, and how long rows are made.
_LONG_ROW: Final = 64
_ROW: Final = 256
# Others folded from which on they go first.
_FEW: Final = 4
# Elements that operands lie alike along from which on nothing is stretched, how many there are to be then,
# and how many times fewer a stretched operand has than the result.
_LONG_RUN: Final = 64
_RUN: Final = 512
_FEWER: Final = 8


def fold(ufunc: np.ufunc, array: Any, axes: tuple[int, ...], kind: np.dtype[Any]) -> Any:
    """``ufunc.reduce`` of an array with elements, over ``axes`` in ascending order, in type ``kind``.

    Elements are grouped in whatever order is fastest.
    """
    if array.size < _LEAST:
        return np.asarray(ufunc.reduce(array, axes, kind))
    turns = _turns(array.shape, axes)
    if turns.row > 1 and array.flags.c_contiguous:
        rows = array.reshape(turns.rows)
        found = ufunc.reduce(rows, turns.first, kind).reshape(turns.split)
        return ufunc.reduce(found, len(turns.split) - 2).reshape(turns.kept)
    if turns.then:
        return ufunc.reduce(fold(ufunc, array, turns.first, kind), turns.then, kind)
    if turns.columns:
        first, *others = (array[column] for column in turns.columns)
        found = first.astype(kind)
        for column in others:
            ufunc(found, column, out=found)
        return found
    return np.asarray(ufunc.reduce(array, axes, kind))


@dataclass(frozen=True, slots=True)
class _Turns:
    """How an array is folded.

    first    dimensions that go first, all where ``then`` is empty
    then     of what that leaves, those that go next
    columns  places whose arrays are put together instead
    row      so many rows of what is kept at the end are one row of an array of dimensions ``rows``; folded over
             ``first`` and reshaped to ``split`` it is folded once more, which leaves ``kept``
    """

    first: tuple[int, ...]
    then: tuple[int, ...] = ()
    columns: tuple[tuple[Any, ...], ...] = ()
    row: int = 1
    rows: Dims = ()
    split: Dims = ()
    kept: Dims = ()


@lru_cache(maxsize=1024)
def _turns(dims: Dims, axes: tuple[int, ...]) -> _Turns:
    last = max(axis for axis, size in enumerate(dims) if size > 1)
    if last not in axes:
        return _in_rows(dims, axes, last)
    start = last
    while start > 0 and (start - 1 in axes or dims[start - 1] == 1):
        start -= 1
    tail = tuple(axis for axis in axes if axis >= start)
    first = axes[: len(axes) - len(tail)]
    size = prod(dims[axis] for axis in tail)
    if size >= _LONG_TAIL:
        return _Turns(axes)
    if prod(dims[axis] for axis in first) >= _FEW:
        return _Turns(first, tuple(axis - len(first) for axis in tail))
    if not first and size <= _COLUMNS and size < prod(dims):
        return _Turns(axes, columns=tuple(_columns(dims, tail)))
    return _Turns(axes)


def _columns(dims: Dims, tail: tuple[int, ...]) -> list[tuple[Any, ...]]:
    found = []
    for at in np.ndindex(*(dims[axis] for axis in tail)):
        index: list[Any] = [slice(None)] * len(dims)
        for axis, place in zip(tail, at, strict=True):
            index[axis] = place
        found.append(tuple(index))
    return found


def _in_rows(dims: Dims, axes: tuple[int, ...], last: int) -> _Turns:
    """Where few elements are kept at the end: several times as many, folded once more."""
    start = last
    while start > 0 and start - 1 not in axes:
        start -= 1
    before = start
    while before > 0 and (before - 1 in axes or dims[before - 1] == 1):
        before -= 1
    kept, folded = prod(dims[start:]), prod(dims[before:start])
    if kept >= _LONG_ROW:
        return _Turns(axes)
    row = next(size for size in range(_ROW // kept, 0, -1) if folded % size == 0)
    leading = tuple(axis for axis in axes if axis < before)
    outer = tuple(size for axis, size in enumerate(dims[:before]) if axis not in axes)
    return _Turns(
        (*leading, before),
        row=row,
        rows=(*dims[:before], folded // row, row * kept),
        split=(*outer, row, kept),
        kept=tuple(size for axis, size in enumerate(dims) if axis not in axes),
    )


def stretched_from(operand: Sequence[int], result: Dims) -> int | None:
    """The first dimension of a result along which, and along all later ones, an operand is better copied.

    The operand's dimensions agree with the last ones of the result or are 1.  None where nothing is gained.
    """
    dims = (*(1,) * (len(result) - len(operand)), *operand)
    inside = [axis for axis, size in enumerate(result) if size > 1]
    if not inside:
        return None
    alike = dims[inside[-1]] > 1
    other = [axis for axis in inside if (dims[axis] > 1) != alike]
    if not other or prod(result[other[-1] + 1 :]) >= _LONG_RUN:
        return None
    start = other[-1]
    while start > 0 and prod(result[start:]) < _RUN:
        start -= 1
    for first in range(start, other[-1] + 1):
        if prod(dims[:first]) * prod(result[first:]) * _FEWER <= prod(result):
            return first
    return None
