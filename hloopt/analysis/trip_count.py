"""How often a ``while`` runs, where the module shows it.

Two methods, in this order: the iteration in which the condition is first false, of induction variables in any
direction and of any step, wrapping around as their types do (``loop_conditions``); evaluating the integers of
the loop for at most 128 iterations.  Each gives the exact count, or bounds, or nothing.
``known_trip_count`` in the instruction's backend_config is for callers that trust it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final, Literal

from hloopt.analysis.backend_config import known_trip_count
from hloopt.analysis.loop_conditions import Conditions
from hloopt.analysis.loop_reader import FramedInstruction, StateSlot, WhileLoop
from hloopt.analysis.loop_values import KnownValues, ScalarArray
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction

__all__ = [
    "MAX_EVALUATED_ITERATIONS",
    "IterationCounts",
    "TripBounds",
    "counted_iterations",
    "iteration_bounds",
    "trip_count",
]

MAX_EVALUATED_ITERATIONS: Final = 128
_MOST_COUNTED: Final = 1 << 20
"""Bounds above it are what types can hold, not a realistic count."""


@dataclass(frozen=True, slots=True)
class TripBounds:
    """The body runs at least ``least`` and at most ``most`` times; None where there is no bound.

    ``endless``: it never stops running.
    """

    least: int
    most: int | None
    endless: bool = False

    @property
    def exact(self) -> int | None:
        """The count, where both bounds are the same."""
        return self.least if self.least == self.most else None


@dataclass(frozen=True, slots=True)
class IterationCounts:
    """How often costs count the body of a loop.

    known  ``exact``; ``at most`` where only a bound is known, which counts; ``at least`` where none is, so that
           what surely runs counts, once at least; ``assumed`` where two mappings of it are compared
    """

    count: int
    known: Literal["exact", "at most", "at least", "assumed"]

    @property
    def words(self) -> str:
        """``30 iterations``, ``at most 30 iterations``."""
        text = f"{self.count:,} iteration{'s' if self.count != 1 else ''}"
        if self.known == "assumed":
            return f"{text} assumed"
        return text if self.known == "exact" else f"{self.known} {text}"


def counted_iterations(loop: Instruction) -> IterationCounts:
    """How often costs count the body of a ``while``: the one count of all reports."""
    count = trip_count(loop, believe=True)
    if count is not None:
        return IterationCounts(count, "exact")
    bounds = iteration_bounds(loop)
    if bounds.most is not None and bounds.most <= _MOST_COUNTED:
        return IterationCounts(bounds.most, "at most")
    return IterationCounts(max(1, bounds.least), "at least")


def trip_count(
    loop: Instruction, limit: int = MAX_EVALUATED_ITERATIONS, *, believe: bool = False
) -> int | None:
    """The number of times the body of a ``while`` runs, or None where the module does not show it.

    Reads through tuples, copies, views, calls and fusions, and state elements that the body passes on
    unchanged.  ``limit`` is how many iterations are evaluated where there is no closed form; 0 for none.
    ``believe`` takes ``known_trip_count`` of the backend_config where nothing else is known: good enough
    for an estimate, but a text may be wrong about itself.
    """
    found = _bounds(loop, limit, only_exact=True)
    if found.exact is not None or found.endless or not believe:
        return found.exact
    return known_trip_count(loop)


def iteration_bounds(loop: Instruction, limit: int = MAX_EVALUATED_ITERATIONS) -> TripBounds:
    """How often the body of a ``while`` runs at least and at most, as far as the module shows it."""
    return _bounds(loop, limit, only_exact=False)


def _bounds(instruction: Instruction, limit: int, *, only_exact: bool) -> TripBounds:
    loop = WhileLoop(instruction)
    conditions = Conditions(loop)
    first = conditions.first(False, loop.condition.root)
    if first.least == inf:
        return TripBounds(0, None, endless=True)
    least, most = int(first.least), None if first.most == inf else int(first.most)
    if least == most:
        return TripBounds(least, most)
    return _by_evaluation(conditions, limit, TripBounds(least, most), only_exact=only_exact)


def _by_evaluation(
    conditions: Conditions, limit: int, bounds: TripBounds, *, only_exact: bool
) -> TripBounds:
    """Evaluate the integers of a loop; elements that are unknown at first may become known on the way."""
    loop = conditions.loop
    root = loop.condition.root
    slots = _needed(loop)
    state: dict[StateSlot, ScalarArray | None] = {
        slot: conditions.inductions.initial_value(slot) for slot in slots
    }
    least, unbroken = 0, True
    for iterations in range(limit + 1):
        values = KnownValues(loop.inside, state)
        again = values.of(root)
        unbroken = unbroken and again is not None
        if again is not None and not again:
            return TripBounds(iterations if unbroken else max(least, bounds.least), iterations)
        if only_exact and not unbroken:
            break
        least = iterations + 1 if unbroken else least
        following = {slot: values.at(loop.following(slot)) for slot in state}
        if _same(state, following):
            if unbroken:
                return TripBounds(0, None, endless=True)
            break
        state = following
    return TripBounds(max(least, bounds.least), bounds.most)


def _needed(loop: WhileLoop) -> list[StateSlot]:
    """The elements of the state that the condition depends on, directly or through the body."""
    found: dict[StateSlot, None] = {}
    seen: set[FramedInstruction] = set()
    pending = [loop.inside.find(loop.condition.root)]
    while pending:
        place = pending.pop()
        if isinstance(place, StateSlot):
            if place not in found:
                found[place] = None
                pending.append(loop.following(place))
        elif place is not None and place not in seen:
            seen.add(place)
            instruction, frame = place
            if instruction.op.numpy is not None:
                pending += [loop.inside.find(one, frame) for one in instruction.operands]
    return list(found)


def _same(
    left: Mapping[StateSlot, ScalarArray | None], right: Mapping[StateSlot, ScalarArray | None]
) -> bool:
    return all(
        (one is None) == (other is None) and (one is None or other is None or one == other)
        for one, other in ((value, right[slot]) for slot, value in left.items())
    )
