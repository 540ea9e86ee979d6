"""Pipelines: passes in a row, groups of passes repeated until nothing changes, and their runner.

The runner times, counts and verifies; it drops ``is_scheduled`` where instructions may have moved, and
with ``verify_each`` it also checks what every pass says it changed against the module's fingerprint.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from hloopt.errors import HlooptError, UsageError, VerifyError
from hloopt.ir import Module, fingerprint
from hloopt.rewrite import spec
from hloopt.rewrite.pass_ import Pass, PassLog

__all__ = ["Entry", "Fix", "FixRun", "PassRun", "Pipeline", "PipelineReport"]


@dataclass(frozen=True)
class Fix:
    """``fix(a,b)``: its entries again and again until none of them changes anything.

    ``limit`` is the number of rounds after which the runner gives up and says so.
    """

    entries: tuple[Entry, ...]
    limit: int = 25

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise UsageError(
                f"fix{{limit={self.limit}}}: the limit counts rounds and is at least 1"
            )

    def __str__(self) -> str:
        inner = ",".join(map(_text, self.entries))
        return f"fix{spec.options_text(self, ('entries',))}({inner})"


Entry: TypeAlias = Pass | Fix


@dataclass(frozen=True)
class PassRun:
    """One run of one pass: its number from 1, what it says it did, and how long it took.

    ``instructions`` is the count of the whole module afterwards, ``round`` the round of the innermost
    ``fix`` group (0 outside of one), ``records`` the plans the pass left in its log.
    """

    number: int
    instance: Pass
    round: int
    changed: bool
    seconds: float
    instructions: int
    hits: Counter[str]
    notes: tuple[str, ...]
    records: tuple[object, ...]


@dataclass(frozen=True)
class FixRun:
    """How a ``fix`` group ended; ``last_change`` names the last pass that changed anything."""

    group: Fix
    rounds: int
    converged: bool
    last_change: str

    def __str__(self) -> str:
        if self.converged:
            return f"{self.group}: converged after {self.rounds} rounds"
        return (
            f"{self.group}: not converged after {self.rounds} rounds, "
            f"last change by {self.last_change}"
        )


@dataclass
class PipelineReport:
    """What happened: every run in order, every ``fix`` group, and the instruction counts."""

    instructions_before: int = 0
    instructions_after: int = 0
    runs: list[PassRun] = field(default_factory=list)
    groups: list[FixRun] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether any pass changed the module."""
        return any(run.changed for run in self.runs)

    @property
    def notes(self) -> list[str]:
        """What a user should see: groups that did not converge and what passes had to say."""
        open_groups = [str(group) for group in self.groups if not group.converged]
        return open_groups + [
            f"{run.instance.name}: {note}" for run in self.runs for note in run.notes
        ]

    def seconds(self) -> dict[str, float]:
        """Seconds by pass name, all runs together, in the order of the first run."""
        total: dict[str, float] = {}
        for run in self.runs:
            total[run.instance.name] = total.get(run.instance.name, 0.0) + run.seconds
        return total

    def hits(self) -> dict[str, Counter[str]]:
        """How often each rule or step applied, by pass name."""
        total: dict[str, Counter[str]] = {}
        for run in self.runs:
            total.setdefault(run.instance.name, Counter()).update(run.hits)
        return total


BeforePass: TypeAlias = Callable[[Pass, Module], None]
AfterPass: TypeAlias = Callable[[PassRun, Module], None]


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
        return cls(tuple(_entries(spec.parse(text), passes, named or {})))

    def __str__(self) -> str:
        return ",".join(map(_text, self.entries))

    def passes(self) -> Iterator[Pass]:
        """All passes, those inside groups included, in the order of the text."""
        yield from _passes(self.entries)

    def run(
        self,
        module: Module,
        *,
        before_pass: BeforePass | None = None,
        after_pass: AfterPass | None = None,
        verify_each: bool = False,
        print_after: tuple[str, ...] = (),
        sink: Callable[[str], None] | None = None,
        show: Callable[[Module], str] = Module.to_text,
    ) -> PipelineReport:
        """Run over ``module`` in place.

        ``print_after`` names passes (or ``all``) after whose changing runs a comment that tells which it
        was, and the module's text as ``show`` gives it, go to ``sink``.  ``verify_each`` verifies before
        the first and after every changing pass, and raises ``VerifyError`` naming the pass that broke the
        module or told an untruth about changing it.
        Raises ``UsageError`` when ``print_after`` names a pass that is not in the pipeline.
        """
        _check_print_after(print_after, self)
        runner = _Runner(module, before_pass, after_pass, verify_each, print_after, sink, show)
        return runner.run(self.entries)


def _entries(
    specs: tuple[spec.Spec, ...], passes: Mapping[str, type[Pass]], named: Mapping[str, str]
) -> Iterator[Entry]:
    for entry in specs:
        if isinstance(entry, spec.FixSpec):
            options = spec.read_options(_FixOptions, "fix", entry.options)
            yield Fix(tuple(_entries(entry.entries, passes, named)), **options)
        elif entry.name in named:
            if entry.options:
                raise UsageError(f"{entry.name} is a named pipeline and has no options")
            yield from _entries(spec.parse(named[entry.name]), passes, named)
        else:
            if entry.name not in passes:
                valid = [*passes, *named, "fix"]
                raise UsageError(
                    f"no pass is called '{entry.name}'" + spec.did_you_mean(entry.name, valid)
                )
            yield spec.make_pass(entry, passes)


@dataclass(frozen=True)
class _FixOptions:
    """The options of ``fix`` that have a text form of their own."""

    limit: int = Fix.limit


def _text(entry: Entry) -> str:
    return str(entry) if isinstance(entry, Fix) else spec.pass_text(entry)


def _passes(entries: tuple[Entry, ...]) -> Iterator[Pass]:
    for entry in entries:
        if isinstance(entry, Fix):
            yield from _passes(entry.entries)
        else:
            yield entry


def _check_print_after(names: tuple[str, ...], pipeline: Pipeline) -> None:
    known = {entry.name for entry in pipeline.passes()} | {"all"}
    for name in names:
        if name not in known:
            raise UsageError(
                f"cannot print after '{name}': it is not in the pipeline"
                + spec.did_you_mean(name, known)
            )


@dataclass
class _Runner:
    """The state of one run of a pipeline."""

    module: Module
    before_pass: BeforePass | None
    after_pass: AfterPass | None
    verify_each: bool
    print_after: tuple[str, ...]
    sink: Callable[[str], None] | None
    show: Callable[[Module], str]
    report: PipelineReport = field(default_factory=PipelineReport)
    fingerprint: str = ""

    def run(self, entries: tuple[Entry, ...]) -> PipelineReport:
        self.report.instructions_before = self.module.instruction_count()
        if self.verify_each:
            _verify(self.module)
            self.fingerprint = fingerprint(self.module)
        for entry in entries:
            self.run_entry(entry, 0)
        self.report.instructions_after = self.module.instruction_count()
        return self.report

    def run_entry(self, entry: Entry, round_number: int) -> str:
        """Run one entry; the name of the last pass that changed anything, or an empty string."""
        if isinstance(entry, Fix):
            return self.run_fix(entry)
        return entry.name if self.run_pass(entry, round_number) else ""

    def run_fix(self, group: Fix) -> str:
        # A round ends early once every entry has run without a change since the last change.
        last_change, quiet, rounds = "", 0, 0
        while quiet < len(group.entries) and rounds < group.limit:
            rounds += 1
            for entry in group.entries:
                changed = self.run_entry(entry, rounds)
                last_change = changed or last_change
                quiet = 0 if changed else quiet + 1
                if quiet >= len(group.entries):
                    break
        converged = quiet >= len(group.entries)
        self.report.groups.append(FixRun(group, rounds, converged, last_change))
        return last_change

    def run_pass(self, instance: Pass, round_number: int) -> bool:
        if self.before_pass is not None:
            self.before_pass(instance, self.module)
        log = PassLog()
        start = time.perf_counter()
        changed = instance.run(self.module, log)
        seconds = time.perf_counter() - start
        if self.verify_each:
            self.check(instance, changed)
        if changed and not instance.keeps_schedule:
            self.drop_schedule()
        run = PassRun(
            len(self.report.runs) + 1,
            instance,
            round_number,
            changed,
            seconds,
            self.module.instruction_count(),
            log.hits,
            tuple(log.notes),
            tuple(log.records),
        )
        self.report.runs.append(run)
        if changed and self.sink and {"all", instance.name} & set(self.print_after):
            where = f", round {round_number}" if round_number else ""
            self.sink(f"// run {run.number}{where}: after {spec.pass_text(instance)}\n")
            self.sink(f"{self.show(self.module)}\n")
        if self.after_pass is not None:
            self.after_pass(run, self.module)
        return changed

    def drop_schedule(self) -> None:
        scheduled = self.module.attributes.pop("is_scheduled", None)
        if scheduled is not None and self.verify_each:
            self.fingerprint = fingerprint(self.module)

    def check(self, instance: Pass, changed: bool) -> None:
        current = fingerprint(self.module)
        if changed != (current != self.fingerprint):
            claim = "changed the module" if changed else "changed nothing"
            truth = "did not change" if changed else "did change"
            raise VerifyError(
                f"pass {spec.pass_text(instance)} says it {claim}, but its fingerprint {truth}",
                name=self.module.name,
            )
        self.fingerprint = current
        if changed:
            try:
                _verify(self.module)
            except HlooptError as error:
                error.message = f"after pass {spec.pass_text(instance)}: {error.message}"
                raise


def _verify(module: Module) -> None:
    # The verifier reads the whole op table; a pipeline that is not asked to verify does not load it.
    from hloopt.verify import verify_module

    verify_module(module)
