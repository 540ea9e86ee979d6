"""Bisecting a dump: which stage changes results, by which rewrite, and what disables its pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hloopt.analysis.differences import Difference, differences
from hloopt.dataclass import dataclass
from hloopt.errors import HlooptError, UsageError
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.walk import called_computations, calls_by_attribute
from hloopt.prover.bisection import (
    Bisection,
    ChangedInstruction,
    ChangedSide,
    Culprit,
    different_results,
    instruction_line,
)
from hloopt.prover.executor import Executor, Run
from hloopt.prover.localizing import Located, locate
from hloopt.prover.stages import (
    DumpStage,
    StagePair,
    StageSearch,
    compiler_of,
    is_about_running,
    read_stage,
)
from hloopt.prover.trials import Arrays, TrialInputs, TrialOptions
from hloopt.prover.xla_oracle import XlaOracle
from hloopt.runtime.inputs import load_all_expected
from hloopt.runtime.tolerance import FREE, Tolerance

if TYPE_CHECKING:
    from hloopt.proto.snapshot import Snapshot

__all__ = ["DumpBisect"]

_MOST_REWRITTEN: Final = 12
_STEPS: Final = 3
"""Steps from the first value that differs within which what was rewritten is taken to belong to it."""


@dataclass
class DumpBisect:
    """A bisection of the stages of one module of a dump.

    name       the module, as the dump calls it; ``folder`` is the dump
    stages     in the order of compilation, two at least
    inputs     on which inputs stages are run
    every      find all stages that change results, not only the first
    snapshot   of one run, in the dump
    recorded   results on the first inputs, of each participant, that the compiled program gave; None for the
               snapshot's, where nothing is said about inputs
    flags      ``XLA_FLAGS`` with which XLA is asked
    expect     a file or folder of such results
    search     what was examined, once it runs
    """

    name: str
    folder: str
    stages: Sequence[DumpStage]
    inputs: TrialOptions = TrialOptions()
    executor: Executor = Executor()
    tolerance: Tolerance = FREE
    every: bool = False
    snapshot: Snapshot | None = None
    recorded: Arrays | None = None
    flags: str = ""
    expect: Path | None = None
    search: StageSearch | None = None
    _asking: str = ""

    @property
    def status(self) -> str:
        """Where the search is, for a progress line."""
        if self._asking:
            return self._asking
        return self.search.status if self.search is not None else ""

    @property
    def unreadable(self) -> list[HlooptError]:
        """Errors of the stages that cannot be read."""
        failures = self.search.failures if self.search is not None else []
        return [error for error in failures if not is_about_running(error)]

    def run(self) -> Bisection:
        """Examine the stages.

        Raises ``UsageError`` where there are fewer than two, what reading the first one raises, and
        ``UsageError`` where inputs do not fit it.
        """
        if len(self.stages) < 2:
            raise UsageError(
                f"{self.name}: it has one stage in this dump, and bisecting needs two: dump with "
                "--xla_dump_hlo_pass_re=.*"
            )
        search = self.search = StageSearch(
            self.stages, self._trials(), self.executor, self.tolerance, every=self.every
        )
        search.run()
        culprits = [self._culprit(pair) for pair in search.found]
        generated = None if culprits else self._generated(search)
        summary = _summary(search)
        if generated is not None:
            culprits.append(generated)
            summary += ": code generation"
        return Bisection(
            "stages",
            self.name,
            self.folder,
            tuple(inputs.origin for inputs in search.trials),
            tuple(search.examined),
            tuple(culprits),
            summary,
            tuple(_notes(search)),
            0 if culprits else _failed(search),
        )

    def _trials(self) -> list[TrialInputs]:
        """The inputs of the first stage that can be read."""
        snapshot = self.snapshot
        if snapshot is not None and self.recorded is None and snapshot.results:
            asked = self.inputs.inputs or self.inputs.seed is not None
            if not (asked or self.inputs.trials or self.inputs.special):
                self.recorded = [list(snapshot.results)]
        module = read_stage(self.stages[0])
        trials = list(self.inputs.all(module, snapshot))
        if self.expect is not None:
            self.recorded = load_all_expected(self.expect, module, prod(trials[0].counts))
        return trials

    def _generated(self, search: StageSearch) -> Culprit | None:
        """What the compiled program computes otherwise than the last stage that was run; None where nothing."""
        if self.recorded is None or search.last is None:
            return None
        stage, own = search.last.stage, search.last.runs[0]
        oracle = self._oracle(search.trials[0])
        compared = oracle.judged(own, Run(own.module, self.recorded))
        if compared.equal:
            return None
        first: tuple[str, ...] = ()
        entries: tuple[ChangedInstruction, ...] = ()
        notes = []
        reason = oracle.obstacle()
        try:
            found = None if reason else oracle.first_wrong(read_stage(self.stages[0]))
        except HlooptError as error:
            found, reason = None, str(error).partition("\n")[0]
        if found is not None:
            first = (
                f"the first value that XLA computes otherwise is %{found.instruction.name}",
                found.comparison.reason,
            )
            entries = (ChangedInstruction.of(found.instruction, "before", is_first=True),)
            if found.alone:
                notes.append("it is right where the values before it are returned beside it")
        elif reason:
            notes.append(f"its first wrong value was not searched for: {reason}")
        else:
            notes.append("XLA here computes each of its values right where they are returned")
        return Culprit(
            "code generation",
            stage.label,
            "the stages agree, and the results of the compiled program are others",
            different_results(own, compared),
            first,
            entries,
            notes=tuple(notes),
        )

    def _oracle(self, inputs: TrialInputs) -> XlaOracle:
        return XlaOracle(inputs, self.executor, self.tolerance, self.flags, begin=self._ask)

    def _ask(self, what: str) -> None:
        self._asking = what

    def _remedy(self, pair: StagePair) -> tuple[str, str]:
        """What switches off the pass that made a stage, and whether that helps."""
        name = pair.after.pass_name
        if pair.between or not name or not pair.allowed.known:
            return "", ""
        if compiler_of(self.stages) == "hloopt":
            return f"--disable {name}", "untested"
        if pair.allowed.required:
            return "", f"cannot be switched off: {pair.allowed.required}"
        flag = f"--xla_disable_hlo_passes={name}"
        if any("gpu" in stage.label for stage in self.stages):
            return flag, "untested: the dump is of XLA's GPU compiler; the one here is for CPUs"
        oracle = self._oracle(pair.inputs)
        obstacle = oracle.obstacle()
        if obstacle:
            return flag, f"untested: {obstacle}"
        first = self.executor.run(read_stage(self.stages[0]), pair.inputs)
        return flag, oracle.without(first, name)

    def _culprit(self, pair: StagePair) -> Culprit:
        allowed, stage = pair.allowed, pair.after
        located = _located(pair, excess_precision=self.executor.excess_precision)
        remedy, tried = self._remedy(pair)
        return Culprit(
            _names(pair),
            stage.label,
            f"{allowed.kind}: {allowed.reason}, so {allowed.allowed}",
            different_results(pair.runs[0], pair.compared),
            first=_first_value(located) if located is not None else (),
            rewritten=_rewritten(pair, located),
            remedy=remedy,
            remedy_note=tried,
            notes=tuple(f"{one.label} is between, not run" for one in pair.between),
        )


def _located(pair: StagePair, *, excess_precision: bool) -> Located | None:
    """The first value that differs; None where the values do not say, or the first run cannot be repeated."""
    counts = [len(arrays) for arrays in pair.runs[0].results]
    places = [(number, output) for number, count in enumerate(counts) for output in range(count)]
    wrong = [
        place
        for place, found in zip(places, pair.compared.results, strict=True)
        if not found.passed
    ]
    if any(found.problem for found in pair.compared.results):
        return None
    try:
        return locate(
            pair.runs[0].module,
            pair.runs[1].module,
            pair.inputs,
            wrong,
            tolerance=pair.tolerance,
            excess_precision=excess_precision,
        )
    except HlooptError:
        return None


def _first_value(located: Located) -> tuple[str, ...]:
    """What is to be said of the first value that differs."""
    after, before = located.after, located.before
    place = "".join(
        f", in iteration {iteration} of %{caller.name}"
        for caller, iteration in after.place.path
        if caller.opcode == "while"
    )
    lines = [f"the first value that differs is %{after.place.instruction.name}{place}"]
    if located.trips is not None:
        lines.append(f"its loop runs {located.trips[1]} iterations instead of {located.trips[0]}")
    elif before is not None and before in located.sides.before.seen:
        lines.append(located.sides.counterparts.compared(after, before).reason)
    return tuple(line for line in lines if line)


def _rewritten(pair: StagePair, located: Located | None) -> tuple[ChangedInstruction, ...]:
    """The rewrite that gives the first value that differs; where that is not known, what differs first."""
    modules = pair.runs[0].module, pair.runs[1].module
    listed = differences(*modules)
    changed = [(one.before, one.after) for one in listed]
    found: dict[Instruction, ChangedInstruction] = {}

    def add(entry: Instruction | None, side: ChangedSide) -> None:
        if entry is not None and len(found) < _MOST_REWRITTEN:
            one = ChangedInstruction.of(entry, side, is_first=located is not None)
            found.setdefault(entry, one)

    if located is not None:
        near = _near(located)
        if located.before is not None:
            add(located.before.place.instruction, "before")
        add(located.after.place.instruction, "after")
        for leaf in located.missing:
            if leaf.place.instruction.opcode != "parameter":
                add(leaf.place.instruction, "before")
        own = [(one.before, one.after) for one in listed if _is_own(one)]
        changed = sorted(
            (*_renamed(near, modules[0]), *changed),
            key=lambda one: (one not in own, near.steps(*one)),
        )
        is_only = len(own) == 1
        changed = [one for one in changed if near.steps(*one) <= _STEPS or (is_only and one in own)]
    for before, after in changed:
        add(before, "before")
        add(after, "after")
    return tuple(found.values())


def _is_own(difference: Difference) -> bool:
    """Whether an instruction of both modules itself computes otherwise, and not only what it reads or runs."""
    before, after = difference.before, difference.after
    if before is None or after is None or difference.what.startswith(("operand", "result")):
        return False
    return difference.what not in calls_by_attribute(before)


def _renamed(near: _Near, before: Module) -> Iterator[tuple[Instruction, Instruction]]:
    """Instructions near by whose name is the same in the first module, and whose text is not."""
    names = {(entry.home.name, entry.name): entry for entry in before.instructions()}
    for entry in near.around:
        other = names.get((entry.home.name, entry.name))
        changed = other is not None and instruction_line(other) != instruction_line(entry)
        if other is not None and changed and entry.home.module is not before:
            yield other, entry


@dataclass(frozen=True)
class _Near:
    """How many steps instructions are from a value that differs.

    around  what it was made of and what reads it, with the calls, fusions and loops around it, by steps
    bodies  computations that it runs; of loops around it what decides how often these run
    """

    around: Mapping[Instruction, int]
    bodies: frozenset[Computation]

    def steps(self, *entries: Instruction | None) -> int:
        """How many steps the nearest is away; more than ``_STEPS`` where none is near."""
        return min(
            0
            if entry is not None and entry.computation in self.bodies
            else self.around.get(entry, _STEPS + 1)
            if entry is not None
            else _STEPS + 1
            for entry in entries
        )


def _near(located: Located) -> _Near:
    leaves = [located.after, *([] if located.before is None else [located.before])]
    callers = [caller for leaf in leaves for caller, _ in leaf.place.path]
    own = [leaf.place.instruction for leaf in leaves]
    bodies = [
        computation
        for entry in own
        if entry.opcode != "fusion"
        for computation in called_computations(entry)
    ]
    bodies += [caller.condition for caller in callers if caller.opcode == "while"]
    around = dict.fromkeys([*own, *callers], 0)
    back, ahead = list(around), list(around)
    for step in range(1, _STEPS + 1):
        back = [operand for entry in back for operand in entry.operands if operand not in around]
        around.update(dict.fromkeys(back, step))
        ahead = [user for entry in ahead for user in entry.users if user not in around]
        around.update(dict.fromkeys(ahead, step))
    return _Near(around, frozenset(bodies))


def _names(pair: StagePair) -> str:
    """The pass, or the passes one of which it is."""
    names = [one.pass_name or one.label for one in (*pair.between, pair.after)]
    return " or ".join(dict.fromkeys(names))


def _summary(search: StageSearch) -> str:
    counts = Counter(one.outcome for one in search.examined)
    left = counts["not run"] + counts["unreadable"]
    if search.found:
        pair = search.found[0]
        return f"{_names(pair)} changes results: stage {pair.after.label}"
    if not counts["first"]:
        return "no stage can be run"
    ran = len(search.examined) - left
    agree = f"all {ran} stages agree"
    return f"{agree}; {left} cannot be read or run" if left else agree


def _notes(search: StageSearch) -> list[str]:
    notes = []
    passes = [stage for stage in search.stages if stage.pass_name]
    if not passes:
        notes.append(
            "the dump has no stages between passes: --xla_dump_hlo_pass_re=.* writes one for each "
            "pass that changes the module"
        )
    if compiler_of(search.stages) == "hloopt":
        notes.append("the stages are of hloopt's own passes")
    return notes


def _failed(search: StageSearch) -> int:
    """The exit code where nothing was found: of stages that cannot be read; where none can be run, of that."""
    ran = any(one.outcome == "first" for one in search.examined)
    errors: list[HlooptError] = [
        error for error in search.failures if not ran or not is_about_running(error)
    ]
    return max((error.exit_code for error in errors), default=0)
