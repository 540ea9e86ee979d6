"""The gain of a change: it is made on a copy, the results are compared, and both are priced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final, TypeAlias

from hloopt.analysis.cost import instruction_cost
from hloopt.analysis.executions import executions
from hloopt.dataclass import dataclass
from hloopt.errors import HlooptError
from hloopt.findings.finding import FindingRemedy, Gain, Measure, Spent
from hloopt.findings.parts import cut_out
from hloopt.findings.planning import Planner, ProgramPlan
from hloopt.ir import Instruction, Module
from hloopt.ir.build import clone_module
from hloopt.kernels.costs import KernelCost
from hloopt.numbers import byte_size
from hloopt.ops import traits
from hloopt.prover.compare import compare_modules
from hloopt.prover.comparing import FirstRuns
from hloopt.prover.executor import Executor
from hloopt.prover.trials import TrialOptions
from hloopt.rewrite import Watcher
from hloopt.runtime.tolerance import FREE, Tolerance
from hloopt.verifier import verify_module

__all__ = [
    "ComparedPlans",
    "CountedFigure",
    "FindingCandidate",
    "Gainless",
    "ModuleChange",
    "Subject",
    "Tried",
]

ModuleChange: TypeAlias = Callable[[Module, Sequence[Instruction]], bool]
"""Makes the change at instructions of a copy; False where it cannot be made there after all."""

CountedFigure: TypeAlias = Callable[[Module], float]
"""What is counted in a module where neither its time nor its memory is the matter."""

_WHOLE: Final = 1500
"""Instructions up to which a change is tried in the whole module; around it in larger ones."""
_PART: Final = 120
"""Instructions of a part, besides those that are changed."""
_BESIDE: Final = 0.75
"""The part of the cost from which on it is said to be of kernels around the instructions."""
_FLOPS: Final = 4e9
_BYTES: Final = 2e9
_LAUNCHES: Final = 50_000
_BYTES_MADE: Final = 2e9
"""The most that a module may compute, move, launch and make for its results to be compared here.

Bounds of errors take some 25 ns for each byte that arithmetic makes.
"""
_ARRAY: Final = 1 << 27
"""Bytes of the largest array: bounds of errors keep some twenty of a size."""


@dataclass(frozen=True)
class FindingCandidate:
    """What may be a finding: it is one if the change gains.

    sites     instructions of the subject, all of one computation; the first is the one that costs
    why       the cause, in one or two sentences
    remedies  what the user can do, the best first
    change    makes it on a copy, given the sites there
    blocking  instructions that stand in the way
    tolerance what the results may differ by, where the change itself rounds more coarsely
    counted   the figure of the module before and after, in ``unit``: of compile time and accuracy, and of time
              where that is not the sum of all kernels
    wanted    pairs of instructions that fusion is to put into one kernel, besides the change
    is_late   whether the change is made in the plan, without ``sites``, which it does not have
    holds     what must be so of the plans before and after it, for the gain to be of this cause
    instead   the same with another change, which counts where it gains more
    changed   what a late change has made of the plan, where its detector has tried it
    narrows   whether the change asks for more of indices than the module does: then inputs are made for it
    priced    makes what is planned and priced instead, where a user does once, outside of the program, what the
              change does in it for the results to be compared
    exact     makes what the changed module is compared with, where the results of the given one are wrong;
              ``exactly`` says what that is
    """

    sites: tuple[Instruction, ...]
    why: str
    remedies: tuple[FindingRemedy, ...]
    change: ModuleChange
    blocking: tuple[Instruction, ...] = ()
    tolerance: Tolerance = FREE
    counted: CountedFigure | None = None
    unit: str = "elements"
    wanted: tuple[tuple[str, str], ...] = ()
    is_late: bool = False
    holds: Callable[[ProgramPlan, ProgramPlan], bool] | None = None
    instead: FindingCandidate | None = None
    changed: Module | None = None
    narrows: bool = False
    priced: ModuleChange | None = None
    exact: ModuleChange | None = None
    exactly: str = ""


@dataclass(frozen=True)
class ComparedPlans:
    """Plans before and after a change.

    inputs_of  the module that says what inputs both take
    times      how often they run while the module runs once
    """

    plans: tuple[ProgramPlan, ProgramPlan]
    inputs_of: Module
    times: int


@dataclass(frozen=True)
class Tried:
    """A change that gained.

    gain, cost  how much, and what the instructions cost before it
    sites       the instructions of the module that are changed, each with its computation, by name
    kernels     of the whole plan that compute them; None where ``Subject.placed`` is to find them
    compared    the plans of the part that was changed; None where another process made them
    """

    gain: Gain
    cost: Spent
    sites: tuple[tuple[str, str], ...]
    kernels: tuple[Instruction, ...] | None
    compared: ComparedPlans | None


@dataclass(frozen=True)
class Gainless:
    """A change that was tried and rejected: its figures before and after, and why."""

    before: float
    after: float
    reason: str


class Subject:
    """A module whose calls are inlined, and its plan: what kinds look through, and what changes are made on.

    ``given`` is the module before that, where it is at hand; ``first_runs`` are of the module, and of plans;
    ``watchers`` observe how the whole is planned.
    """

    def __init__(
        self,
        module: Module,
        planner: Planner,
        given: Module | None = None,
        watchers: Sequence[Watcher] = (),
    ) -> None:
        self._watchers = watchers
        self.module = module
        self.given = given
        self.planner = planner
        self.first_runs = FirstRuns()

    @cached_property
    def plan(self) -> ProgramPlan:
        """The plan of the whole module."""
        return self.planner.plan(self.module, watchers=self._watchers)

    @cached_property
    def _runs(self) -> dict[str, tuple[int, bool]]:
        found = executions(self.module, lambda _: 0.0)
        return {computation.name: (one.times, one.known) for computation, one in found.items()}

    def runs(self, instruction: Instruction) -> tuple[int, bool]:
        """How often an instruction runs while the entry runs once, and whether that is exact."""
        return self._runs.get(instruction.home.name, (1, True))

    @cached_property
    def has_lines(self) -> bool:
        """Whether the module says which lines of a program it is from."""
        module = self.module
        return any(module.user_line(one.metadata) for one in module.instructions())

    @property
    def is_small(self) -> bool:
        """Whether changes are tried in the whole module."""
        return self.module.instruction_count() <= _WHOLE

    def tried(self, group: Sequence[FindingCandidate], measure: Measure) -> Tried | Gainless | None:
        """What the changes of one cause gain together; None where none can be made.

        In a large module the first is tried, in the part around it, and counts as often as all of them run.
        """
        if self.is_small or group[0].is_late:
            trial = _Trial(group, measure, self.module, self.plan, 1)
            return self._compared(trial)
        first = group[0]
        part = cut_out(first.sites, _PART)
        sites = tuple(part.found[one] for one in first.sites)
        times = sum(self.runs(one.sites[0])[0] for one in group)
        before = self.planner.plan(part.module)
        moved = replace(first, sites=sites)
        trial = _Trial((moved,), measure, part.module, before, times)
        return self._compared(trial, [site for one in group for site in one.sites])

    def placed(self, tried: Tried) -> Tried:
        """A change with what it has in common with the whole plan, where it was tried in a part alone."""
        if tried.kernels is not None:
            return tried
        homes = self.module.computations
        kernels = self.kernels_of(homes[home].by_name[name] for home, name in tried.sites)
        whole = self.plan.seconds
        share = tried.cost.seconds / whole if whole else 0.0
        return replace(tried, kernels=kernels, cost=replace(tried.cost, share=share))

    def _compared(
        self, trial: _Trial, sites: Sequence[Instruction] = ()
    ) -> Tried | Gainless | None:
        before, is_late = trial.plan, trial.group[0].is_late
        given = before.module if is_late else trial.module
        changed = trial.changed(given)
        if changed is None:
            return None
        first, times = trial.group[0], trial.times
        made = trial.changed(given, first.priced) if first.priced else changed
        assert made is not None, "what can be changed can be priced"
        if is_late:
            after = self.planner.priced(made, before.provenance)
        else:
            after = self.planner.plan(made, trial.wanted)
        figures = trial.figures(made, after)
        if not _gains(trial.measure, *figures):
            return Gainless(*figures, "no gain")
        if first.holds is not None and not first.holds(before, after):
            return Gainless(*figures, _objection(trial.measure, before, after))
        # The first of two modules says what their inputs are.
        compared = (changed, given) if first.narrows else (given, changed)
        if first.exact is not None:
            exact = trial.changed(given, first.exact)
            assert exact is not None, "what can be changed can be made exact"
            compared = exact, changed
        verdict, reason = _verdict(compared, before, first.tolerance, self.first_runs)
        if verdict == "differ":
            return Gainless(*figures, "the results would differ")
        gain = Gain(
            trial.measure,
            *figures,
            "predicted" if first.counted is None or trial.measure == "time" else "counted",
            (before.seconds * times, after.seconds * times),
            (before.peak_bytes, after.peak_bytes),
            verdict,
            reason or first.exactly,
            0 if trial.module is self.module else trial.module.instruction_count(),
            first.unit,
        )
        rows = before.others_than(after)
        tried = Tried(
            gain,
            _spent(rows, times),
            tuple((one.home.name, one.name) for one in sites),
            None,
            ComparedPlans((before, after), compared[0], times),
        )
        if trial.module is not self.module:
            return tried
        kernels = tuple(row.instruction for row in rows)
        share = tried.cost.seconds / before.seconds if before.seconds else 0.0
        sites_in = (site for entry in trial.group for site in entry.sites)
        own = _with_their_own(self.kernels_of(sites_in))
        beside = sum(row.seconds for row in rows if row.instruction not in own)
        # A pass may have made others of what computes the instructions: then their kernels are not known.
        is_known = bool(own) and not is_late and first.sites[0].opcode != "while"
        mostly_beside = is_known and beside > _BESIDE * tried.cost.seconds
        cost = replace(tried.cost, share=share, mostly_beside=mostly_beside)
        return replace(tried, kernels=kernels, cost=cost)

    def kernels_of(self, sites: Iterable[Instruction]) -> tuple[Instruction, ...]:
        """The kernels of the plan that compute instructions of the module."""
        explanation, provenance = self.plan.explanation, self.plan.provenance
        found: dict[Instruction, None] = {}
        for site in sites:
            fusion = next((one for one in site.home.callers if one.opcode == "fusion"), site)
            place = fusion.home.name, fusion.name
            for node in provenance.became.get(place, (place,)):
                for kernel in explanation.kernels_of(node):
                    home = self.plan.module.computations[kernel.computation]
                    if kernel.now in home.by_name:
                        found[home.by_name[kernel.now]] = None
        return tuple(found)


def _with_their_own(kernels: Sequence[Instruction]) -> set[Instruction]:
    """Kernels with those that only they read: products in parts, padded factors."""
    own, pending = set(kernels), list(kernels)
    while pending:
        for operand in pending.pop().operands:
            if operand not in own and own.issuperset(operand.users):
                own.add(operand)
                pending.append(operand)
    return own


def _spent(rows: Sequence[KernelCost], times: int) -> Spent:
    """What kernels of a plan take that runs ``times`` often."""
    return Spent(
        sum(row.seconds for row in rows) * times,
        sum(row.cost.bytes_accessed * row.runs for row in rows) * times,
        sum(row.counted for row in rows) * times,
        all(row.known for row in rows),
        next((row.prediction.bound for row in rows if row.prediction is not None), ""),
    )


@dataclass(frozen=True)
class _Trial:
    """Changes to try in a module whose plan runs ``times`` often."""

    group: Sequence[FindingCandidate]
    measure: Measure
    module: Module
    plan: ProgramPlan
    times: int

    def changed(self, module: Module, instead: ModuleChange | None = None) -> Module | None:
        """A copy of the module with those of the changes that can be made, or others; None without any."""
        first = self.group[0]
        if first.changed is not None and instead is None and len(self.group) == 1:
            verify_module(first.changed, like=module)
            return first.changed
        copy = clone_module(module)
        found = [
            [copy.computations[one.home.name].by_name[one.name] for one in entry.sites]
            if not entry.is_late
            else []
            for entry in self.group
        ]
        made = False
        for entry, places in zip(self.group, found, strict=True):
            if all(one.computation is not None for one in places):
                made |= (instead or entry.change)(copy, places)
        if made:
            verify_module(copy, like=module)
        return copy if made else None

    @property
    def wanted(self) -> tuple[tuple[str, str], ...]:
        """The pairs that are to be fused."""
        return tuple(pair for entry in self.group for pair in entry.wanted)

    def figures(self, changed: Module, after: ProgramPlan) -> tuple[float, float]:
        """What the measure is about, before and after."""
        counted = self.group[0].counted
        if counted is not None:
            return counted(self.module), counted(changed)
        if self.measure == "memory":
            return float(self.plan.peak_bytes), float(after.peak_bytes)
        return self.plan.seconds * self.times, after.seconds * self.times


def _gains(measure: Measure, before: float, after: float) -> bool:
    """Whether a change is worth a paragraph: 2 % of what it is about, and not within the model's rounding."""
    least = {"time": 0.5e-6, "memory": float(1 << 19)}.get(measure, 0.0)
    return before - after > max(0.02 * before, least)


def _objection(measure: Measure, before: ProgramPlan, after: ProgramPlan) -> str:
    """Why a change that gains by its own measure is no finding by what its kind demands of the plans."""
    if measure == "time":
        return "less than the prices may be off by"
    slower = after.seconds > before.seconds
    return "a run would take too long" if slower else "the gain is of another cause"


def _as_written(module: Module) -> tuple[float, float, float]:
    """Flops, and bytes of results, of all ops as written, as often as they run; bytes of the largest."""
    runs = executions(module, lambda one: float(one.shape.byte_size))
    ops = [
        (run.counted, one)
        for computation, run in runs.items()
        for one in computation
        if one.opcode not in traits.FREE | traits.CONTROL_FLOW
    ]
    return (
        sum(times * instruction_cost(one).flops for times, one in ops),
        sum(times * one.shape.byte_size for times, one in ops),
        max((float(one.shape.byte_size) for _, one in ops), default=0.0),
    )


def _verdict(
    modules: tuple[Module, Module], plan: ProgramPlan, tolerance: Tolerance, kept: FirstRuns
) -> tuple[str, str]:
    """The judge's word on the results of both on random inputs, and why there is none."""
    cost = plan.totals.cost
    if cost.flops > _FLOPS or cost.bytes_accessed > _BYTES or plan.totals.launches > _LAUNCHES:
        return "not verified", "a run takes too long here"
    # The bounds of errors are found op by op; what a plan updates in place is copied in each iteration.
    flops, size, largest = map(max, zip(*map(_as_written, modules), strict=True))
    if flops > _FLOPS or size > _BYTES_MADE:
        return "not verified", "the bounds of rounding take too long here"
    if largest > _ARRAY:
        return "not verified", f"an array of {byte_size(int(largest))} takes too much memory here"
    try:
        found = compare_modules(
            *modules,
            trials=TrialOptions(trials=1),
            executor=Executor("cpu"),
            tolerance=tolerance,
            kept=kept,
        )
    except HlooptError as error:
        return "not verified", error.message
    return found.verdict, ""
