"""Peaks of the computations of a module while some change: each is found once for each of its changes."""

from __future__ import annotations

from hloopt.analysis.liveness import Known, called_bytes, peak
from hloopt.analysis.memory import MemoryModel
from hloopt.ir import Computation

__all__ = ["Peaks"]


class Peaks:
    """What computations need; whoever changes one says so by ``forget``."""

    def __init__(self) -> None:
        self._known: Known = {}
        self._peaks: dict[Computation, int] = {}
        self._settled: dict[Computation, set[int]] = {}

    def of(self, computation: Computation) -> int:
        """The bytes of the peak, parameters, results and what is called included."""
        found = self._peaks.get(computation)
        if found is None:
            found = self._peaks[computation] = peak(computation, self._known).byte_size
        return found

    def called(self, model: MemoryModel) -> list[int]:
        """The bytes that each instruction of a computation needs for what it calls."""
        return [called_bytes(instruction, self._known) for instruction in model.instructions]

    def settle(self, computation: Computation, limit: int) -> None:
        """Nothing can be done to bring a computation's peak down to ``limit``."""
        self._settled.setdefault(computation, set()).add(limit)

    def is_settled(self, computation: Computation, limit: int) -> bool:
        """Whether that is known, and nothing has changed since."""
        return limit in self._settled.get(computation, ())

    def forget(self, changed: Computation) -> None:
        """A computation has changed; where nothing is known of one, nothing is known of its callers."""
        pending = [changed]
        while pending:
            computation = pending.pop()
            gone = [
                self._known.pop((computation, False), None),
                self._known.pop((computation, True), None),
                self._peaks.pop(computation, None),
                self._settled.pop(computation, None),
            ]
            if any(entry is not None for entry in gone):
                callers = (caller.computation for caller in computation.callers)
                pending += (caller for caller in callers if caller is not None)
