"""Sorting floats by ``<`` where there are NaNs: the interpreter's merge sort, every level for all runs at once.

No NaN is less than anything and nothing is less than a NaN, so that what comes out depends on which pairs are
compared: those of a bottom-up merge sort, head by head (``interpret.sort.merge_order``).  Merging runs L and R
takes the head r of R where r < l for the head l of L.  Two facts make a level a search in sorted numbers:

- A NaN at the head of L goes first, and so r goes before the first element of L that is greater: before the
  first place at which the largest number of L so far is greater, NaNs left out.
- A NaN at the head of R waits until L is used up, and what follows it in R waits, too.  What precedes it is
  sorted: by induction over the levels, a run is sorted up to its first NaN.
"""

from __future__ import annotations

import numpy as np

from hloopt.types import Array

__all__ = ["merge_order_of_floats"]


def merge_order_of_floats(keys: Array, *, descending: bool, later_first: bool) -> Array:
    """The permutation of each lane of ``keys`` [lanes, n] by ``<`` (``>`` if descending, or ``<=``, ``>=``).

    ``later_first`` has ``<=``: the right one of two equal elements goes first.
    """
    lanes, count = keys.shape
    ranks, most = _ranks(keys, descending=descending)
    # What comes after a NaN of a right run comes after everything of the left one.
    last = most + 1
    size = last + 1
    order = np.tile(np.arange(count), (lanes, 1))
    place = np.arange(count)
    lane = np.arange(lanes)[:, np.newaxis]
    width = 1
    while width < count:
        pairs = -(-count // (2 * width))
        pair = lane * pairs + place // (2 * width)
        left = np.broadcast_to(place // width % 2 == 0, order.shape)
        found = np.take_along_axis(ranks, order, axis=1)
        right = ~left
        left_pairs, right_pairs = pair[left], pair[right]
        # The pair is the leading digit, so that one search is one in every pair.
        greatest = np.maximum.accumulate(left_pairs * size + found[left])
        waits = np.maximum.accumulate(right_pairs * 2 + (found[right] == 0)) % 2 == 1
        wanted = right_pairs * size + np.where(waits, last, found[right])
        before = np.searchsorted(greatest, wanted, side="left" if later_first else "right")
        # Of all elements so many go before a right one: those of left runs, and the right ones before it.
        target = before + np.arange(before.size)
        merged = np.empty(order.size, order.dtype)
        free = np.ones(order.size, np.bool_)
        free[target] = False
        merged[target] = order[right]
        merged[free] = order[left]
        order = merged.reshape(lanes, count)
        width *= 2
    return order


def _ranks(keys: Array, *, descending: bool) -> tuple[Array, int]:
    """Numbers from 1 on in the order of the keys, 0 for NaN; and the greatest one."""
    missing = np.isnan(keys)
    numbers, ranks = np.unique(np.where(missing, keys.dtype.type(0), keys), return_inverse=True)
    ranks = ranks.reshape(keys.shape)
    ranks = numbers.size - ranks if descending else ranks + 1
    ranks[missing] = 0
    return ranks, numbers.size
