"""Changes of large modules, tried by two processes: some while the whole is planned, then the others."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Self, TypeAlias

from hloopt.findings.finding import Finding
from hloopt.findings.kind_tries import KindTries, try_kind
from hloopt.findings.kinds import FindingKind
from hloopt.findings.planning import ProgramPlan
from hloopt.findings.trials import Subject, Tried
from hloopt.prover.processes import ChildProcess, StoppedWork, can_work_beside

__all__ = ["TriedAhead", "TriedBeside"]

_Names: TypeAlias = "tuple[tuple[str, str], ...] | None"
_Sent: TypeAlias = "tuple[KindTries, tuple[_Names, ...]]"
"""What the other process sends: kernels by computation and name, since instructions belong to one process."""


class _PlanNeededError(Exception):
    """Raised where the plan of the whole module is asked for while it is being made."""


class _SubjectAhead(Subject):
    @cached_property
    def plan(self) -> ProgramPlan:
        raise _PlanNeededError


def _is_worth_it(subject: Subject, most: int) -> bool:
    """Small modules are tried faster than a process starts."""
    return most > 0 and not subject.is_small and can_work_beside()


def _sent(tries: KindTries) -> _Sent:
    """Without the plans that were compared: the process that waits needs their figures alone."""
    found, names = list[tuple[Finding, Tried]](), list[_Names]()
    for row, tried in tries.found:
        kernels = tried.kernels
        names.append(
            None if kernels is None else tuple((one.home.name, one.name) for one in kernels)
        )
        found.append((row, replace(tried, compared=None, kernels=None)))
    return replace(tries, found=tuple(found)), tuple(names)


def _received(sent: _Sent, subject: Subject) -> KindTries:
    tries, names = sent
    found = []
    for (row, tried), places in zip(tries.found, names, strict=True):
        if places is not None:
            homes = subject.plan.module.computations
            kernels = tuple(homes[home].by_name[name] for home, name in places)
            tried = replace(tried, kernels=kernels)
        found.append((row, tried))
    return replace(tries, found=tuple(found))


class TriedAhead:
    """The kinds whose candidates are found and tried without the plan of the whole module.

    ``most`` candidates of a kind are tried.  No second process is started for small modules, whose changes are
    tried in the whole, with ``most`` 0, or where ``can_work_beside`` is false: then nothing is tried ahead.
    """

    def __init__(self, subject: Subject, kinds: Sequence[FindingKind], most: int) -> None:
        self._whole = subject
        self._subject = _SubjectAhead(subject.module, subject.planner, subject.given)
        self._kinds = kinds
        self._most = most
        worth = _is_worth_it(subject, most)
        self._child = ChildProcess(self._tried, None) if worth else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.end()

    def found(self) -> Mapping[str, KindTries]:
        """What became of the candidates, by the names of kinds; others are to be tried with the plan."""
        found = {} if self._child is None else self._child.answer()
        if isinstance(found, StoppedWork):
            return {}
        return {name: _received(sent, self._whole) for name, sent in found.items()}

    def _tried(self) -> dict[str, _Sent]:
        made: dict[str, _Sent] = {}
        for kind in self._kinds:
            try:
                made[kind.name] = _sent(try_kind(kind, self._subject, self._most, str))
            except _PlanNeededError:
                continue
        return made


class TriedBeside:
    """Kinds that need the plan, tried by two processes: each takes the next kind when it is done with one.

    Where one process is to do it alone, as ``TriedAhead`` says, nothing is tried here.
    """

    def __init__(self, subject: Subject, kinds: Sequence[FindingKind], most: int) -> None:
        self._subject = subject
        # Those of memory, the last, take longest: their changes are made and priced in the plan of the whole.
        self._kinds = tuple(reversed(kinds))
        self._most = most
        self._child: ChildProcess[dict[str, _Sent]] | None = None
        self._claims = -1
        if len(kinds) > 1 and _is_worth_it(subject, most):
            _ = subject.plan.assignment  # both processes need it
            self._claims, write = os.pipe()
            os.write(write, bytes(range(len(kinds))))
            os.close(write)
            self._child = ChildProcess(self._tried, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.end()
            os.close(self._claims)

    def found(self) -> Mapping[str, KindTries]:
        """What became of the candidates, by the names of kinds; those are missing that a process failed at."""
        if self._child is None:
            return {}
        mine = {
            kind.name: try_kind(kind, self._subject, self._most, str) for kind in self._claimed()
        }
        _ = self._subject.plan.explanation  # needed next, and the other process may not be done
        others = self._child.answer()
        if isinstance(others, StoppedWork):
            return mine
        return mine | {name: _received(sent, self._subject) for name, sent in others.items()}

    def _tried(self) -> dict[str, _Sent]:
        return {
            kind.name: _sent(try_kind(kind, self._subject, self._most, str))
            for kind in self._claimed()
        }

    def _claimed(self) -> Iterator[FindingKind]:
        """Kinds that no process has taken yet: a byte of the pipe is read by one of them alone."""
        while number := os.read(self._claims, 1):
            yield self._kinds[number[0]]
