"""When buffers are needed: time counts steps of a program with loops, in the order of the text.

A buffer is needed from the first step that touches it to the last one.  What is there before a loop and is
touched inside is needed until the loop ends, for the next trip touches it again.  Branches of a conditional
follow each other in time, though only one of them runs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

__all__ = ["Timeline"]


class Timeline:
    """Records which buffers (numbers from 0) each step touches.

    ``starts`` and ``ends`` are the first and the last moment of each, both included; -1 and -2 for what nobody
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
