"""What happened while a pipeline ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import field, replace

from hloopt.dataclass import dataclass
from hloopt.rewrite.entries import Fix
from hloopt.rewrite.pass_ import Pass, Remark
from hloopt.rewrite.spec import pass_text

__all__ = ["FixRun", "LoggedRemark", "PassRun", "PipelineReport"]


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
    remarks: tuple[Remark, ...] = ()

    @property
    def title(self) -> str:
        """``run 3, round 2: simplify{fast_math=true}``."""
        where = f", round {self.round}" if self.round else ""
        return f"run {self.number}{where}: {pass_text(self.instance)}"


@dataclass(frozen=True)
class FixRun:
    """How a ``fix`` group ended; ``last_change`` names the last pass that changed anything.

    ``fighters`` are the runs after which the module is what it was before them: they would go on forever.
    """

    group: Fix
    rounds: int
    converged: bool
    last_change: str
    fighters: tuple[PassRun, ...] = ()

    def __str__(self) -> str:
        name = _short(str(self.group))
        if self.converged:
            return f"{name}: converged after {self.rounds} rounds"
        if self.fighters:
            return (
                f"{name}: stopped after {self.rounds} rounds, the module is again what it was: "
                + _undoing(self.fighters)
            )
        return (
            f"{name}: not converged after {self.rounds} rounds, last change by {self.last_change}"
        )


_LONGEST = 100


def _short(group: str) -> str:
    """A group's text, without what is in the middle where it is long."""
    half = _LONGEST // 2
    return group if len(group) <= _LONGEST else f"{group[:half]}...{group[-half:]}"


_MOST_RULES = 3


def _undoing(runs: tuple[PassRun, ...]) -> str:
    """``simplify ('A => B') and cse undo each other``."""
    hits: dict[str, Counter[str]] = {}
    for run in runs:
        hits.setdefault(run.instance.name, Counter()).update(run.hits)
    described = []
    for name, rules in hits.items():
        shown = ", ".join(f"'{rule}'" for rule, _ in rules.most_common(_MOST_RULES))
        described.append(f"{name} ({shown})" if shown else name)
    if len(described) == 1:
        return f"{described[0]} undoes what it did"
    return f"{', '.join(described[:-1])} and {described[-1]} undo each other"


@dataclass(frozen=True, slots=True)
class LoggedRemark:
    """A remark of a pass; ``run`` is the number of the first of its ``count`` runs that made it."""

    run: int
    pass_name: str
    remark: Remark
    count: int = 1


@dataclass
class PipelineReport:
    """What happened: every run in order, every ``fix`` group, and the instruction counts.

    ``messages`` are the runner's own: fuel that ran out, and where ``stop_after`` stopped it.
    """

    instructions_before: int = 0
    instructions_after: int = 0
    runs: list[PassRun] = field(default_factory=list)
    groups: list[FixRun] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether any pass changed the module."""
        return any(run.changed for run in self.runs)

    @property
    def notes(self) -> list[str]:
        """What a user should see: groups that did not converge and what passes and runner had to say."""
        open_groups = [str(group) for group in self.groups if not group.converged]
        said = [f"{run.instance.name}: {note}" for run in self.runs for note in run.notes]
        return open_groups + list(dict.fromkeys(said)) + self.messages

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

    def remarks(self) -> list[LoggedRemark]:
        """The remarks of passes on rewrites made and missed, in order.

        What was missed repeatedly is reported once, and not at all where the same rule was applied to the
        same instruction later on.
        """
        every = list(self._all_remarks())
        made = {
            _place(logged): number
            for number, logged in enumerate(every)
            if logged.remark.kind == "passed"
        }
        found: dict[object, LoggedRemark] = {}
        for number, logged in enumerate(every):
            if logged.remark.kind == "passed":
                found[number] = logged
            elif number > made.get(_place(logged), -1):
                key = (*_place(logged), logged.remark.into, logged.remark.reason)
                first = found.get(key)
                found[key] = logged if first is None else replace(first, count=first.count + 1)
        return list(found.values())

    def _all_remarks(self) -> Iterator[LoggedRemark]:
        for run in self.runs:
            for remark in run.remarks:
                yield LoggedRemark(run.number, run.instance.name, remark)


def _place(logged: LoggedRemark) -> tuple[str, str, str, str]:
    remark = logged.remark
    return logged.pass_name, remark.rule, remark.computation, remark.instruction
