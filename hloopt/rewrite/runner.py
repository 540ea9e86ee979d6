"""The pass runner: pipelines, and running their entries one after the other.

The runner times, counts and verifies; it drops ``is_scheduled`` where instructions may have moved, and
with ``verify_each`` it also checks what every pass says it changed against the module's fingerprint.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from hloopt.dataclass import dataclass
from hloopt.errors import EvaluationError, HlooptError, UsageError, VerifyError
from hloopt.ir import Module
from hloopt.ir.build import no_collection
from hloopt.rewrite import spec
from hloopt.rewrite.entries import Entry, Fix, each_pass, entry_text, make_entries
from hloopt.rewrite.outcome import FixRun, PassRun, PipelineReport
from hloopt.rewrite.pass_ import Pass, PassLog, RemarkKind
from hloopt.rewrite.spec import did_you_mean, pass_text

__all__ = ["Controls", "Pipeline", "Watcher", "check_names", "run_entries"]


_PATIENCE = 4
"""The number of rounds a group may change the module before cycles are looked for."""
_BOTH: frozenset[RemarkKind] = frozenset({"passed", "missed"})


class Watcher:
    """An observer of the runner: prints, writes files, counts.  It does not change the module."""

    def begin(self, module: Module) -> None:
        """Before the first pass."""

    def before(self, number: int, instance: Pass, module: Module) -> None:
        """Before a pass's run of this number."""

    def after(self, run: PassRun, module: Module) -> None:
        """After a pass's run."""

    def end(self, module: Module) -> None:
        """After the last pass."""


@dataclass(frozen=True)
class Controls:
    """How far a pipeline may go, and what it reports.

    fuel         the most rewrites each of these passes may make in all of its runs together
    stop_after   the number of the last run, None for all
    verify_each  whether to verify after every pass, and to check what it says it changed
    remarks      whether passes log a remark for each rewrite made and missed
    advice       what the user wants decided otherwise; passes get it with their log
    """

    fuel: Mapping[str, int] = field(default_factory=dict)
    stop_after: int | None = None
    verify_each: bool = False
    remarks: bool = False
    advice: object | None = None

    def check(self, entries: tuple[Entry, ...]) -> None:
        """Raise ``UsageError`` for fuel of a pass that is not in the pipeline, and for negative numbers."""
        check_names(self.fuel, entries, "give fuel to")
        for name, amount in self.fuel.items():
            if amount < 0:
                raise UsageError(f"the fuel of {name} counts rewrites: {amount} is less than 0")
        if self.stop_after is not None and self.stop_after < 0:
            raise UsageError(f"runs are counted: {self.stop_after} is less than 0")


def check_names(
    names: Sequence[str] | Mapping[str, int], entries: tuple[Entry, ...], what: str
) -> None:
    """Raise ``UsageError`` for the name of a pass that is not in the pipeline; ``what`` cannot be done."""
    known = list(dict.fromkeys(instance.name for instance in each_pass(entries)))
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) if known else " (the pipeline is empty)"
            raise UsageError(f"cannot {what} '{name}': it is not in the pipeline{hint}")


def run_entries(
    entries: tuple[Entry, ...], module: Module, controls: Controls, watchers: Sequence[Watcher]
) -> PipelineReport:
    """Run over ``module`` in place."""
    controls.check(entries)
    # What passes take out is free at once: instructions that are removed lead nowhere.
    with no_collection():
        return _Runner(module, controls, watchers).run(entries)


@dataclass
class _Runner:
    """The state of one run of a pipeline."""

    module: Module
    controls: Controls
    watchers: Sequence[Watcher]
    report: PipelineReport = field(default_factory=PipelineReport)
    fuel: dict[str, int] = field(default_factory=dict)
    fingerprint: str = ""

    @property
    def stopped(self) -> bool:
        """Whether the last requested run is over."""
        return self.controls.stop_after is not None and (
            len(self.report.runs) >= self.controls.stop_after
        )

    def run(self, entries: tuple[Entry, ...]) -> PipelineReport:
        self.fuel = dict(self.controls.fuel)
        self.report.instructions_before = self.module.instruction_count()
        if self.controls.verify_each:
            _verify(self.module)
            self.fingerprint = _fingerprint(self.module)
        for watcher in self.watchers:
            watcher.begin(self.module)
        for entry in entries:
            self.run_entry(entry, 0)
        for watcher in self.watchers:
            watcher.end(self.module)
        self.report.instructions_after = self.module.instruction_count()
        self.report.messages += [*self.about_fuel(), *self.about_end()]
        return self.report

    def run_entry(self, entry: Entry, round_number: int) -> str:
        """Run one entry; the name of the last pass that changed anything, or an empty string."""
        if self.stopped:
            return ""
        if isinstance(entry, Fix):
            return self.run_fix(entry)
        return entry.name if self.run_pass(entry, round_number) else ""

    def run_fix(self, group: Fix) -> str:
        # A round ends early once every entry has run without a change since the last change; what settles
        # counts itself among them when it changes something.
        last_change, quiet, rounds = "", 0, 0
        circles = _Circles()
        fighters: tuple[PassRun, ...] = ()
        while quiet < len(group.entries) and rounds < group.limit and not fighters:
            rounds += 1
            for entry in group.entries:
                changed = self.run_entry(entry, rounds)
                last_change = changed or last_change
                quiet = int(_settles(entry)) if changed else quiet + 1
                if quiet >= len(group.entries) or self.stopped:
                    break
            if self.stopped:
                return last_change
            if quiet < len(group.entries):
                fighters = circles.close(rounds, self.module, self.report.runs)
        converged = quiet >= len(group.entries)
        self.report.groups.append(FixRun(group, rounds, converged, last_change, fighters))
        return last_change

    def run_pass(self, instance: Pass, round_number: int) -> bool:
        number = len(self.report.runs) + 1
        for watcher in self.watchers:
            watcher.before(number, instance, self.module)
        log = PassLog(
            kinds=_BOTH if self.controls.remarks else frozenset(),
            fuel=self.fuel.get(instance.name),
            advice=self.controls.advice,
        )
        start = time.perf_counter()
        changed = _run_one(instance, self.module, log, number)
        seconds = time.perf_counter() - start
        if log.fuel is not None:
            self.fuel[instance.name] = log.fuel
        if self.controls.verify_each:
            self.check(instance, changed)
        if changed and not instance.keeps_schedule:
            self.drop_schedule()
        run = PassRun(
            number,
            instance,
            round_number,
            changed,
            seconds,
            self.module.instruction_count(),
            log.hits,
            tuple(log.notes),
            tuple(log.records),
            tuple(log.remarks),
        )
        self.report.runs.append(run)
        for watcher in self.watchers:
            watcher.after(run, self.module)
        return changed

    def drop_schedule(self) -> None:
        scheduled = self.module.attributes.pop("is_scheduled", None)
        if scheduled is not None and self.controls.verify_each:
            self.fingerprint = _fingerprint(self.module)

    def check(self, instance: Pass, changed: bool) -> None:
        current = _fingerprint(self.module)
        differs = changed and not instance.names_only
        if differs != (current != self.fingerprint):
            claim = "changed the module" if differs else "changed nothing"
            claim = "changed names alone" if changed and not differs else claim
            truth = "did not change" if differs else "did change"
            raise VerifyError(
                f"pass {pass_text(instance)} says it {claim}, but its fingerprint {truth}",
                name=self.module.name,
            )
        self.fingerprint = current
        if changed:
            try:
                _verify(self.module)
            except HlooptError as error:
                error.message = f"after pass {pass_text(instance)}: {error.message}"
                raise

    def about_fuel(self) -> list[str]:
        """Which passes had no more fuel, or took more than they had."""
        said = []
        for name, given in self.controls.fuel.items():
            left = self.fuel[name]
            if left < 0:
                said.append(f"{name}: {given - left} rewrites with fuel for {given}")
            elif left == 0:
                said.append(f"{name}: out of fuel after {given} rewrites")
        return said

    def about_end(self) -> list[str]:
        """Where ``stop_after`` stopped the runner."""
        wanted, runs = self.controls.stop_after, self.report.runs
        if wanted is None:
            return []
        if len(runs) < wanted:
            return [f"the pipeline ended after {len(runs)} runs, before run {wanted}"]
        return [f"stopped after {runs[-1].title}" if runs else "stopped before the first run"]


def _settles(entry: Entry) -> bool:
    return not isinstance(entry, Fix) and entry.settles


@dataclass
class _Circles:
    """Whether the rounds of a group bring back a module it had before.

    Compares fingerprints, which are computed only where the number of instructions has occurred
    before: groups that reach a fixpoint do not pay for them.
    """

    counts: set[int] = field(default_factory=set)
    seen: dict[str, int] = field(default_factory=dict)

    def close(self, rounds: int, module: Module, runs: list[PassRun]) -> tuple[PassRun, ...]:
        """The changing runs since the module was the same, after a round; empty where it was not."""
        count = module.instruction_count()
        known = count in self.counts
        self.counts.add(count)
        if rounds < _PATIENCE or not known:
            return ()
        mark = _fingerprint(module)
        if mark in self.seen:
            return tuple(run for run in runs[self.seen[mark] :] if run.changed)
        self.seen[mark] = len(runs)
        return ()


def _run_one(instance: Pass, module: Module, log: PassLog, number: int) -> bool:
    """Run a pass; what goes wrong in it says in which."""
    try:
        return instance.run(module, log)
    except HlooptError:
        raise
    except Exception as error:
        if type(instance).__module__.startswith("hloopt."):
            error.add_note(f"in run {number}: {pass_text(instance)}")
            raise
        message = f"pass {instance.name} failed in run {number}: {type(error).__name__}: {error}"
        raise EvaluationError(f"{message}{_raised_at(error)}") from error


def _raised_at(error: BaseException) -> str:
    """`` (file.py:12)`` of the innermost place."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    file = Path(trace.tb_frame.f_code.co_filename)
    shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    return f" ({shown}:{trace.tb_lineno})"


def _fingerprint(module: Module) -> str:
    # Hashes come with a library that most pipelines need not wait for.
    from hloopt.ir.canonical import fingerprint

    return fingerprint(module)


def _verify(module: Module) -> None:
    # The verifier reads the whole op table; a pipeline that does not verify does not load it.
    from hloopt.verifier import verify_module

    verify_module(module)


@dataclass(frozen=True)
class Pipeline:
    """Passes and ``fix`` groups in order; ``str`` gives the text it can be read back from."""

    entries: tuple[Entry, ...] = ()

    @classmethod
    def parse(
        cls,
        text: str,
        passes: Mapping[str, type[Pass]],
        named: Mapping[str, str] | None = None,
    ) -> Pipeline:
        """Read a text as in ``rewrite/spec.py``; names in ``named`` stand for whole pipelines.

        Raises ``UsageError`` for an unknown pass or option, with the nearest name and all valid ones.
        """
        return cls(
            tuple(make_entries(spec.parse(text), passes.get, lambda: tuple(passes), named or {}))
        )

    def __str__(self) -> str:
        return ",".join(map(entry_text, self.entries))

    def passes(self) -> Iterator[Pass]:
        """All passes, those inside groups included, in the order of the text."""
        return each_pass(self.entries)

    def run(
        self,
        module: Module,
        *,
        verify_each: bool = False,
        controls: Controls | None = None,
        watchers: Sequence[Watcher] = (),
    ) -> PipelineReport:
        """Run over ``module`` in place; ``watchers`` see it before and after every pass.

        ``verify_each``, as in ``controls``, verifies before the first and after every changing pass, and
        raises ``VerifyError`` naming the pass that broke the module or misreported whether it changed it.
        Raises ``UsageError`` when ``controls`` name a pass that is not in the pipeline.
        """
        return run_entries(
            self.entries, module, controls or Controls(verify_each=verify_each), watchers
        )
