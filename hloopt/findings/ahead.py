"""Changes of large modules, tried by a process beside this one while this one plans the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Self

from hloopt.findings.kind_tries import KindTries, try_kind
from hloopt.findings.kinds import FindingKind
from hloopt.findings.planning import ProgramPlan
from hloopt.findings.trials import Subject
from hloopt.prover.processes import ChildProcess, StoppedWork, can_work_beside

__all__ = ["TriedAhead"]


class _PlanNeededError(Exception):
    """Raised where the plan of the whole module is asked for while it is being made."""


class _SubjectAhead(Subject):
    @cached_property
    def plan(self) -> ProgramPlan:
        raise _PlanNeededError


class TriedAhead:
    """The kinds whose candidates are found and tried without the plan of the whole module.

    ``most`` candidates of a kind are tried.  No second process is started for small modules, whose changes are
    tried in the whole, with ``most`` 0, or where ``can_work_beside`` is false: then nothing is tried ahead.
    """

    def __init__(self, subject: Subject, kinds: Sequence[FindingKind], most: int) -> None:
        self._subject = _SubjectAhead(subject.module, subject.planner, subject.given)
        self._kinds = kinds
        self._most = most
        is_worth_it = most > 0 and not subject.is_small and can_work_beside()
        self._child = ChildProcess(self._tried, None) if is_worth_it else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.end()

    def found(self) -> Mapping[str, KindTries]:
        """What became of the candidates, by the names of kinds; others are to be tried with the plan."""
        found = {} if self._child is None else self._child.answer()
        return {} if isinstance(found, StoppedWork) else found

    def _tried(self) -> dict[str, KindTries]:
        made: dict[str, KindTries] = {}
        for kind in self._kinds:
            try:
                tries = try_kind(kind, self._subject, self._most, str)
            except _PlanNeededError:
                continue
            # The plans of the parts stay here: who waits needs their figures alone.
            found = tuple((row, replace(tried, compared=None)) for row, tried in tries.found)
            made[kind.name] = replace(tries, found=found)
        return made
