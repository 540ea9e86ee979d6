"""How far a run has come, for whoever waits for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

__all__ = ["Progress"]

Item = TypeVar("Item")


class Progress:
    """``done`` of ``total`` steps of the entry; any thread may read it.  ``total`` is 0 before a run."""

    __slots__ = ("done", "total")

    def __init__(self) -> None:
        self.done = 0
        self.total = 0

    def through(self, steps: Sequence[Item]) -> Iterator[Item]:
        """The steps, each counted as done when the next one is asked for."""
        self.total = len(steps)
        for self.done, step in enumerate(steps):
            yield step

    @property
    def percent(self) -> int:
        """The part of the steps that is done, 0 to 100."""
        return 100 * self.done // self.total if self.total else 0
