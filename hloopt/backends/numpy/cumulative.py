"""Cumulative sums, products and extrema: windows that run along a dimension (``Window.running``).

A ufunc's ``accumulate`` folds in the order of the interpreter where windows begin with the first element.
Where they end with the last one it folds from the end: the same bits for associative folds.  Sums
of floats narrower than f64, which are made in double precision in any order, are made from the end, too; the
interpreter makes them in another order, which shows where a sum in double precision loses digits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["accumulate", "running_sums"]

# Along any dimension but the last, ``accumulate`` goes through columns; a call of the ufunc a row is quicker
# from so many elements a row on (measured on Zen 5, f32[1000,1000] summed in f64: 5.8 ms against 0.7).
_LONG_ROW = 128

# Elements that are summed at once, so that what is in double precision stays in the second cache (measured
# on Zen 5, 10^6 elements: 7.8 ms as one array, 3.9 in parts).
_AT_ONCE = 1 << 14


def accumulate(ufunc: np.ufunc, array: Any, axis: int, kind: np.dtype[Any], *, back: bool) -> Any:
    """What a fold in type ``kind`` is after each element, from the last one on with ``back``."""
    if back:
        turned = np.flip(array, axis)
        return np.flip(accumulate(ufunc, turned, axis, kind, back=False), axis)
    row = array.size // max(array.shape[axis], 1)
    if axis == array.ndim - 1 or row < _LONG_ROW:
        return ufunc.accumulate(array, axis, kind)
    result = np.empty(array.shape, kind)
    rows, sources = np.moveaxis(result, axis, 0), np.moveaxis(array, axis, 0)
    before = rows[0]
    before[...] = sources[0]
    for row_, source in zip(rows[1:], sources[1:], strict=True):
        ufunc(before, source, out=row_)
        before = row_
    return result


def running_sums(
    array: Any, start: Any, axis: int, kinds: tuple[np.dtype[Any], np.dtype[Any]], *, back: bool
) -> Any:
    """Sums from ``start`` on in the first type, each rounded to the second one."""
    if back:
        turned = running_sums(np.flip(array, axis), start, axis, kinds, back=False)
        return np.flip(turned, axis)
    wide, carrier = kinds
    count = array.shape[axis]
    lanes = array.size // max(count, 1)
    result = np.empty(array.shape, carrier)
    results, sources = result, array
    if axis != array.ndim - 1:
        results, sources = np.moveaxis(result, axis, -1), np.moveaxis(array, axis, -1)
    state = np.full(sources.shape[:-1], start, wide)
    by_row = lanes >= _LONG_ROW and axis != array.ndim - 1
    length = 1 if by_row else max(_AT_ONCE // max(lanes, 1), 1)
    for begin in range(0, count, length):
        part = np.asarray(sources[..., begin : begin + length], wide)
        if by_row:
            state += part[..., 0]
            results[..., begin] = state
            continue
        part = part.copy() if part.base is not None else part
        part[..., 0] += state
        sums = np.add.accumulate(part, part.ndim - 1, wide)
        state = sums[..., -1]
        results[..., begin : begin + length] = sums
    return result
