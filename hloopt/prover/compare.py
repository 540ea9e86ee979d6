"""Two modules on the same inputs, one trial after the other, up to the first that shows a difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from hloopt.dataclass import dataclass
from hloopt.display import Displayed
from hloopt.errors import EvaluationError, UsageError
from hloopt.interpret import participant_counts, tells_participants_apart
from hloopt.interpret.partitioning import is_partitioned
from hloopt.ir import Module
from hloopt.prover.comparing import FirstRuns, RunsCompared, check_alike, compare_runs
from hloopt.prover.executor import INTERRUPTED, Executor, Run
from hloopt.prover.first_difference import FirstDifference, first_difference
from hloopt.prover.partitioned import PartitionedRuns
from hloopt.prover.reordering import (
    Reordered,
    fitted,
    parameter_orders,
    result_order,
    with_parameters,
)
from hloopt.prover.trials import Arrays, TrialInputs, TrialOptions, special_classes
from hloopt.runtime.comparison import OutputComparison, ResultVerdict
from hloopt.runtime.tolerance import FREE, Tolerance

if TYPE_CHECKING:
    from hloopt.proto.snapshot import Snapshot

__all__ = ["ModulesCompared", "TrialCompared", "compare_modules"]

_LONG: Final = 30.0
"""Seconds in which special values are tried unasked."""

_TIMES: Final = 20
_SHORTEST: Final = 5.0
"""How much longer than on plain inputs a run on special values may take, and the seconds each may."""

_ORDERED: Final = frozenset({"largest", "huge", "tiny", "opposite", "same"})
"""Classes that are tried only where asked for: whether a sum or a product of such numbers overflows, or a
difference is 0, depends on the order of operations.
"""


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
class ModulesCompared(Displayed):
    """The trials of two modules; only the last one may differ.

    names    what the modules were read from
    device   what ran them
    counts   replicas and partitions of which results are compared
    given    the inputs that show the difference, or the last ones
    first    the first value that differs; None where nothing does, or the interpreter sees no difference
    notes    what else there is to say
    untried  classes of special values that were left out, where no option says which are tried
    reordered  orders of results and parameters in which they agree, where that is all that differs
    """

    names: tuple[str, str]
    device: str
    counts: tuple[int, int]
    trials: tuple[TrialCompared, ...]
    given: TrialInputs
    first: FirstDifference | None = None
    notes: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()
    reordered: tuple[Reordered, ...] = ()

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
            "untried": list(self.untried),
            "reordered": [one.to_json() for one in self.reordered],
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
    kept: FirstRuns | None = None,
) -> ModulesCompared:
    """Run two modules on the same inputs, and find where they begin to differ.

    Where ``trials`` asks for no more than one random input, each class of special values that can change an
    input has its turn after it, as far as that takes no more than ``_LONG`` seconds.  ``begin`` is called with
    what is done next.  ``kept`` has the runs of ``before`` of earlier comparisons, and keeps this one's.
    Raises ``UsageError`` for modules that do not take the same
    inputs or give the same results, and what running them raises.
    """
    asked = trials or TrialOptions()
    whole = _whole((before, after), asked)
    fits: tuple[str, ...] = ()
    if whole is None:
        before, after, fits = fitted(before, after, names)
        check_alike(before, after, names)
    executor = executor or Executor()
    executor.check()
    options = _with_counts(asked, before, after, names)
    runs = _Runs((before, after), names, executor, tolerance, begin, fits, whole, kept)
    for inputs in options.all(after if whole else before, snapshot):
        if not runs.agree(inputs):
            return runs.record(inputs)
    if options.is_plain and (snapshot is None or options.seed is not None):
        inputs = runs.special(options) or inputs
    return runs.record(inputs)


def _whole(modules: tuple[Module, Module], asked: TrialOptions) -> int | None:
    """Which of two modules is for whole arrays, where the other is for parts of them; None where neither is."""
    for side, (whole, parts) in enumerate((modules, modules[::-1])):
        _, partitions = participant_counts(parts, None, asked.partitions)
        if partitions > 1 and is_partitioned(whole, parts):
            return side
    return None


class _Runs:
    """Two modules, run on one input after the other up to the first on which they differ.

    ``whole`` is the side that is for whole arrays, where the other one is for parts of them.
    """

    def __init__(
        self,
        modules: tuple[Module, Module],
        names: tuple[str, str],
        executor: Executor,
        tolerance: Tolerance,
        begin: Callable[[str], object],
        notes: tuple[str, ...],
        whole: int | None,
        kept: FirstRuns | None,
    ) -> None:
        self._modules, self._names, self._whole = modules, names, whole
        self._executor, self._tolerance, self._begin = executor, tolerance, begin
        self._kept = kept if whole is None else None
        self._done: list[TrialCompared] = []
        self._notes = list(notes)
        self._untried: list[str] = []
        self._found = RunsCompared(())
        self._results: tuple[Arrays, Arrays] = ([], [])
        self._started = monotonic()

    def agree(self, inputs: TrialInputs, seconds: float | None = None) -> bool:
        """Whether both give the same on these inputs; a run may take so many ``seconds``."""
        self._begin(f"running on {inputs.origin}")
        executor = self._executor
        if seconds is not None:
            executor = replace(executor, seconds=min(seconds, executor.seconds or seconds))
        judge = None
        if self._kept is None:
            one, other = self._both(executor, inputs)
        else:
            (before, after), (name, next_name) = self._modules, self._names
            one, judge = self._kept.of(executor, before, inputs, name, self._tolerance)
            other = executor.run(after, inputs, next_name)
        self._results = one.results, other.results
        self._found = compare_runs(
            one,
            other,
            inputs,
            tolerance=self._tolerance,
            excess_precision=executor.excess_precision,
            first=judge,
        )
        self._done.append(TrialCompared(inputs.origin, self._found.results, self._found.written))
        return self._found.equal

    def _both(self, executor: Executor, inputs: TrialInputs) -> tuple[Run, Run]:
        sides = tuple(zip(self._modules, self._names, strict=True))
        if self._whole is None:
            one, other = (executor.run(module, inputs, name) for module, name in sides)
            return one, other
        runs = PartitionedRuns(self._modules[self._whole], inputs, executor)
        whole, parts = (runs.run(*sides[side]) for side in (self._whole, 1 - self._whole))
        name = self._names[1 - self._whole]
        said = [
            f"{name} is for parts of the arrays on {inputs.counts[1]} partitions: whole arrays are compared",
            *(
                f"nothing says how the parts of {one} lie: as they agree best"
                for one in (parts.parts.assumed if parts.parts is not None else ())
            ),
        ]
        self._notes += [note for note in said if note not in self._notes]
        return (parts, whole) if self._whole else (whole, parts)

    def special(self, options: TrialOptions) -> TrialInputs | None:
        """The first inputs with special values on which the modules differ; None where they agree on all.

        What is not tried is kept: classes for which no time is left, and all of them where nothing stops a
        loop that may not end.
        """
        taken = monotonic() - self._started
        module = self._modules[self._whole or 0]
        there: list[str] = list(special_classes(module))
        endless = self._executor.device not in INTERRUPTED and any(
            one.opcode == "while" for module in self._modules for one in module.instructions()
        )
        for number, name in enumerate(there):
            left = _LONG - (monotonic() - self._started)
            if endless or name in _ORDERED or left < taken:
                self._untried.append(name)
                continue
            seed = (options.seed or 0) + 1 + number
            (inputs,) = replace(options, seed=seed, special=(name,)).all(module)
            try:
                if not self.agree(inputs, max(_SHORTEST, _TIMES * taken)):
                    return inputs
            except EvaluationError as error:
                self._untried.append(name)
                self._notes.append(f"{inputs.origin} left out: {error.message}")
        return None

    def record(self, inputs: TrialInputs) -> ModulesCompared:
        """What there is to say; ``inputs`` are the last, or those on which results differ."""
        first: FirstDifference | None = None
        notes: tuple[str, ...] = ()
        reordered = () if self._found.equal else self._reordered(inputs)
        if reordered:
            text = " and ".join(map(str, reordered))
            notes = (f"{text}: that is all that differs",)
            if any(one.guessed for one in reordered):
                notes = (f"the modules agree where {text}",)
        is_searched = self._whole is None and (
            not reordered or any(one.guessed for one in reordered)
        )
        if not self._found.equal and is_searched:
            self._begin("searching the first difference")
            first, more = _first(
                *self._modules, inputs, self._found, self._executor, self._tolerance
            )
            notes += more
        return ModulesCompared(
            self._names,
            self._executor.device,
            inputs.counts if self._whole is None else (inputs.counts[0], 1),
            tuple(self._done),
            inputs,
            first,
            (*self._notes, *notes),
            tuple(self._untried),
            reordered,
        )

    def _reordered(self, inputs: TrialInputs) -> tuple[Reordered, ...]:
        """Orders of results and parameters in which the modules agree, if they never did as they are."""
        want, got = self._results
        if len(self._done) > 1 or self._done[-1].written or self._whole is not None:
            return ()
        order = result_order(want, got, self._tolerance)
        if order is not None and order != sorted(order):
            return (Reordered("results", tuple(order)),)
        before, after = self._modules
        for places, guessed in parameter_orders(before, after):
            self._begin("trying other orders of parameters")
            module = with_parameters(after, before.entry.parameters, places)
            try:
                again = self._executor.run(module, inputs, self._names[1]).results
            except EvaluationError:  # as it may on inputs that are made for another place
                continue
            order = result_order(want, again, self._tolerance)
            if order is not None:
                found = [Reordered("parameters", tuple(places), guessed)]
                if order != sorted(order):
                    found.append(Reordered("results", tuple(order), guessed))
                return tuple(found)
        return ()


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
    search = partial(
        first_difference,
        before,
        after,
        inputs,
        wrong,
        excess_precision=executor.excess_precision,
    )
    first = search(tolerance=tolerance)
    if first is None and executor.device == "interpreter":
        # The judge bounds results more closely than evaluations that round otherwise tell apart.
        first = search(tolerance=Tolerance(ulp=0))
    elif first is None:
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
            "they have no inputs in common; --participants sets the numbers for both"
        )
    replicas, partitions = next(iter(counts), (options.replicas or 1, options.partitions or 1))
    return replace(options, replicas=replicas, partitions=partitions)
