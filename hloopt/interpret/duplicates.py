"""Combining many values into few places, in order: the core of scatter and select-and-scatter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloopt.interpret.reducer import Apply, Reducer
from hloopt.interpret.scalars import FEW_LANES, ScalarStep
from hloopt.types import Array

__all__ = ["combine_at", "update_at"]

# Up to this count, rounds of distinct places are faster than a tree.
_FEW_ROUNDS = 8
# From this count on, whole blocks are faster than the elements one by one.
_WIDE_BLOCK = 64
# Elements combined at once by a ufunc: each has an index of 8 bytes, which stay in the second cache.
_AT_ONCE = 1 << 16


def combine_at(
    targets: Sequence[Array],
    rows: Array,
    sources: Sequence[Array],
    reducer: Reducer,
) -> None:
    """``target[rows[i]] = f(target[rows[i]], source[i])`` for ``i`` in order, in place.

    Targets have shape [places, block] and lie in order in memory; sources [n, block], ``rows`` [n].
    """
    if not rows.size or reducer.name == "first":
        return
    if reducer.name == "second":
        for target, source in zip(targets, sources, strict=True):
            target[rows] = source  # of duplicates the last one stays
        return
    ufunc = reducer.ufunc(step_by_step=True)
    if ufunc is not None and targets[0].shape[1] < _WIDE_BLOCK:
        update_at(ufunc, targets[0], rows, sources[0])
        return
    order = np.argsort(_narrowed(rows, len(targets[0])), kind="stable")
    ranks = _ranks(rows[order])
    rounds = int(ranks.max()) + 1
    if ufunc is not None:
        _in_rounds(targets, rows, sources, reducer.stepping(), order, ranks)
    elif reducer.associative and rounds > _FEW_ROUNDS:
        _as_tree(targets, rows, sources, reducer.apply, order, ranks)
    else:
        step = reducer.scalars() if sources[0].size <= FEW_LANES * rounds else None
        if step is not None:
            _one_by_one(targets, rows, sources, step)
        else:
            _in_rounds(targets, rows, sources, reducer.apply, order, ranks)


def update_at(ufunc: np.ufunc, target: Array, rows: Array, source: Array) -> None:
    """The ufunc's own loop, element by element in order, which is quick on flat arrays alone."""
    block = target.shape[1]
    assert target.flags.c_contiguous
    flat = target.reshape(-1)
    if block == 1:
        ufunc.at(flat, rows, source.reshape(-1))
        return
    along = np.arange(block)
    step = max(_AT_ONCE // block, 1)
    for begin in range(0, rows.size, step):
        part = rows[begin : begin + step, np.newaxis] * block + along
        ufunc.at(flat, part.reshape(-1), source[begin : begin + step].reshape(-1))


def _narrowed(rows: Array, count: int) -> Array:
    """The rows as the narrowest type: NumPy sorts 16 bits by their digits."""
    return rows.astype(np.min_scalar_type(max(count - 1, 0)))


def _one_by_one(
    targets: Sequence[Array], rows: Array, sources: Sequence[Array], step: ScalarStep
) -> None:
    for column in range(targets[0].shape[1]):
        cells = [target[:, column] for target in targets]
        updates = zip(*(source[:, column] for source in sources), strict=True)
        for row, new in zip(rows.tolist(), updates, strict=True):
            made = step(*(cell[row] for cell in cells), *new)
            for cell, number in zip(cells, made, strict=True):
                cell[row] = number


def _ranks(rows: Array) -> Array:
    """For sorted rows the number of equal ones before each."""
    count = np.arange(rows.size)
    starts = np.concatenate([[True], rows[1:] != rows[:-1]])
    return count - np.maximum.accumulate(np.where(starts, count, 0))


def _in_rounds(
    targets: Sequence[Array],
    rows: Array,
    sources: Sequence[Array],
    apply: Apply,
    order: Array,
    ranks: Array,
) -> None:
    """Round ``k`` takes the ``k``-th update of every place: places are distinct, order is kept."""
    by_rank = order[np.argsort(ranks, kind="stable")]
    ends = np.cumsum(np.bincount(ranks))
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        picked = by_rank[begin:end]
        places = rows[picked]
        new = apply([target[places] for target in targets], [source[picked] for source in sources])
        for target, array in zip(targets, new, strict=True):
            target[places] = array


def _as_tree(
    targets: Sequence[Array],
    rows: Array,
    sources: Sequence[Array],
    apply: Apply,
    order: Array,
    ranks: Array,
) -> None:
    """Neighbours of one place are combined until each place has one update left."""
    places = rows[order]
    values = [source[order] for source in sources]
    while True:
        later = np.flatnonzero(ranks % 2)
        if not later.size:
            break
        earlier = later - 1
        new = apply([v[earlier] for v in values], [v[later] for v in values])
        for value, array in zip(values, new, strict=True):
            value[earlier] = array
        kept = np.flatnonzero(ranks % 2 == 0)
        values = [value[kept] for value in values]
        places, ranks = places[kept], ranks[kept] // 2
    new = apply([target[places] for target in targets], values)
    for target, array in zip(targets, new, strict=True):
        target[places] = array
