"""The judge: decides whether results are right, for every report.

An element is right where it is equal, both are NaN, or its error is at most what rounding allows *it*.  That is
the smaller one of two:

** the bound that the interpreter computes beside the value (``interpret.bounds``): from what was added for the
   element through the whole program, the units of rounding of each type, the condition of each function.  It is
   0 for what is only moved, and infinite where nothing is proved;
** what roundings seen explain: a few units of the element's own magnitude (``tolerance.MARGINS``), or eight
   times what it moves where the module is evaluated with every rounding moved (four times in floats of 16 bits
   or fewer; ``interpret.rounding``), or what it moves where each is moved so many times as far, and an eighth
   of the bound where that is near what it moved.  Bounds grow without end in long recurrences; errors do not.

Other elements of the array do not matter.  Nothing is evaluated where results are equal bit by bit; bounds are
where they are not, and roundings moved only while an element is within its bound and off by more than its
magnitude explains, for as many evaluations as it takes, 16 at most: more of them allow more, never less.

Integers and pred are right where they are equal, and so are NaN and infinities, or rounding decides what they
are (an index of a maximum, the root of a difference, a sum that overflows in some orders of its terms): where
no bound excludes it and such evaluations had it (``movement.Movement.allows``).
0.0 equals -0.0.  Complex numbers are compared by modulus.  Results without a finite number verify nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from math import isinf
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.errors import EvaluationError
from hloopt.runtime.comparison import Allowance, OutputComparison, compared, explained, unlike
from hloopt.runtime.movement import Movement
from hloopt.runtime.tolerance import FREE, Tolerance
from hloopt.types import Array, of_numpy

if TYPE_CHECKING:
    from hloopt.interpret import Host
    from hloopt.interpret.partitioning import Partitioning
    from hloopt.interpret.progress import Progress
    from hloopt.ir import Module

__all__ = [
    "Evaluation",
    "Judge",
    "OutputComparison",
    "Tolerance",
    "compare",
    "compare_all",
    "judged",
    "named",
]

Results: TypeAlias = "Mapping[Hashable, Array]"
"""Arrays by what they are called: ``(participant, output)``, or the name of what the host was sent."""

Bounds: TypeAlias = "Mapping[Hashable, Array | None]"
"""By the same names how far each element may be off; None is nothing."""

Sample: TypeAlias = "Callable[[int], Results | None]"

_ROUNDS: Final = (2, 4, 8, 16)
"""Evaluations that are compared before it is decided whether more are needed."""


_ENOUGH: Final = 4
"""Evaluations after which a difference may be plain; a quick judge makes no more."""
_FAR: Final = 1000.0


class _Side:
    """One definition of the results: what its evaluation gave, and how rounding may move that.

    ``own`` are its results, perhaps still to be computed, ``sample`` gives those of the evaluation that rounds
    in the way of a number, None where it does not end as the first one did.
    """

    def __init__(
        self,
        own: Results | Callable[[], Results],
        sample: Sample | None,
        bounds: Callable[[], Bounds] | None = None,
    ) -> None:
        self._own, self._sample, self._bounds = own, sample, bounds
        self._taken = 0
        self._bounded: Bounds | None = None
        self._moved: dict[Hashable, Movement] = {}

    @property
    def own(self) -> Results:
        """What the definition gives."""
        if callable(self._own):
            self._own = self._own()
        return self._own

    def knows(self, key: Hashable, want: Array) -> bool:
        """Whether a result can be sampled: one called ``key``, of the shape of ``want``."""
        if self._sample is None:
            return False
        own = self.own.get(key)
        return own is not None and own.shape == want.shape

    def bound(self, key: Hashable, want: Array) -> Array | None:
        """How far each element of a result (flat) may be off from ``want``; None where no bounds are computed.

        ``want`` is the definition's result, or itself off by as much.
        """
        if self._bounds is None:
            return None
        if self._bounded is None:
            self._bounded = self._bounds()
        if key not in self._bounded:
            return None
        found = self._bounded[key]
        if found is None:
            return np.zeros(want.size)
        bound = found.reshape(-1)
        return bound if self.own[key].tobytes() == want.tobytes() else 2 * bound

    def moved(self, key: Hashable, count: int) -> Movement:
        """What the elements of a result (flat) are in ``count`` evaluations: of every four two move farther."""
        assert self._sample is not None
        while self._taken < count:
            self._taken += 1
            farther = self._taken % 4 in (3, 0)
            sample = self._sample(-self._taken if farther else self._taken) or {}
            for name, own in self.own.items():
                if name not in self._moved:
                    self._moved[name] = Movement.of(own)
                other = sample.get(name)
                if other is not None and other.shape == own.shape:
                    self._moved[name].add(own, other, farther=farther)
        return self._moved[key]

    @property
    def is_still(self) -> bool:
        """Whether no evaluation has moved anything, though nothing says that it may."""
        return self._bounds is None and not any(
            moved.spread.any() or moved.beyond.any() or not moved.is_decided
            for moved in self._moved.values()
        )


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How a module is evaluated: on the inputs of each participant, so many replicas and partitions.

    ``begin`` is called with the number of each evaluation, and returns the object that reports its progress and
    has its deadline.  ``parts`` says how the inputs and results are parts of whole arrays, where they are.
    """

    module: Module
    inputs: Sequence[Sequence[Array]]
    counts: tuple[int, int]
    host: Host | None
    excess_precision: bool
    begin: Callable[[int], Progress] | None = None
    parts: Partitioning | None = None

    def results(self, number: int | None = None) -> Results:
        """What it gives: by the definition, or rounded in the way of a number."""
        from hloopt.interpret import Host, evaluate_participants

        own = Host() if self.host is None else self.host.restarted()
        arrays = evaluate_participants(
            self.module,
            self.inputs,
            *self.counts,
            excess_precision=self.excess_precision and (number is None or number % 2 == 0),
            host=own,
            progress=None if self.begin is None else self.begin(number or 0),
            rounding=number,
        )
        return named(arrays if self.parts is None else self.parts.joined(arrays), own.written)

    def bounds(self) -> Bounds:
        """How far each element of the results and of what the host is sent may be off.

        With excess precision the definition is itself off by as much, from that which rounds each op.
        """
        from hloopt.interpret import Host, evaluate_bounds

        own = Host() if self.host is None else self.host.restarted()
        progress = None if self.begin is None else self.begin(0)
        found = evaluate_bounds(self.module, self.inputs, *self.counts, host=own, progress=progress)
        if self.parts is not None:
            found = self.parts.joined_bounds(found)
        named: dict[Hashable, Array | None] = dict(own.written_bounds.items())
        named |= {
            (number, output): bound
            for number, bounds in enumerate(found)
            for output, bound in enumerate(bounds)
        }
        if not self.excess_precision:
            return named
        return {key: None if bound is None else 2 * bound for key, bound in named.items()}

    def sample(self, number: int) -> Results | None:
        """What it gives where it rounds otherwise; None where it then fails."""
        try:
            return self.results(number)
        except EvaluationError:  # as it may where rounding decides what is evaluated
            return None


class Judge:
    """Compares with what one evaluation gave, or is to give.

    ``own`` are the definition's results, ``sample`` gives those of the evaluation that rounds in the way of a
    number, None where it does not end as the first one did, ``bounds`` how far each element may be off at most.
    Without them an element's own magnitude decides.  A ``tolerance`` that is given takes the place of all this.
    A ``quick`` judge makes few evaluations: it may blame on the module what rounding does now and then.
    """

    def __init__(
        self,
        own: Results | None = None,
        sample: Sample | None = None,
        *,
        bounds: Callable[[], Bounds] | None = None,
        tolerance: Tolerance = FREE,
        quick: bool = False,
    ) -> None:
        self._sides = [_Side(own or {}, sample, bounds)]
        self.tolerance = tolerance
        self._most = _ENOUGH if quick else _ROUNDS[-1]

    @staticmethod
    def of(
        module: Module,
        inputs: Sequence[Sequence[Array]],
        results: Sequence[Sequence[Array]],
        *,
        counts: tuple[int, int] = (1, 1),
        host: Host | None = None,
        written: Mapping[str, Array] | None = None,
        excess_precision: bool = False,
        begin: Callable[[int], Progress] | None = None,
        tolerance: Tolerance = FREE,
    ) -> Judge:
        """The judge of a module whose evaluation on ``inputs`` gave ``results``, all of each participant.

        ``written`` is what it sent to ``host`` then.  ``begin`` is called with the number of each evaluation,
        and returns the object that reports its progress and has its deadline.
        With ``excess_precision`` every other one rounds each op: how long f32 is kept is a device's choice.
        """
        way = Evaluation(module, inputs, counts, host, excess_precision, begin)
        own = named(results, written or {})
        return Judge(own, way.sample, bounds=way.bounds, tolerance=tolerance)

    @staticmethod
    def between(
        before: Module,
        after: Module,
        inputs: Sequence[Sequence[Array]],
        before_results: Results | None = None,
        after_results: Results | None = None,
        *,
        counts: tuple[int, int] = (1, 1),
        host: Host | None = None,
        excess_precision: bool = False,
        begin: Callable[[int], Progress] | None = None,
        tolerance: Tolerance = FREE,
        quick: bool = False,
    ) -> Judge:
        """The judge of two modules that should compute the same, as those before and after a pass.

        Each has errors of its own: an element may be off by the sum of its bounds in both modules, and by the
        larger one of what moves it in either.
        Results are those of the interpreter, as ``named`` makes them; without them it is run where a difference
        needs it.  Other arguments are those of ``of``.
        """
        return Judge.of_two(
            [
                Evaluation(module, inputs, counts, host, excess_precision, begin)
                for module in (before, after)
            ],
            (before_results, after_results),
            tolerance=tolerance,
            quick=quick,
        )

    @staticmethod
    def of_two(
        ways: Sequence[Evaluation],
        given: Sequence[Results | None] = (None, None),
        *,
        tolerance: Tolerance = FREE,
        quick: bool = False,
    ) -> Judge:
        """As ``between``, of modules that are evaluated in ways of their own, with the results ``given``."""
        judge = Judge(tolerance=tolerance, quick=quick)
        judge._sides = [
            _Side(own or way.results, way.sample, way.bounds)
            for own, way in zip(given, ways, strict=True)
        ]
        return judge

    def beside(self, way: Evaluation) -> Judge:
        """The judge that allows what this one does, and the roundings of a second evaluation besides."""
        judge = Judge(tolerance=self.tolerance)
        judge._sides = [*self._sides, _Side(way.results, way.sample, way.bounds)]
        return judge

    def compare(self, key: Hashable, got: Array, want: Array) -> OutputComparison:
        """Compare one result, which is called ``key``."""
        found, _ = compared(got, want, self.tolerance, Allowance())
        if found.problem or self.tolerance.is_given or (found.passed and not found.share):
            return found
        try:
            sides = [side for side in self._sides if side.knows(key, want)]
            if not sides:
                return found
            bounds = [side.bound(key, want) for side in sides]
            known = [bound for bound in bounds if bound is not None]
            bound = np.add.reduce(known) if len(known) == len(sides) else None
            found, still = compared(got, want, self.tolerance, Allowance(bound=bound))
            if found.mismatches and not still:
                return compared(got, want, self.tolerance, Allowance(bound=bound, alone=True))[0]
            moved = None
            for count in _ROUNDS:
                is_plain = count > self._most or (
                    count > _ENOUGH and _is_plain(found, moved, sides)
                )
                if not still or is_plain:
                    break
                moved = Movement.joined([side.moved(key, count) for side in sides])
                found, still = compared(got, want, self.tolerance, Allowance(moved, bound))
        except TimeoutError:
            return found if found.passed else replace(found, undecided=True)
        return found

    def allowance(self, key: Hashable, want: Array) -> Array:
        """How far each element of a result (flat) may be off, for those who will compare without this judge.

        As ``compare`` decides after its first evaluations; infinite for an element of which nothing is known.
        """
        sides = [side for side in self._sides if side.knows(key, want)]
        bounds = [side.bound(key, want) for side in sides]
        known = [bound for bound in bounds if bound is not None]
        bound = np.add.reduce(known) if known and len(known) == len(sides) else None
        moved = Movement.joined([side.moved(key, _ENOUGH) for side in sides]) if sides else None
        kind = of_numpy(want.dtype)
        if moved is not None and (kind.is_integer or kind.is_pred):
            return np.maximum(moved.spread, moved.beyond)
        wide = want.reshape(-1).astype(np.complex128 if kind.is_complex else np.float64)
        with np.errstate(all="ignore"):
            return explained(np.abs(wide), kind, Allowance(moved, bound))

    def compare_all(
        self, got: Sequence[Sequence[Array]], want: Sequence[Sequence[Array]]
    ) -> list[OutputComparison]:
        """Compare the results of all participants, which must be as many."""
        return [
            self.compare((number, output), one, other)
            for number, (mine, theirs) in enumerate(zip(got, want, strict=True))
            for output, (one, other) in enumerate(zip(mine, theirs, strict=True))
        ]

    def compare_named(
        self, got: Mapping[str, Array], want: Mapping[str, Array]
    ) -> list[tuple[str, OutputComparison]]:
        """Compare arrays of the same name; one that only one side has is a problem."""
        found = []
        for name in [*want, *(name for name in got if name not in want)]:
            if name in got and name in want:
                entry = self.compare(name, got[name], want[name])
            else:
                one = want.get(name, got.get(name))
                assert one is not None
                problem = "is not written" if name in want else "is written, too"
                entry = unlike(of_numpy(one.dtype), one.size, problem)
            found.append((name, entry))
        return found


def _is_plain(found: OutputComparison, moved: Movement | None, sides: Sequence[_Side]) -> bool:
    """Whether more evaluations would change nothing: none has moved anything, or much is far off.

    A few elements may be far off where rounding seldom decides what they are, many where it often does.
    """
    if all(side.is_still for side in sides):
        return True
    if isinf(found.share) and moved is not None and not moved.is_decided:
        return False
    return found.share > _FAR and found.mismatches >= max(16, found.elements // 100)


def named(results: Sequence[Sequence[Array]], written: Mapping[str, Array]) -> Results:
    """Results of all participants, and what they wrote to the host, by what the judge calls them."""
    found: dict[Hashable, Array] = dict(written.items())
    for number, arrays in enumerate(results):
        found.update({(number, output): array for output, array in enumerate(arrays)})
    return found


def compare(got: Array, want: Array, tolerance: Tolerance = FREE) -> OutputComparison:
    """Compare two arrays of which nothing more is known: by each element's own magnitude."""
    return Judge(tolerance=tolerance).compare(None, got, want)


def compare_all(
    got: Sequence[Array], want: Sequence[Array], tolerance: Tolerance = FREE
) -> list[OutputComparison]:
    """As ``compare``, of two lists, which must have the same length."""
    return Judge(tolerance=tolerance).compare_all([got], [want])


def judged(
    module: Module, inputs: Sequence[Array], got: Sequence[Array], want: Sequence[Array]
) -> list[OutputComparison]:
    """Compare with what the evaluation of a module on these inputs gave."""
    return Judge.of(module, [inputs], [want]).compare_all([got], [want])
