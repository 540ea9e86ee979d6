"""How far the values of a run move where all is rounded otherwise."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Final

import numpy as np

from hloopt.errors import EvaluationError
from hloopt.prover.observing import Leaf, Trace, same_part
from hloopt.runtime.movement import widen
from hloopt.types import Array

__all__ = ["Reruns", "Spreads"]

_WAYS: Final = 4
_FEW: Final = 2
_LARGE: Final = 1 << 26
"""Evaluations that round otherwise; fewer of those whose values have more bytes than this."""


class Spreads:
    """How far the values of a trace move where all is rounded otherwise; ``again`` is such a run."""

    def __init__(self, trace: Trace, again: Callable[[int], Trace | None]) -> None:
        self._trace, self._again = trace, again

    @cached_property
    def _most(self) -> dict[Leaf, Array]:
        found: dict[Leaf, Array] = {}
        held = sum(seen.flat.nbytes for seen in self._trace.seen.values())
        for way in range(1, (_FEW if held > _LARGE else _WAYS) + 1):
            other = self._again(way)
            for leaf, seen in other.seen.items() if other is not None else ():
                own = self._trace.seen.get(leaf)
                if own is None or own.dims != seen.dims or own.flat.dtype != seen.flat.dtype:
                    continue
                left, right = same_part(own, seen)
                if left.tobytes() != right.tobytes():
                    most = found.setdefault(leaf, np.zeros(left.size))
                    if most.size == left.size:
                        widen(most, left, right)
        return found

    def of(self, leaf: Leaf, size: int) -> Array:
        """Of an array, or of that part of it that has ``size`` elements.

        Of a large array a part is known; all others may have moved as far as any of that.
        """
        found = self._most.get(leaf)
        if found is None:
            return np.zeros(size)
        return found if found.size == size else np.full(size, found.max(initial=0.0))


class Reruns:
    """Runs that round otherwise, each made once for all participants."""

    def __init__(self, run: Callable[[int], list[Trace]]) -> None:
        self._run = run
        self._traces: dict[int, list[Trace] | None] = {}

    def trace(self, number: int, way: int) -> Trace | None:
        """Of a participant; None where the run fails, as it may where rounding decides what is run."""
        if way not in self._traces:
            try:
                self._traces[way] = self._run(way)
            except EvaluationError:
                self._traces[way] = None
        traces = self._traces[way]
        return None if traces is None else traces[number]

    def on_others(self, number: int, own: Trace) -> Trace:
        """Of a participant on other inputs; ``own`` where that run fails."""
        return self.trace(number, -1) or own
