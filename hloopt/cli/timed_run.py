"""A program of ``hloopt run`` and what its last run gave, for whoever times it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from hloopt.dataclass import dataclass
from hloopt.runtime.memory import peak_memory

if TYPE_CHECKING:
    from hloopt.interpret import Host
    from hloopt.report.run import Row
    from hloopt.runtime.timing import Timing

__all__ = ["TimedRun"]


@dataclass
class TimedRun:
    """Each call is a run that begins at the start of the host's streams; the first measures memory, too.

    ``enter`` is called before each run.
    """

    row: Row
    run: Callable[[Host], list[list[Any]]]
    streams: Host
    enter: Callable[[], None] = lambda: None
    outputs: list[list[Any]] = field(default_factory=list)
    host: Host | None = None
    peak: int | None = None

    def __call__(self) -> None:
        self.enter()
        if self.host is not None:
            self.once()
            return
        with peak_memory() as memory:
            self.once()
        self.peak = memory.peak

    def once(self) -> None:
        """Run, and keep what it gives."""
        self.host = self.streams.restarted()
        self.outputs.clear()
        self.outputs.extend(self.run(self.host))

    def found(self, timing: Timing, held: int) -> tuple[Row, list[list[Any]], Host]:
        """The row with times and memory, ``held`` bytes of inputs among it; the results; what was said."""
        assert self.host is not None, "it has run"
        peak = None if self.peak is None else self.peak + held
        return replace(self.row, timing=timing, memory=peak), self.outputs, self.host
