"""The search for a small case: deltas in rounds, each in chunks that become smaller.

As in delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002): all
sites of a delta at once, halves, quarters, each alone.  Of cases that are asked at once the first one that
still fails is taken, so that the result does not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import field
from itertools import islice
from time import monotonic
from typing import Final, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.errors import ShapeError
from hloopt.prover.reduction.case import Case, CaseDraft, dead_places
from hloopt.prover.reduction.children import asked
from hloopt.prover.reduction.deltas import DELTAS, LAST, TRIPS
from hloopt.prover.reduction.questions import CaseOutcome, Question
from hloopt.prover.reduction.recording import Delta, Site, ValueRecorder

__all__ = ["Search", "SearchLimits"]

_SLOWER: Final = 3.0
_LEAST: Final = 2.0
"""A smaller case may take so many times as long as the last one that failed, and at least so many seconds."""
_GROWTH: Final = 3
_ROOM: Final = 200
"""A delta that copies may make a case so many times as large as it was, and add as many instructions."""


_Fresh: TypeAlias = tuple[int, Case, bytes]
"""A draft's number, what it makes, and the digest of that."""


@dataclass(frozen=True)
class SearchLimits:
    """How far a search goes.

    tests         cases that are asked, None for as many as it takes
    seconds       after which none is begun
    test_seconds  how long a case may take; None for some times what the last one took
    jobs          cases that are asked at once
    repeat        how often a case is asked, where the failure does not show in every run
    """

    tests: int | None = None
    seconds: float | None = None
    test_seconds: float | None = None
    jobs: int = 1
    repeat: int = 1


class _EnoughError(Exception):
    """The limits are reached."""


@dataclass
class Search:
    """A search: ``best`` is the smallest case so far, ``tests`` how many were asked, ``doing`` the current
    delta.

    ``on_better`` gets each case that is smaller than all before; ``complete`` says that nothing was left to
    try.
    """

    question: Question
    limits: SearchLimits
    on_better: Callable[[Case], None]
    best: Case
    outcome: CaseOutcome = field(default_factory=lambda: CaseOutcome("equal"))
    tests: int = 0
    doing: str = ""
    complete: bool = False
    interrupted: bool = False

    def begin(self, seconds: float | None = None) -> CaseOutcome:
        """Ask the first case: what comes of it is what smaller ones have to show as well."""
        self._start = monotonic()
        self._seen: set[bytes] = set()
        self._case = self._given = self.best
        self._asking = self.question.quickly()
        self.doing, self._slower = "the module as given", _SLOWER
        for _ in range(self.limits.repeat):
            begin = monotonic()
            seconds = seconds or self.limits.test_seconds
            (self.outcome,) = asked(self.question, [self.best], seconds, as_read=True)
            self._took = monotonic() - begin
            if self.outcome.is_failure:
                break
        return self.outcome

    def fails_again(self) -> bool:
        """Whether the smallest case fails when it is asked once more; an interrupt leaves that open."""
        self.doing = "the smallest module again"
        try:
            return any(
                outcome.alike(self.outcome)
                for _ in range(self.limits.repeat)
                for outcome in asked(self.question, [self.best], self.limits.test_seconds)
            )
        except KeyboardInterrupt:
            self.interrupted = True
            return True

    def run(self) -> Case:
        """Search; an interrupt or a limit ends it with the best case so far.

        What a quick question takes for the failure may be none in the end; then all is asked thoroughly.
        """
        try:
            self._to_the_end()
            if self._asking is not self.question and not self.fails_again():
                self._asking = self.question
                self._case = self.best = self._given
                self._seen.clear()
                self._to_the_end()
            self.complete = not self.interrupted
        except _EnoughError:
            pass
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            self.question.close()
        return self.best

    def _to_the_end(self) -> None:
        """Rounds until nothing is left to try."""
        # Before anything else, since all that is run takes so much less time then.
        self._each_way(TRIPS)
        if self._case is self.best:
            self._keep_dead_code_that_matters()
        while self._round(DELTAS) or self._round(LAST):
            pass

    def _keep_dead_code_that_matters(self) -> None:
        """Remove dead code; where the failure needs it, all that is there now stays."""
        self.doing = "dead code"
        case = CaseDraft(self._case).finish()
        if case is None or self._first([lambda: case]) is None:
            kept = dead_places(self._case.module)
            self._case = Case(self._case.module, self._case.inputs, kept)

    def _round(self, deltas: Sequence[Delta]) -> bool:
        """Try all of these; whether anything became smaller."""
        size = self._case.size
        for delta in deltas:
            self._each_way(delta)
        return self._case.size < size

    def _each_way(self, delta: Delta) -> None:
        self.doing, self._slower = delta.name, 1.0 if delta.quicker else _SLOWER
        if delta.way == "prefix":
            self._longest(delta)
        else:
            self._chunks(delta)

    # ---- ways to choose sites ---------------------------------------------------------------------

    def _chunks(self, delta: Delta) -> None:
        sites, tried = delta.sites(self._case), set[Site]()
        size = 1 if delta.way == "each" else len(sites)
        while size and sites:
            at = 0
            while at < len(sites):
                chunks = [sites[first : first + size] for first in range(at, len(sites), size)]
                found = self._first(self._drafts(delta, chunks))
                last = len(sites) if found is None else at + (found + 1) * size
                tried.update(sites[at:last] if size == 1 else ())
                if found is None:
                    break
                # What is there still, and what has become possible where nothing was tried.
                now = dict.fromkeys(delta.sites(self._case))
                before = [site for site in sites[:last] if site in now]
                done = tried.union(before)
                after = [site for site in now if site not in done]
                sites, at = [*before, *after], len(before)
            size = 0 if size == 1 else (size + 1) // 2

    def _longest(self, delta: Delta) -> None:
        """The most sites from the beginning that can go at once, found by bisection."""
        sites, recorder, start = delta.sites(self._case), ValueRecorder(self._case), self._case
        least, most = 0, len(sites)
        while least < most:
            count = (least + most + 1) // 2
            if self._first([self._draft(delta, start, sites[:count], recorder)]) is None:
                most = count - 1
            else:
                least = count

    def _drafts(
        self, delta: Delta, chunks: Sequence[Sequence[Site]]
    ) -> list[Callable[[], Case | None]]:
        recorder = ValueRecorder(self._case)
        return [self._draft(delta, self._case, chunk, recorder) for chunk in chunks]

    def _draft(
        self, delta: Delta, case: Case, sites: Sequence[Site], recorder: ValueRecorder
    ) -> Callable[[], Case | None]:
        def make() -> Case | None:
            draft = CaseDraft(case)
            try:
                delta.apply(draft, sites, recorder)
                made = draft.finish()
            except ShapeError:
                return None
            if made is None:
                return None
            if delta.grows:
                room = _GROWTH * case.module.instruction_count() + _ROOM
                return made if made.module.instruction_count() <= room else None
            return made if made.size < case.size else None

        return make

    # ---- asking -----------------------------------------------------------------------------------

    def _first(self, drafts: Sequence[Callable[[], Case | None]]) -> int | None:
        """The number of the first draft that still fails, which becomes the case; None where none does."""
        fresh = self._fresh(drafts)
        jobs = max(1, min(self.limits.jobs, self.question.most_jobs))
        while window := list(islice(fresh, jobs)):
            for attempt in range(self.limits.repeat):
                found = self._failing(window, attempt + 1 == self.limits.repeat)
                if found is not None:
                    self._accept(found[1])
                    return found[0]
        return None

    def _fresh(self, drafts: Sequence[Callable[[], Case | None]]) -> Iterator[_Fresh]:
        """The valid drafts that were not asked before."""
        made = set[bytes]()
        for number, make in enumerate(drafts):
            self._check_time()
            case = make()
            if case is None:
                continue
            key = case.digest
            if key not in self._seen and key not in made:
                made.add(key)
                yield number, case, key

    def _failing(self, window: Sequence[_Fresh], is_last: bool) -> _Fresh | None:
        """The first of a window that still fails; None where none does."""
        limits = self.limits
        altogether = None if limits.test_seconds else max(_LEAST, self._slower * self._took)
        begin, cases = monotonic(), [case for _, case, _ in window]
        seconds = limits.test_seconds or altogether
        with closing(asked(self._asking, cases, seconds, altogether)) as outcomes:
            for entry, outcome in zip(window, outcomes, strict=False):
                if limits.tests is not None and self.tests >= limits.tests:
                    raise _EnoughError
                self.tests += 1
                # Those behind the one that is taken were begun, and are not known.
                self._seen.update([entry[2]] if is_last else ())
                if outcome.alike(self.outcome):
                    self._took = monotonic() - begin
                    return entry
        return None

    def _accept(self, case: Case) -> None:
        self._case = case
        if case.size < self.best.size:
            self.best = case
            self.on_better(case)

    def _check_time(self) -> None:
        seconds = self.limits.seconds
        if seconds is not None and monotonic() - self._start > seconds:
            raise _EnoughError
