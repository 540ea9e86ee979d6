"""Places for buffers whose lives are known: the largest first, each in the smallest gap that fits.

The algorithm is XLA's ``GlobalDecreasingSizeBestFitHeap`` in both of its orders; the smaller heap counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TypeAlias

from hloopt.dataclass import dataclass

__all__ = ["HeapBuffer", "pack"]

_Order: TypeAlias = "Callable[[HeapBuffer], tuple[int, int, int]]"


@dataclass(frozen=True, slots=True)
class HeapBuffer:
    """Bytes that are alive during some times, each from and to an event, both included.

    Values that must share a place are one buffer with several times.
    """

    number: int
    byte_size: int
    times: tuple[tuple[int, int], ...]

    @property
    def span(self) -> int:
        """From the first event to the last."""
        return max(end for _, end in self.times) - min(start for start, _ in self.times)


def pack(buffers: Sequence[HeapBuffer], alignment: int) -> tuple[int, dict[int, int]]:
    """The bytes of the heap, and the offset of each buffer by its number."""
    orders: list[_Order] = [
        lambda one: (-one.byte_size, -one.span, one.number),
        lambda one: (-one.span, -one.byte_size, one.number),
    ]
    found = [_packed(sorted(buffers, key=order), alignment) for order in orders]
    return min(found, key=lambda one: one[0])


def _packed(buffers: Sequence[HeapBuffer], alignment: int) -> tuple[int, dict[int, int]]:
    heap, offsets = 0, dict[int, int]()
    last = max((end for one in buffers for _, end in one.times), default=0)
    placed = _Placed(last + 1)
    for one in buffers:
        offset = _gap(placed.overlapping(one.times), one.byte_size)
        offsets[one.number] = offset
        heap = max(heap, offset + one.byte_size)
        placed.add(one, offset, -(-(offset + one.byte_size) // alignment) * alignment)
    return heap, offsets


def _gap(taken: Sequence[tuple[int, int]], byte_size: int) -> int:
    """The offset of the smallest gap between sorted pieces (start, end) that holds so many bytes."""
    best, best_size, end = -1, 0, 0
    for start, stop in taken:
        room = start - end
        if room >= byte_size and (best < 0 or room < best_size):
            best, best_size = end, room
        end = max(end, stop)
    return end if best < 0 else best


class _Placed:
    """Pieces by time: a tree over the events; a node holds what is taken during all, or some, of its events.

    Pieces that touch are one, so that a heap without gaps has few.
    """

    def __init__(self, count: int) -> None:
        self.size = 1 << max(count - 1, 1).bit_length()
        self.whole: dict[int, list[tuple[int, int]]] = {}
        self.below: dict[int, list[tuple[int, int]]] = {}

    def add(self, one: HeapBuffer, offset: int, stop: int) -> None:
        piece = (offset, stop)
        covered, above = self._nodes(one.times)
        for node in covered:
            self._put(self.whole, node, piece)
        for node in above:
            self._put(self.below, node, piece)

    def overlapping(self, times: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The pieces that are alive at any of the times, sorted."""
        found: set[tuple[int, int]] = set()
        covered, above = self._nodes(times)
        for node in covered:
            found.update(self.below.get(node, ()))
            found.update(self.whole.get(node, ()))
        for node in above:
            found.update(self.whole.get(node, ()))
        return sorted(found)

    def _nodes(self, times: Sequence[tuple[int, int]]) -> tuple[set[int], set[int]]:
        """The fewest nodes that together are the times, and all nodes above those, each once."""
        covered = {node for start, end in times for node in self._cover(start, end)}
        above: set[int] = set()
        for node in covered:
            node >>= 1
            while node and node not in above:
                above.add(node)
                node >>= 1
        return covered, above

    def _put(
        self, where: dict[int, list[tuple[int, int]]], node: int, piece: tuple[int, int]
    ) -> None:
        pieces = where.setdefault(node, [])
        start, stop = piece
        low = bisect_left(pieces, piece)
        if low > 0 and pieces[low - 1][1] >= stop:
            return  # it is part of another one
        if low > 0 and pieces[low - 1][1] >= start:
            low -= 1
            start = pieces[low][0]
        high = low
        while high < len(pieces) and pieces[high][0] <= stop:
            stop = max(stop, pieces[high][1])
            high += 1
        pieces[low:high] = [(start, stop)]

    def _cover(self, start: int, end: int) -> list[int]:
        """The fewest nodes that together are the times from ``start`` to ``end``."""
        found: list[int] = []
        low, high = start + self.size, end + self.size + 1
        while low < high:
            if low & 1:
                found.append(low)
                low += 1
            if high & 1:
                high -= 1
                found.append(high)
            low >>= 1
            high >>= 1
        return found
