"""Both modules' runs on one input, traced, and traced again where more of a loop has to be seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Final, TypeAlias

from hloopt.analysis.pairing import Pairing, pair_modules
from hloopt.ir import Module
from hloopt.prover.matching import Matcher, Sides
from hloopt.prover.observing import Leaf, Place, Trace, TraceScope, observe
from hloopt.prover.roundings import Reruns, Spreads
from hloopt.prover.trials import Trial, TrialInputs, made
from hloopt.runtime.tolerance import Tolerance

__all__ = ["BothRuns", "RunValue", "UnequalPair"]

_OTHER_SEED: Final = 987_654
"""Of the inputs on which values must agree, too."""

_DEPTH: Final = 16
"""Runs in which loops are looked into, at most."""

RunValue: TypeAlias = "tuple[int, Leaf]"
"""A participant's value."""

UnequalPair: TypeAlias = "tuple[RunValue, RunValue]"
"""Values of both modules that ought to agree, and do not."""


class BothRuns:
    """Traces of two modules on one input: ``sides``, of each participant."""

    def __init__(
        self,
        modules: tuple[Module, Module],
        inputs: TrialInputs,
        tolerance: Tolerance,
        *,
        excess_precision: bool,
    ) -> None:
        self._modules, self._inputs, self._tolerance = modules, inputs, tolerance
        self._excess = excess_precision
        self._windows = [TraceScope(), TraceScope()]
        self._looked = 0
        self.pairing: Pairing = pair_modules(*modules)
        self.sides = self._traced()

    @property
    def is_spent(self) -> bool:
        """Whether loops were looked into as often as they may be."""
        return self._looked >= _DEPTH

    def look(
        self, loops: Sequence[Place], bodies: frozenset[int], states: frozenset[int] = frozenset()
    ) -> None:
        """Trace again, with other iterations of two loops: all values, or the states that they leave."""
        self._looked += 1
        for side, loop in enumerate(loops):
            window = self._windows[side]
            self._windows[side] = replace(
                window, bodies={**window.bodies, loop: bodies}, states={loop: states}
            )
        self.sides = self._traced()

    @property
    def is_strict(self) -> bool:
        """Whether the user allows something else than what rounding does."""
        return self._tolerance.is_given

    def differs(self, pair: UnequalPair, tolerance: Tolerance | None = None) -> bool:
        """Whether the values of a pair do not agree; also where one was not kept.

        What a loop came with into the first iteration that was kept agrees.
        """
        (number, before), (_, after) = pair
        sides = self.sides[number]
        if before not in sides.before.seen or after not in sides.after.seen:
            return any(leaf.place.instruction.opcode != "parameter" for leaf in (before, after))
        return not sides.counterparts.compared(after, before, tolerance).passed

    def _run(self, side: int, way: int = 0) -> list[Trace]:
        """The traces of a module: by the definition, by another way to round, or on other inputs (-1).

        Of large arrays the latter two keep parts only.
        """
        return observe(
            self._modules[side],
            self._inputs if way >= 0 else self._other_inputs,
            replace(self._windows[side], most=0) if way else self._windows[side],
            excess_precision=self._excess,
            rounding=way if way > 0 else None,
        )

    @cached_property
    def _other_inputs(self) -> TrialInputs:
        return made(self._modules[0], Trial(_OTHER_SEED), *self._inputs.counts)

    def _traced(self) -> list[Sides]:
        """Both runs, of each participant."""
        again = [Reruns(partial(self._run, side)) for side in range(2)]
        found = []
        for number, (before, after) in enumerate(zip(self._run(0), self._run(1), strict=True)):
            others = (
                partial(again[0].on_others, number, before),
                partial(again[1].on_others, number, after),
            )
            spreads = (
                Spreads(before, partial(again[0].trace, number)),
                Spreads(after, partial(again[1].trace, number)),
            )
            pairs = self.pairing
            found.append(
                Sides(
                    before,
                    after,
                    Matcher(before, after, spreads, pairs.before, self._tolerance, others),
                    Matcher(
                        after, before, spreads[::-1], pairs.after, self._tolerance, others[::-1]
                    ),
                )
            )
        return found
