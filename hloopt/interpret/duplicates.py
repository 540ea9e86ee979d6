"""Combining many values into few places, in order: the heart of scatter and select-and-scatter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloopt.interpret.context import Array
from hloopt.interpret.reducer import Apply, Reducer

__all__ = ["combine_at"]

# Up to here, rounds of distinct places are quicker than anything done for duplicates.
_FEW_ROUNDS = 8


def combine_at(
    targets: Sequence[Array],
    rows: Array,
    sources: Sequence[Array],
    reducer: Reducer,
) -> None:
    """``target[rows[i]] = f(target[rows[i]], source[i])`` for ``i`` in order, in place.

    Targets have shape [places, block], sources [n, block], ``rows`` [n].
    """
    if not rows.size or reducer.name == "first":
        return
    if reducer.name == "second":
        for target, source in zip(targets, sources, strict=True):
            target[rows] = source  # of duplicates the last one stays
        return
    apply = reducer.apply
    order = np.argsort(rows, kind="stable")
    ranks = _ranks(rows[order])
    rounds = int(ranks.max()) + 1
    ufunc = reducer.ufunc()
    if rounds <= _FEW_ROUNDS:
        _in_rounds(targets, rows, sources, apply, order, ranks)
    elif ufunc is not None and len(targets) == 1:
        ufunc.at(targets[0], rows, sources[0])
    elif reducer.associative:
        _as_tree(targets, rows, sources, apply, order, ranks)
    else:
        _in_rounds(targets, rows, sources, apply, order, ranks)


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
