"""What costs most in a module, why, and what would change it: every candidate of every kind, tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from hloopt.analysis.measured import JoinedTimes
from hloopt.dataclass import dataclass
from hloopt.display import Displayed
from hloopt.findings.ahead import TriedAhead, TriedBeside
from hloopt.findings.both_arms import RowChoice, row_choices
from hloopt.findings.collectives import linked
from hloopt.findings.contention import contended
from hloopt.findings.finding import (
    ContendedScatter,
    Finding,
    GainlessChange,
    KernelShare,
    LinkedCollectives,
    LoopBuffer,
    ReducedDot,
    RefusedArray,
)
from hloopt.findings.kind_tries import KindGroups, KindTries, SearchProgress
from hloopt.findings.kinds import FindingKind
from hloopt.findings.loop_copies import loop_buffers
from hloopt.findings.measuring import RealRuns, measured_gain
from hloopt.findings.peak import PeakUse, peak_use
from hloopt.findings.planning import (
    CpuLowering,
    Planner,
    check_planned_for,
    is_planned,
    lowered_for_cpu,
)
from hloopt.findings.products import reduced_dot
from hloopt.findings.temporaries import largest_kept
from hloopt.findings.trials import Subject, Tried
from hloopt.findings.whole_sorts import WholeSort, whole_sorts
from hloopt.interpret.shards import meshes_of
from hloopt.ir import Module
from hloopt.ir.build import clone_module, no_collection
from hloopt.ir.walk import callers_first
from hloopt.kernels.costs import KernelCost
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import Pipeline
from hloopt.types import Metadata

__all__ = ["Findings", "find"]

_SINKING: Final = (
    '"f(broadcast(A), broadcast(B)) => broadcast(f(A, B))",'
    '"f(broadcast(A), iota) => broadcast(f(broadcast(A), iota))"'
)
_OPENED: Final = (
    "fix(call-inliner,tuple-simplifier,zero-sized,scatter-to-slice{limit=1},"
    f"simplify{{disable=[{_SINKING}]}},cse,dce)"
)
"""Calls inlined, and what every compiler simplifies first: detectors see each pattern in one form.

Broadcasts stay where they are: the compiler's own simplifier divides by the root of one otherwise than by
the broadcast of a root, and each stage moves them."""
_FREE: Final = 0.1
"""The part of a device's memory from which on a program is short of it."""
_TRIED: Final = 2
"""Candidates of a kind that are tried, for each paragraph wanted; the largest first."""


@dataclass(frozen=True)
class Findings(Displayed):
    """What was found of a module on a target.

    peak      what is alive where most memory is needed
    pipeline  the passes that stand for the compiler; ``as given`` where the module is planned already
    kernels   those that take longest, by a real run where one is given
    measured  the times of that run, joined to the kernels of the plan
    loops     large arrays that loops update in place
    arrays    the largest between kernels, each with the refusal that keeps it in memory and both prices
    reduced   a dot that the compiler computes as a sum, if there is one
    scatters  whose time depends on how many indices are equal
    sorts     that take much of the time and are read as a whole
    lowering  what a CPU's code in the module is, where the target is a GPU
    choices   of whole rows between two arms, one of which takes much of the time for all of them
    links     what collectives take, by kind and link
    rows      the findings, those that gain most first
    useless   changes that were tried and gained nothing, or changed the results
    untried   how many smaller candidates were left out, by kind
    """

    module: str
    target: str
    cost_model: str
    pipeline: str
    seconds: float
    launches: int
    peak_bytes: int
    peak: PeakUse
    kernels: tuple[KernelShare, ...]
    loops: tuple[LoopBuffer, ...]
    arrays: tuple[RefusedArray, ...]
    reduced: ReducedDot | None
    scatters: tuple[ContendedScatter, ...]
    sorts: tuple[WholeSort, ...]
    lowering: CpuLowering | None
    choices: tuple[RowChoice, ...]
    links: tuple[LinkedCollectives, ...]
    rows: tuple[Finding, ...]
    useless: tuple[GainlessChange, ...]
    untried: dict[str, int]
    measured: JoinedTimes | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        run = self.measured
        return {
            "module": self.module,
            "target": self.target,
            "cost_model": self.cost_model,
            "pipeline": self.pipeline,
            "seconds": self.seconds,
            "launches": self.launches,
            "peak_bytes": self.peak_bytes,
            "peak": self.peak.to_json(),
            "kernels": [one.to_json() for one in self.kernels],
            "loops": [one.to_json() for one in self.loops],
            "arrays": [one.to_json() for one in self.arrays],
            "reduced_dot": None if self.reduced is None else self.reduced.to_json(),
            "scatters": [one.to_json() for one in self.scatters],
            "sorts": [one.to_json() for one in self.sorts],
            "lowered_for_cpu": None if self.lowering is None else self.lowering.to_json(),
            "row_choices": [one.to_json() for one in self.choices],
            "collectives": [one.to_json() for one in self.links],
            "findings": [one.to_json() for one in self.rows],
            "without_gain": [one.to_json() for one in self.useless],
            "untried": self.untried,
            "measured": None
            if run is None
            else {
                "trace": run.trace,
                "program": run.program.name,
                "runs": run.runs,
                "seconds": run.run_seconds,
                "joined": run.share(run.joined),
            },
        }


def find(
    module: Module,
    planner: Planner,
    label: str,
    kinds: Sequence[FindingKind],
    most: int = 10,
    progress: SearchProgress | None = None,
    real: RealRuns | None = None,
) -> Findings:
    """The ``most`` findings of these kinds that gain most; the module stays as it is.

    ``label`` is what the planner's pipeline is called.  A module that a compiler has planned already is priced
    as it stands, after changes too.  ``real`` says what is measured, too.

    Raises ``UsageError`` for a plan of a GPU on a CPU.
    """
    check_planned_for(planner.predictor.target, module)
    given, module = module, clone_module(module)
    _count_devices(module)
    if is_planned(module):
        planner, label = Planner(Pipeline(()), planner.predictor), "as given"
    else:
        _locate(module)
        parse_pipeline(_OPENED).run(module)
    at = progress or SearchProgress()
    subject = Subject(module, planner, given, (at.watcher,))
    # The plan stays until the end, and is large beside what trials leave behind.
    with no_collection():
        return _searched(subject, label, kinds, most, at, real or RealRuns())


def _searched(
    subject: Subject,
    label: str,
    kinds: Sequence[FindingKind],
    most: int,
    progress: SearchProgress,
    real: RealRuns,
) -> Findings:
    run = None if real.joined is None else real.joined(subject.plan.module)
    found = _Search(subject, most, progress, run)
    tried = _TRIED * most if real.device is None else 0
    with TriedAhead(subject, kinds, tried) as ahead:
        _ = subject.plan
        progress.begin("looking for changes")
        known = dict(ahead.found())
    left = [KindGroups(kind, subject, _TRIED * most) for kind in kinds if kind.name not in known]
    with TriedBeside(subject, left, tried, progress) as beside:
        known |= beside.found()
    progress.begin("ranking what gains")
    for kind in kinds:
        found.add(kind, known[kind.name])
    plan, planner, module = subject.plan, subject.planner, subject.module
    return Findings(
        module.name,
        planner.predictor.target.name,
        planner.predictor.model.name,
        label,
        plan.seconds,
        plan.totals.launches,
        plan.peak_bytes,
        peak_use(subject),
        _kernels(subject, run),
        loop_buffers(subject),
        largest_kept(subject),
        reduced_dot(subject),
        contended(subject),
        whole_sorts(subject),
        lowered_for_cpu(planner.predictor.target, module),
        row_choices(subject),
        linked(subject),
        tuple(found.best() if real.device is None else found.measured(real.device)),
        tuple(found.useless),
        found.untried,
        run,
    )


def _count_devices(module: Module) -> None:
    """Say how many partitions a module has where only its mesh does: then all of them can be run."""
    counts = [mesh.count for mesh in meshes_of(module).values()]
    if counts and not {"num_partitions", "replica_count"} & module.attributes.keys():
        module.attributes["num_partitions"] = max(counts)


def _locate(module: Module) -> None:
    """Give what a call runs the line of the call where it has none, as in functions of libraries."""
    for computation in callers_first(module):
        for call in computation:
            if call.opcode != "call" or not module.user_line(call.metadata):
                continue
            for one in call.attributes["to_apply"]:
                if not module.user_line(one.metadata):
                    own = one.metadata.fields if one.metadata else {}
                    fields = {**(call.metadata.fields if call.metadata else {}), **own}
                    one.metadata = Metadata.of(fields)


class _Search:
    """Candidates that gained, as findings."""

    def __init__(
        self,
        subject: Subject,
        most: int,
        progress: SearchProgress,
        run: JoinedTimes | None,
    ) -> None:
        self.subject = subject
        self.most = most
        self.progress = progress
        self.run = run
        self.found: list[tuple[Finding, Tried]] = []
        self.useless: list[GainlessChange] = []
        self.untried: dict[str, int] = {}

    def add(self, kind: FindingKind, tries: KindTries) -> None:
        """Add what the candidates of a kind gained."""
        for row, made in tries.found:
            tried = self.subject.placed(made)
            cost = tried.cost
            if self.run is not None and tried.kernels is not None:
                cost = replace(cost, measured=self.run.seconds_of(tried.kernels))
            self.found.append((replace(row, cost=cost), tried))
        self.useless += tries.useless
        if tries.untried:
            self.untried[kind.name] = tries.untried

    def measured(self, device: str) -> list[Finding]:
        """The best, each with what its change gains on a device; those last that do not gain there."""
        rows, best = [], self._best()
        self.progress.expect(len(best))
        for number, (row, made) in enumerate(best):
            self.progress.at(number, f"measuring {row.kind}")
            if row.gain.measure == "time":
                pair = made.compared
                assert pair is not None, "what is measured is tried by this process"
                real = measured_gain(pair.plans, pair.inputs_of, device, pair.times)
                row = replace(row, gain=replace(row.gain, measured=real))
            rows.append(row)
        return sorted(rows, key=_is_refuted)

    def best(self) -> list[Finding]:
        """Those that gain most."""
        return [row for row, _ in self._best()]

    def _best(self) -> list[tuple[Finding, Tried]]:
        """Those that gain most: the part of the whole that the change saves.

        Of a real run's time it is that part of what the kernels took there; what it does not have comes last.
        Memory counts less where most of the device's is free.
        """
        plan, run = self.subject.plan, self.run
        room = self.subject.planner.predictor.target.memory_size * _FREE
        whole = {"time": plan.seconds, "memory": max(float(plan.peak_bytes), room)}

        def weight(found: tuple[Finding, Tried]) -> float:
            row = found[0]
            if run is not None and row.gain.measure == "time":
                part = row.gain.saved / row.cost.seconds if row.cost.seconds else 0.0
                return min(part, 1.0) * (row.cost.measured or 0.0) / run.run_seconds
            all_of_it = max(whole.get(row.gain.measure, row.gain.before), row.gain.before)
            return row.gain.saved / all_of_it if all_of_it else 0.0

        return sorted(self.found, key=lambda row: -weight(row))[: self.most]


def _is_refuted(row: Finding) -> bool:
    """Whether the change was measured and does not gain."""
    real = row.gain.measured
    return real is not None and not real.reason and not real.gains


def _kernels(subject: Subject, run: JoinedTimes | None, most: int = 5) -> tuple[KernelShare, ...]:
    plan = subject.plan

    def measured(row: KernelCost) -> float | None:
        return None if run is None else run.seconds_of([row.instruction])

    rows = sorted(plan.rows, key=lambda row: (-(measured(row) or 0.0), -row.seconds))[:most]
    return tuple(
        KernelShare(
            row.instruction.name,
            row.lines,
            row.prediction.bound if row.prediction is not None else "",
            row.launches_text,
            row.seconds,
            row.seconds / plan.seconds if plan.seconds else 0.0,
            measured(row),
        )
        for row in rows
    )
