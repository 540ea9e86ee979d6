"""How far a search for findings has come."""

from __future__ import annotations

from hloopt.ir import Module
from hloopt.rewrite import Pass, Watcher

__all__ = ["SearchProgress"]


class SearchProgress:
    """What a search does at the moment; any thread may read it.

    doing   a few words
    part    of the steps of this stage, those that are done, from 0 to 1; None where their number is not known
    """

    def __init__(self) -> None:
        self.expect(0)
        self.doing = ""
        self.part: float | None = None

    @property
    def watcher(self) -> Watcher:
        """What shows the passes of a plan while they run."""
        return _Passes(self)

    def begin(self, doing: str) -> None:
        """Begin work of which no part is known."""
        self.doing, self.part = doing, None

    def expect(self, total: int, what: str = "change") -> None:
        """A stage of so many steps begins, each ``what``."""
        self._total, self._what = total, what

    def at(self, done: int, doing: str) -> None:
        """Begin with a step after so many others."""
        self.doing = f"{self._what} {done + 1} of {self._total}, {doing}"
        self.part = done / self._total


class _Passes(Watcher):
    def __init__(self, progress: SearchProgress) -> None:
        self._progress = progress

    def before(self, number: int, instance: Pass, module: Module) -> None:
        self._progress.begin(f"{instance.name}, pass {number}")

    def end(self, module: Module) -> None:
        self._progress.begin("pricing the kernels")
