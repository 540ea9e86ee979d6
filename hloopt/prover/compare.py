"""Two modules on the same inputs, one trial after the other, up to the first that shows a difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.interpret import participant_counts, tells_participants_apart
from hloopt.ir import Module
from hloopt.prover.comparing import RunsCompared, check_alike, compare_runs
from hloopt.prover.executor import Executor
from hloopt.prover.first_difference import FirstDifference, first_difference
from hloopt.prover.trials import TrialInputs, TrialOptions
from hloopt.runtime.comparison import OutputComparison, ResultVerdict
from hloopt.runtime.tolerance import FREE, Tolerance

if TYPE_CHECKING:
    from hloopt.proto.snapshot import Snapshot

__all__ = ["ModulesCompared", "TrialCompared", "compare_modules"]


@dataclass(frozen=True)
class TrialCompared:
    """What both modules gave on the same inputs.

    inputs   what they come from
    results  of each participant in turn, each output
    written  what was written to the host, by name
    """

    inputs: str
    results: tuple[OutputComparison, ...]
    written: tuple[tuple[str, OutputComparison], ...]

    @property
    def verdict(self) -> ResultVerdict:
        """The worst of its results'."""
        verdicts = {one.verdict for one in (*self.results, *(one for _, one in self.written))}
        for word in _WORST_FIRST:
            if word in verdicts:
                return word
        return "nothing verified"

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "inputs": self.inputs,
            "verdict": self.verdict,
            "results": [one.to_json() for one in self.results],
            "written": [{"name": name, **one.to_json()} for name, one in self.written],
        }


_WORST_FIRST: tuple[ResultVerdict, ...] = (
    "differ",
    "not verified",
    "within tolerance",
    "equal",
)


@dataclass(frozen=True)
class ModulesCompared:
    """The trials of two modules; only the last one may differ.

    names    what the modules were read from
    device   what ran them
    counts   replicas and partitions
    given    the inputs that show the difference, or the last ones
    first    the first value that differs; None where nothing does, or the interpreter sees no difference
    notes    what else there is to say
    """

    names: tuple[str, str]
    device: str
    counts: tuple[int, int]
    trials: tuple[TrialCompared, ...]
    given: TrialInputs
    first: FirstDifference | None = None
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> ResultVerdict:
        """Of all trials: that one differs, or what the best one shows."""
        verdicts = [trial.verdict for trial in self.trials]
        order: tuple[ResultVerdict, ...] = (*_WORST_FIRST, "nothing verified")
        return next(word for word in order if word in verdicts)

    @property
    def equal(self) -> bool:
        """Whether all results are the same within what is allowed, and some have a finite number."""
        return self.verdict in {"equal", "within tolerance"}

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "before": self.names[0],
            "after": self.names[1],
            "device": self.device,
            "replicas": self.counts[0],
            "partitions": self.counts[1],
            "verdict": self.verdict,
            "trials": [trial.to_json() for trial in self.trials],
            "first_difference": None if self.first is None else self.first.to_json(),
            "notes": list(self.notes),
        }


def compare_modules(
    before: Module,
    after: Module,
    names: tuple[str, str] = ("before", "after"),
    *,
    trials: TrialOptions | None = None,
    executor: Executor | None = None,
    tolerance: Tolerance = FREE,
    snapshot: Snapshot | None = None,
    begin: Callable[[str], object] = str,
) -> ModulesCompared:
    """Run two modules on the same inputs, and find where they begin to differ.

    ``begin`` is called with what is done next.  Raises ``UsageError`` for modules that do not take the same
    inputs or give the same results, and what running them raises.
    """
    check_alike(before, after, names)
    executor = executor or Executor()
    executor.check()
    options = _with_counts(trials or TrialOptions(), before, after, names)
    done: list[TrialCompared] = []
    notes: tuple[str, ...] = ()
    first: FirstDifference | None = None
    for inputs in options.all(before, snapshot):
        begin(f"running on {inputs.origin}")
        one, other = (
            executor.run(module, inputs, name)
            for module, name in zip((before, after), names, strict=True)
        )
        found = compare_runs(
            one, other, inputs, tolerance=tolerance, excess_precision=executor.excess_precision
        )
        done.append(TrialCompared(inputs.origin, found.results, found.written))
        if not found.equal:
            begin("searching the first difference")
            first, notes = _first(before, after, inputs, found, executor, tolerance)
            break
    return ModulesCompared(names, executor.device, inputs.counts, tuple(done), inputs, first, notes)


def _first(
    before: Module,
    after: Module,
    inputs: TrialInputs,
    found: RunsCompared,
    executor: Executor,
    tolerance: Tolerance,
) -> tuple[FirstDifference | None, tuple[str, ...]]:
    count = len(found.results) // len(inputs.arrays)
    wrong = [divmod(at, count) for at, one in enumerate(found.results) if not one.passed]
    if not wrong:
        return None, ("only what is written to the host differs",)
    first = first_difference(
        before,
        after,
        inputs,
        wrong,
        tolerance=tolerance,
        excess_precision=executor.excess_precision,
    )
    if first is None and executor.device != "interpreter":
        note = "the interpreter gives equal results for both modules: the difference is made by"
        return None, (f"{note} {executor.device}",)
    return first, ()


def _with_counts(
    options: TrialOptions, before: Module, after: Module, names: tuple[str, str]
) -> TrialOptions:
    """The options with how many participants run: one, where nothing tells them apart."""
    apart = [module for module in (before, after) if tells_participants_apart(module)]
    counts = {participant_counts(one, options.replicas, options.partitions) for one in apart}
    if len(counts) > 1:
        texts = [" x ".join(map(str, participant_counts(one))) for one in (before, after)]
        raise UsageError(
            f"{names[0]} is for {texts[0]} participants (replicas x partitions), {names[1]} for {texts[1]}: "
            "they have no inputs in common; --replicas and --partitions set the numbers for both"
        )
    replicas, partitions = next(iter(counts), (options.replicas or 1, options.partitions or 1))
    return replace(options, replicas=replicas, partitions=partitions)
