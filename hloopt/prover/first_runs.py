"""What a module gave on its inputs, kept while it is compared with one changed module after the other."""

from __future__ import annotations

from typing import TypeAlias

from hloopt.ir import Module
from hloopt.prover.comparing import evaluation
from hloopt.prover.executor import Executor, Run
from hloopt.prover.trials import TrialInputs
from hloopt.runtime.judge import Judge
from hloopt.runtime.tolerance import Tolerance

__all__ = ["FirstRuns"]

_Key: TypeAlias = tuple[Module, str, tuple[int, int], Executor, Tolerance]


class FirstRuns:
    """Runs of modules that do not change, and what rounding moves in them: each is evaluated once."""

    def __init__(self) -> None:
        self._known: dict[_Key, tuple[TrialInputs, Run, Judge]] = {}

    def of(
        self,
        executor: Executor,
        module: Module,
        inputs: TrialInputs,
        name: str,
        tolerance: Tolerance,
    ) -> tuple[Run, Judge]:
        """What ``executor`` gives, and the judge that allows what the roundings of this module alone explain.

        Raises what running the module raises.
        """
        key = module, inputs.origin, inputs.counts, executor, tolerance
        known = self._known.get(key)
        if known is None or not _are_same(known[0], inputs):
            run = executor.run(module, inputs, name)
            way = evaluation(run, inputs, excess_precision=executor.excess_precision)
            known = inputs, run, Judge.of_two([way], [None], tolerance=tolerance)
            self._known[key] = known
        return known[1:]


def _are_same(one: TrialInputs, other: TrialInputs) -> bool:
    pairs = zip(one.arrays, other.arrays, strict=True)
    return all(
        a.tobytes() == b.tobytes()
        for mine, theirs in pairs
        for a, b in zip(mine, theirs, strict=True)
    )
