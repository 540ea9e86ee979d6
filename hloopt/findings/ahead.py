"""Changes of large modules, tried by two processes: some while the whole is planned, then the others."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final, Self, TypeAlias

from hloopt.findings.finding import Finding
from hloopt.findings.kind_tries import GroupTries, KindGroups, KindTries, SearchProgress, try_kind
from hloopt.findings.kinds import FindingKind
from hloopt.findings.planning import ProgramPlan
from hloopt.findings.trials import Subject, Tried
from hloopt.process import add_note
from hloopt.prover.processes import ChildProcess, StoppedWork, can_work_beside

__all__ = ["TriedAhead", "TriedBeside"]

_Names: TypeAlias = "tuple[tuple[str, str], ...] | None"
_Pair: TypeAlias = tuple[Finding, Tried]
_Sent: TypeAlias = "tuple[_Pair, _Names]"
"""What the other process sends: kernels by computation and name, since instructions belong to one process."""
_Row: TypeAlias = "tuple[tuple[int, int], GroupTries, list[_Sent]]"
"""What became of a group: the numbers of its kind and of itself, and what gained as it is sent."""
_CLAIM: Final = 2
"""Bytes of a number in the pipe."""


class _PlanNeededError(Exception):
    """Raised where the plan of the whole module is asked for while it is being made."""


class _SubjectAhead(Subject):
    @cached_property
    def plan(self) -> ProgramPlan:
        raise _PlanNeededError


def _is_worth_it(subject: Subject, most: int) -> bool:
    """Small modules are tried faster than a process starts."""
    return most > 0 and not subject.is_small and can_work_beside()


def _sent(pair: _Pair) -> _Sent:
    """Without the plans that were compared: the process that waits needs their figures alone."""
    row, tried = pair
    kernels = tried.kernels
    names = None if kernels is None else tuple((one.home.name, one.name) for one in kernels)
    return (row, replace(tried, compared=None, kernels=None)), names


def _received(sent: _Sent, subject: Subject) -> _Pair:
    (row, tried), places = sent
    if places is not None:
        homes = subject.plan.module.computations
        tried = replace(tried, kernels=tuple(homes[home].by_name[name] for home, name in places))
    return row, tried


def _note(stopped: StoppedWork) -> None:
    """Say that the other process has failed: the search takes longer, and finds the same."""
    add_note(f"a second process {stopped.reason}: one process has tried all changes instead")


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
            _note(found)
            return {}
        return {
            name: replace(tries, found=tuple(_received(one, self._whole) for one in sent))
            for name, (tries, sent) in found.items()
        }

    def _tried(self) -> dict[str, tuple[KindTries, list[_Sent]]]:
        made = {}
        for kind in self._kinds:
            try:
                tries = try_kind(kind, self._subject, self._most)
            except _PlanNeededError:
                continue
            made[kind.name] = replace(tries, found=()), [*map(_sent, tries.found)]
        return made


class TriedBeside:
    """All groups of candidates, tried by two processes: each takes the next group when it is done with one.

    ``most`` is as in ``TriedAhead``, which says where one process does it alone.
    """

    def __init__(
        self, subject: Subject, kinds: Sequence[KindGroups], most: int, progress: SearchProgress
    ) -> None:
        self._subject = subject
        self._kinds = kinds
        self._progress = progress
        self._places = [(at, number) for at, one in enumerate(kinds) for number in range(len(one))]
        self._child: ChildProcess[list[_Row]] | None = None
        self._claims = -1
        progress.expect(len(self._places))
        if len(self._places) > 1 and _is_worth_it(subject, most):
            _ = subject.plan.assignment  # both processes need it
            # Those of memory, the last, take longest: their changes are made in the plan of the whole.
            self._places.reverse()
            self._claims, write = os.pipe()
            numbers = range(len(self._places))
            os.write(write, b"".join(one.to_bytes(_CLAIM, "little") for one in numbers))
            os.close(write)
            self._child = ChildProcess(self._tried, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.end()
            os.close(self._claims)

    def found(self) -> Mapping[str, KindTries]:
        """What became of the candidates, by the names of kinds."""
        made = {}
        numbers = range(len(self._places)) if self._child is None else self._claimed()
        for number in numbers:
            kind, group = self._places[number]
            self._progress.at(number, self._kinds[kind].kind.name)
            made[kind, group] = self._kinds[kind].tried(group)
        if self._child is not None:
            made |= self._of_the_other(self._child)
        return {
            one.kind.name: one.made(
                made[at, number] if (at, number) in made else one.tried(number)
                for number in range(len(one))
            )
            for at, one in enumerate(self._kinds)
        }

    def _of_the_other(self, child: ChildProcess[list[_Row]]) -> dict[tuple[int, int], GroupTries]:
        """What the other process has tried; nothing where it failed."""
        _ = self._subject.plan.explanation  # needed next, and the other process may not be done
        others = child.answer()
        if isinstance(others, StoppedWork):
            _note(others)
            return {}
        return {
            place: replace(tries, found=tuple(_received(one, self._subject) for one in sent))
            for place, tries, sent in others
        }

    def _tried(self) -> list[_Row]:
        rows: list[_Row] = []
        for claimed in self._claimed():
            kind, group = self._places[claimed]
            tries = self._kinds[kind].tried(group)
            rows.append(((kind, group), replace(tries, found=()), [*map(_sent, tries.found)]))
        return rows

    def _claimed(self) -> Iterator[int]:
        """Groups that no process has taken yet: a number in the pipe is read by one of them alone."""
        while number := os.read(self._claims, _CLAIM):
            yield int.from_bytes(number, "little")
