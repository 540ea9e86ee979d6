"""The candidates of a kind, tried: what gained as findings, what did not, and how far that has come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.findings.finding import Finding, FindingRemedy, GainlessChange
from hloopt.findings.kinds import FindingKind
from hloopt.findings.trials import FindingCandidate, Gainless, Subject, Tried
from hloopt.ir import Instruction, Module
from hloopt.rewrite import Pass, Watcher
from hloopt.rewrite.source_lines import kernel_lines

__all__ = ["GroupTries", "KindGroups", "KindTries", "SearchProgress", "try_kind"]

_ENOUGH: Final = 0.5
"""The part of the best gain at which the first of several changes is taken."""


class SearchProgress:
    """What a search for findings does at the moment; any thread may read it.

    doing   a few words
    part    of the steps of this stage, those that are done, from 0 to 1; None where their number is not known
    """

    def __init__(self) -> None:
        self.expect(0)
        self.doing = ""
        self.part: float | None = None

    @property
    def watcher(self) -> Watcher:
        """What shows the passes of a plan while they run."""
        return _Passes(self)

    def begin(self, doing: str) -> None:
        """Begin work of which no part is known."""
        self.doing, self.part = doing, None

    def expect(self, total: int, what: str = "change") -> None:
        """A stage of so many steps begins, each ``what``."""
        self._total, self._what = total, what

    def at(self, done: int, doing: str) -> None:
        """Begin with a step after so many others."""
        self.doing = f"{self._what} {done + 1} of {self._total}, {doing}"
        self.part = done / self._total


class _Passes(Watcher):
    def __init__(self, progress: SearchProgress) -> None:
        self._progress = progress

    def before(self, number: int, instance: Pass, module: Module) -> None:
        self._progress.begin(f"{instance.name}, pass {number}")

    def end(self, module: Module) -> None:
        self._progress.begin("pricing the kernels")


@dataclass(frozen=True)
class KindTries:
    """What became of the candidates of a kind.

    found     those that gained
    useless   changes that gained nothing, or changed the results
    untried   how many smaller candidates were left out
    """

    found: tuple[tuple[Finding, Tried], ...]
    useless: tuple[GainlessChange, ...]
    untried: int


@dataclass(frozen=True)
class GroupTries:
    """What became of some groups: what gained, changes that did not, and how many groups were left out."""

    found: tuple[tuple[Finding, Tried], ...] = ()
    useless: tuple[GainlessChange, ...] = ()
    untried: int = 0


class KindGroups:
    """The ``most`` largest groups of candidates of a kind, each with one change for all of them.

    Those of memory are one step: to look for them is to make changes in the plan of the whole module.
    """

    def __init__(self, kind: FindingKind, subject: Subject, most: int) -> None:
        self.kind = kind
        self._subject = subject
        self._most = most
        self._is_one_step = kind.measure == "memory"

    @cached_property
    def _all(self) -> list[list[FindingCandidate]]:
        groups = _grouped(self.kind.find(self._subject))
        groups.sort(key=lambda group: -_weight(group, self._subject))
        return groups

    @property
    def _left_out(self) -> int:
        return max(0, len(self._all) - self._most)

    def __len__(self) -> int:
        return 1 if self._is_one_step else len(self._all) - self._left_out

    def tried(self, number: int) -> GroupTries:
        """Try the changes of a group; all of them, where they are one step."""
        if not self._is_one_step:
            return self._tried(self._all[number])
        rows = [self._tried(group) for group in self._all[: self._most]]
        return GroupTries(
            tuple(pair for row in rows for pair in row.found),
            tuple(one for row in rows for one in row.useless),
            self._left_out,
        )

    def _tried(self, group: Sequence[FindingCandidate]) -> GroupTries:
        kind, subject = self.kind, self._subject
        tries = [(subject.tried(way, kind.measure), way) for way in _ways(group)]
        gained = [(made, way) for made, way in tries if isinstance(made, Tried)]
        if not gained:
            return GroupTries(
                useless=tuple(
                    _gainless(kind, way[0], made)
                    for made, way in tries
                    if isinstance(made, Gainless)
                )
            )
        best = max(made.gain.saved for made, _ in gained)
        made, way = next(pair for pair in gained if pair[0].gain.saved >= _ENOUGH * best)
        remedies = _remedies(way[0], subject)
        return GroupTries(((_finding(kind, way, made, remedies), made),) if remedies else ())

    def made(self, tries: Iterable[GroupTries]) -> KindTries:
        """What became of all groups."""
        rows = tuple(tries)
        untried = sum(row.untried for row in rows) if self._is_one_step else self._left_out
        return KindTries(
            tuple(pair for row in rows for pair in row.found),
            tuple(one for row in rows for one in row.useless),
            untried,
        )


def try_kind(kind: FindingKind, subject: Subject, most: int) -> KindTries:
    """Try the ``most`` largest groups of candidates of a kind."""
    groups = KindGroups(kind, subject, most)
    return groups.made(map(groups.tried, range(len(groups))))


def _weight(group: Sequence[FindingCandidate], subject: Subject) -> float:
    return sum(_bytes(one) * subject.runs(one.sites[0])[0] for one in group)


def _remedies(candidate: FindingCandidate, subject: Subject) -> tuple[FindingRemedy, ...]:
    """Without changes of the user's program where the site comes from no line of it."""
    site = candidate.sites[0]
    if site.opcode == "parameter" or not subject.has_lines or _lines(site.module, candidate.sites):
        return candidate.remedies
    return tuple(one for one in candidate.remedies if one.way != "model")


def _finding(
    kind: FindingKind,
    group: Sequence[FindingCandidate],
    made: Tried,
    remedies: tuple[FindingRemedy, ...],
) -> Finding:
    first = group[0]
    site = first.sites[0]
    others = dict.fromkeys(one.name for entry in group for one in entry.sites)
    others.pop(site.name)
    return Finding(
        kind.name,
        kind.title,
        site.name,
        site.home.name,
        site.opcode,
        str(site.shape),
        tuple(others),
        _lines(site.module, first.sites),
        str((site.metadata.fields if site.metadata else {}).get("op_name", "")),
        made.cost,
        first.why,
        tuple(dict.fromkeys(one.name for one in first.blocking)),
        remedies,
        made.gain,
    )


def _gainless(kind: FindingKind, candidate: FindingCandidate, made: Gainless) -> GainlessChange:
    site = candidate.sites[0]
    return GainlessChange(
        kind.name,
        kind.title,
        site.name,
        next(iter(_lines(site.module, candidate.sites)), ""),
        kind.measure,
        made.before,
        made.after,
        candidate.unit,
        candidate.remedies[0].text,
        made.reason,
    )


def _grouped(candidates: Iterable[FindingCandidate]) -> list[list[FindingCandidate]]:
    """Candidates at the same line of the program, of the same op and shape: one change for all of them."""
    groups: dict[tuple[object, ...], list[FindingCandidate]] = {}
    for one in candidates:
        site = one.sites[0]
        line = site.module.user_line(site.metadata)
        key = (line, site.opcode, str(site.shape), site.home.name) if line else (id(one),)
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def _ways(group: Sequence[FindingCandidate]) -> Iterator[Sequence[FindingCandidate]]:
    """The changes that may help against one cause."""
    while group:
        yield group
        group = [one.instead for one in group if one.instead is not None]


def _bytes(candidate: FindingCandidate) -> int:
    site = candidate.sites[0]
    return site.shape.byte_size + sum(operand.shape.byte_size for operand in site.operands)


def _lines(module: Module, sites: Sequence[Instruction]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for one in sites:
        found.update(dict.fromkeys(kernel_lines(module, one) or module.user_lines(one.metadata)))
    return tuple(found)
