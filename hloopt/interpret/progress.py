"""How far a run has come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import length_hint
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from hloopt.ir import Instruction

__all__ = ["Progress"]

Item = TypeVar("Item")

_NONE: Iterator[object] = iter(())


class Progress:
    """``done`` of ``total`` steps of the entry; any thread may read it.  ``total`` is 0 before a run.

    ``end`` is when the run has to be over, by ``time.monotonic``; ``count_of`` says how often the body of a
    loop runs, None where that is not known.
    """

    __slots__ = ("_count_of", "_end", "_loop", "done", "total")

    def __init__(
        self,
        end: float | None = None,
        count_of: Callable[[Instruction], int | None] | None = None,
    ) -> None:
        self._end, self._count_of = end, count_of
        self.begin(0)

    def check(self) -> None:
        """Raise ``TimeoutError`` after the end."""
        if self._end is not None and monotonic() > self._end:
            raise TimeoutError

    def begin(self, total: int) -> None:
        """Begin a run of so many steps."""
        self.done, self.total = 0, total
        self._loop: tuple[Iterator[object], int, int | None] | None = None

    def through(self, steps: Sequence[Item]) -> Iterator[Item]:
        """The steps, each counted as done when the next one is requested."""
        self.begin(len(steps))
        for self.done, step in enumerate(steps):
            self.check()
            yield step

    def enter(self, iterations: Iterator[object], last: int, count: int | None) -> None:
        """Record that the current step is a loop.

        ``iterations`` gives how many are left (``operator.length_hint``), so that none need be counted;
        ``last`` is the number of the last of these; ``count`` how many there are in all, None if unknown.
        """
        self._loop = iterations, last, count

    @property
    def in_loop(self) -> bool:
        """Whether the current step is a loop."""
        return self._loop is not None

    def count_of(self, loop: Instruction) -> int | None:
        """How often the body of a loop will run, where that is known."""
        return None if self._count_of is None else self._count_of(loop)

    def iteration(self, number: int, count: int | None = None) -> None:
        """Record how many iterations a loop has run, of ``count`` where that is known."""
        self._loop = _NONE, number, count
        self.check()

    def leave(self) -> None:
        """Record the end of the loop."""
        self._loop = None

    @property
    def part(self) -> float | None:
        """What is done of the loop, or of all steps outside of one, from 0 to 1; None if unknown."""
        loop = self._loop
        if loop is None:
            return self.done / self.total if self.total else None
        iterations, last, count = loop
        return None if count is None else (last - length_hint(iterations)) / max(count, 1)

    @property
    def percent(self) -> int:
        """The part of the steps that is done, 0 to 100."""
        return 100 * self.done // self.total if self.total else 0

    def __str__(self) -> str:
        """How far it is: in a loop, which may be all of a program, the iterations."""
        loop = self._loop  # another thread may leave it meanwhile
        if loop is None:
            return f"{self.percent} %"
        iterations, last, count = loop
        number = last - length_hint(iterations)
        if count is None:
            return f"iteration {number:,}"
        return f"iteration {number:,} of {count:,}, {100 * number // max(count, 1)} %"
