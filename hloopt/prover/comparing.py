"""Whether two modules gave the same: one verdict for each result, by the judge."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TypeAlias

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.prover.executor import Executor, Run
from hloopt.prover.trials import TrialInputs
from hloopt.runtime.comparison import OutputComparison
from hloopt.runtime.inputs import positions
from hloopt.runtime.judge import Evaluation, Judge, named
from hloopt.runtime.tolerance import FREE, Tolerance

__all__ = ["FirstRuns", "RunsCompared", "check_alike", "compare_runs"]


@dataclass(frozen=True)
class RunsCompared:
    """The results of two runs, side by side.

    results  of each participant in turn, each output
    written  what was written to the host, by name
    """

    results: tuple[OutputComparison, ...]
    written: tuple[tuple[str, OutputComparison], ...] = ()

    @property
    def equal(self) -> bool:
        """Whether every element is right."""
        return all(found.passed for found in self.all())

    def all(self) -> list[OutputComparison]:
        """Every comparison."""
        return [*self.results, *(found for _, found in self.written)]


def compare_runs(
    before: Run,
    after: Run,
    inputs: TrialInputs,
    *,
    tolerance: Tolerance = FREE,
    excess_precision: bool = False,
    first: Judge | None = None,
) -> RunsCompared:
    """Judge what ``after`` gave by what ``before`` gave on the same inputs; both may round.

    ``first`` is a judge by the roundings of ``before`` alone, where it is at hand.  It allows less than the
    roundings of both do: only where it objects, ``after`` is evaluated with its roundings moved, too.
    """
    ways = [_evaluation(run, inputs, excess_precision=excess_precision) for run in (before, after)]
    if first is not None:
        found = _compared(first, before, after)
        if found.equal:
            return found
        return _compared(first.beside(ways[1]), before, after)
    given = [
        named(run.results, run.written) if run.interpreted else None for run in (before, after)
    ]
    return _compared(Judge.of_two(ways, given, tolerance=tolerance), before, after)


def _compared(judge: Judge, before: Run, after: Run) -> RunsCompared:
    results = judge.compare_all(after.results, before.results)
    for number, problem in enumerate(after.apart if after.apart != before.apart else ()):
        if problem:
            one = results[number]
            results[number] = replace(one, problem=problem, mismatches=one.elements, share=inf)
    return RunsCompared(tuple(results), tuple(judge.compare_named(after.written, before.written)))


def _evaluation(run: Run, inputs: TrialInputs, *, excess_precision: bool) -> Evaluation:
    """How a run is repeated by the interpreter."""
    own = run.taken or inputs
    return Evaluation(
        run.module, own.arrays, own.counts, own.host, excess_precision, parts=run.parts
    )


def check_alike(before: Module, after: Module, names: tuple[str, str]) -> None:
    """Raise ``UsageError`` where two modules do not take the same parameters and give the same results."""
    for what, roots in (
        ("parameters", [module.entry.parameters for module in (before, after)]),
        ("results", [[module.entry.root] for module in (before, after)]),
    ):
        sides = [
            [
                (shape.dtype.name, shape.dims)
                for entry in entries
                for _, shape in positions(entry.shape)
            ]
            for entries in roots
        ]
        if len(sides[0]) != len(sides[1]):
            raise UsageError(
                f"the {what} of {names[0]} and {names[1]} are not the same: {len(sides[0])} arrays and "
                f"{len(sides[1])}"
            )
        for number, (one, other) in enumerate(zip(*sides, strict=True)):
            if one != other:
                texts = [f"{kind}{list(dims)}" for kind, dims in (one, other)]
                raise UsageError(
                    f"{what[:-1]} {number} of {names[0]} and {names[1]} is not the same: "
                    f"{texts[0]} and {texts[1]}"
                )


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
            way = _evaluation(run, inputs, excess_precision=executor.excess_precision)
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
