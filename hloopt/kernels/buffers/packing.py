"""Offsets for buffers whose lives are known: as few bytes as possible.

Finding the best is NP-hard.  Of several methods the one with the fewest bytes is taken; none is tried after one
that is within a thousandth of the bound, the most bytes alive at once:

1. best fit: in the order of time, each buffer into the smallest hole that takes it (n log n);
2. greedy: the largest buffer first, then others, each at the lowest offset that no buffer of its time has.
   By size, by bytes times time, and by time.  Each placement looks at all placed before, in NumPy;
3. the best of these orders again, with the buffers that reached highest moved to its front, a few times.

Of more than 8,192 buffers the largest are placed by 2 and the others, above them, by 1.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import numpy as np

from hloopt.dataclass import dataclass

__all__ = [
    "ALIGNMENT",
    "Packing",
    "Timeline",
    "aligned",
    "live_bound",
    "pack",
]

ALIGNMENT: Final = 256

_NEAR: Final = 1000
_GREEDY_AT_MOST: Final = 8192
# The third method: so many orders at most, and so many buffers placed in all of them.
_MOST_AGAIN: Final = 32
_PLACED_AGAIN: Final = 20_000
_Array: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
_Offsets: TypeAlias = "list[int]"


@dataclass(frozen=True, slots=True)
class Packing:
    """The offset of each buffer, the bytes of the arena, and the bytes it cannot do without."""

    offsets: tuple[int, ...]
    byte_size: int
    bound: int


def aligned(byte_size: int) -> int:
    """Bytes rounded up to a multiple of ``ALIGNMENT``."""
    return -(-byte_size // ALIGNMENT) * ALIGNMENT


def live_bound(sizes: Sequence[int], starts: Sequence[int], ends: Sequence[int]) -> int:
    """The most bytes alive at one moment; sizes count as ``aligned``, ends are included."""
    changes: list[tuple[int, int]] = []
    for size, start, end in zip(sizes, starts, ends, strict=True):
        if size and start <= end:
            changes.append((start, aligned(size)))
            changes.append((end + 1, -aligned(size)))
    # At one moment what ends comes before what begins.
    changes.sort()
    most = alive = 0
    for _, change in changes:
        alive += change
        most = max(most, alive)
    return most


def pack(sizes: Sequence[int], starts: Sequence[int], ends: Sequence[int]) -> Packing:
    """Offsets, multiples of ``ALIGNMENT``, such that buffers alive at one moment do not overlap.

    ``starts`` and ``ends`` are moments, both included.  What has no bytes, or no life, lies at 0.
    """
    bound = live_bound(sizes, starts, ends)
    lives = [
        _Life(number, aligned(size), start, end)
        for number, (size, start, end) in enumerate(zip(sizes, starts, ends, strict=True))
        if size and start <= end
    ]
    found, total = _best_fit(lives)
    if not _is_near(total, bound):
        other, size = _greedy(lives, bound)
        if size < total:
            found, total = other, size
    offsets = [0] * len(sizes)
    for life, offset in zip(lives, found, strict=True):
        offsets[life.number] = offset
    return Packing(tuple(offsets), total, bound)


def _is_near(total: int, bound: int) -> bool:
    return (total - bound) * _NEAR <= bound


@dataclass(frozen=True, slots=True)
class _Life:
    number: int
    size: int
    start: int
    end: int

    @property
    def time(self) -> int:
        return self.end - self.start + 1


_ORDERS: Final[tuple[Callable[[_Life], tuple[int, ...]], ...]] = (
    lambda life: (-life.size, -life.time, life.start),
    lambda life: (-life.size * life.time, -life.size, life.start),
    lambda life: (-life.time, -life.size, life.start),
)


class _Holes:
    """Free bytes below ``top``, by offset and by size."""

    def __init__(self) -> None:
        self.top = 0
        self._sizes: list[tuple[int, int]] = []
        self._begins: dict[int, int] = {}
        self._ends: dict[int, int] = {}

    def take(self, size: int) -> int:
        at = bisect_left(self._sizes, (size, -1))
        if at < len(self._sizes):
            length, offset = self._sizes[at]
            self._remove(offset, length)
            if length > size:
                self._insert(offset + size, length - size)
            return offset
        # The last hole may end at the top: what is missing comes from above.
        offset = self._ends.get(self.top, self.top)
        if offset < self.top:
            self._remove(offset, self.top - offset)
        self.top = offset + size
        return offset

    def give(self, offset: int, size: int) -> None:
        before = self._ends.get(offset)
        if before is not None:
            self._remove(before, offset - before)
            size += offset - before
            offset = before
        after = self._begins.get(offset + size)
        if after is not None:
            self._remove(offset + size, after - offset - size)
            size = after - offset
        self._insert(offset, size)

    def _insert(self, offset: int, size: int) -> None:
        self._begins[offset] = offset + size
        self._ends[offset + size] = offset
        insort(self._sizes, (size, offset))

    def _remove(self, offset: int, size: int) -> None:
        del self._begins[offset]
        del self._ends[offset + size]
        del self._sizes[bisect_left(self._sizes, (size, offset))]


def _best_fit(lives: Sequence[_Life]) -> tuple[_Offsets, int]:
    order = sorted(range(len(lives)), key=lambda at: (lives[at].start, -lives[at].size))
    offsets = [0] * len(lives)
    holes = _Holes()
    alive: list[tuple[int, int]] = []
    for at in order:
        life = lives[at]
        while alive and alive[0][0] < life.start:
            _, ended = heapq.heappop(alive)
            holes.give(offsets[ended], lives[ended].size)
        offsets[at] = holes.take(life.size)
        heapq.heappush(alive, (life.end, at))
    return offsets, holes.top


def _greedy(lives: Sequence[_Life], bound: int) -> tuple[_Offsets, int]:
    """The best of several orders, improved; no other is tried after one that is near the bound."""
    by_size = sorted(range(len(lives)), key=lambda at: -lives[at].size)
    large, small = by_size[:_GREEDY_AT_MOST], by_size[_GREEDY_AT_MOST:]
    above, height = _best_fit([lives[at] for at in small])
    tries: list[tuple[int, _Offsets, list[int]]] = []
    for key in _ORDERS:
        order = sorted(large, key=lambda at, by=key: by(lives[at]))  # type: ignore[misc]
        tries.append((*_placed(lives, order), order))
        if _is_near(tries[-1][0] + height, bound):
            break
    best = last = min(tries, key=lambda entry: entry[0])
    for _ in range(min(_MOST_AGAIN, _PLACED_AGAIN // max(len(large), 1))):
        if _is_near(best[0] + height, bound):
            break
        top, found, order = last
        # A stable sort: those that end at the top come first, the others stay as they were.
        order = sorted(order, key=lambda at: found[at] + lives[at].size < top)
        last = (*_placed(lives, order), order)
        best = min(best, last, key=lambda entry: entry[0])
    top, offsets, _ = best
    for at, offset in zip(small, above, strict=True):
        offsets[at] = top + offset
    return offsets, top + height


def _placed(lives: Sequence[_Life], order: Sequence[int]) -> tuple[int, _Offsets]:
    """The bytes and the offsets when buffers are placed in an order, each as low as it can lie."""
    offsets = [0] * len(lives)
    placed = _Placed(len(order))
    for at in order:
        offsets[at] = placed.place(lives[at])
    return placed.top, offsets


class _Placed:
    """Buffers that have an offset, in the order of their offsets."""

    def __init__(self, capacity: int) -> None:
        self.top = 0
        self._count = 0
        self._rows: _Array = np.zeros((4, capacity), np.int64)

    def place(self, life: _Life) -> int:
        """The lowest offset that is free for the whole life."""
        begins, ends, starts, lasts = self._rows[:, : self._count]
        met = (starts <= life.end) & (lasts >= life.start)
        low = begins[met]
        # Where each one ends that begins before: the holes are between this and what comes next.
        high = np.maximum.accumulate(np.concatenate((np.zeros(1, np.int64), ends[met])))
        fits = np.flatnonzero(low - high[:-1] >= life.size)
        offset = int(high[fits[0]] if len(fits) else high[-1])
        self._insert(offset, life)
        return offset

    def _insert(self, offset: int, life: _Life) -> None:
        count = self._count
        at = int(np.searchsorted(self._rows[0, :count], offset))
        self._rows[:, at + 1 : count + 1] = self._rows[:, at:count].copy()
        self._rows[:, at] = offset, offset + life.size, life.start, life.end
        self._count = count + 1
        self.top = max(self.top, offset + life.size)


class Timeline:
    """Records which buffers (numbers from 0) each step touches.

    ``starts`` and ``ends`` are the first and the last moment of each, both included; -1 and -2 for what no step
    has touched.
    """

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.now = 0
        self._loops: list[int] = []
        self._lasting: list[list[int]] = []

    def add(self) -> int:
        """The number of a new buffer."""
        self.starts.append(-1)
        self.ends.append(-2)
        return len(self.starts) - 1

    def step(self, buffers: Iterable[int]) -> int:
        """A step that touches buffers; its moment."""
        for buffer in buffers:
            self._touch(buffer)
        self.now += 1
        return self.now - 1

    @contextmanager
    def loop(self) -> Iterator[None]:
        """Steps that may run again."""
        self._loops.append(self.now)
        self._lasting.append([])
        self.now += 1
        yield
        self._loops.pop()
        for buffer in self._lasting.pop():
            self.ends[buffer] = self.now
        self.now += 1

    def _touch(self, buffer: int) -> None:
        if self.starts[buffer] < 0:
            self.starts[buffer] = self.now
        self.ends[buffer] = max(self.ends[buffer], self.now)
        outermost = bisect_right(self._loops, self.starts[buffer])
        if outermost < len(self._loops):
            self._lasting[outermost].append(buffer)
