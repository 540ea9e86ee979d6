"""What differs first in two executions of loops that begin with the same state, and what leads another way.

The states that iterations leave are compared, a few of them in each run, up to the first iteration that leaves
another one; where all agree as long as both loops run, the conditions that end them differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from hloopt.ir import Instruction
from hloopt.prover.both_runs import BothRuns, RunValue, UnequalPair
from hloopt.prover.matching import corresponding
from hloopt.prover.observing import HEAD, Leaf, Place, Trace
from hloopt.runtime.inputs import positions

__all__ = ["LoopValues", "control_apart", "ends_apart", "first_in_loops"]

_STATES: Final = 32
"""Iterations whose states are kept in one run, when the first that differs is searched for."""

_At: TypeAlias = "tuple[int, ...]"


class LoopValues(NamedTuple):
    """Values of two loops that do not agree.

    before, after  of either module
    pairs          those that belong together
    trips          how many iterations either runs, where that is what differs
    """

    before: Sequence[RunValue]
    after: Sequence[RunValue]
    pairs: Sequence[UnequalPair] = ()
    trips: tuple[int, int] | None = None

    @staticmethod
    def of(pairs: Sequence[UnequalPair], trips: tuple[int, int] | None = None) -> LoopValues:
        """Of values in pairs."""
        return LoopValues([pair[0] for pair in pairs], [pair[1] for pair in pairs], pairs, trips)


def first_in_loops(runs: BothRuns, number: int, loops: tuple[Place, Place]) -> LoopValues | None:
    """What differs in the first iteration that leaves another state, or what ends the loops.

    ``number`` is the participant.  None where nothing is found, or loops were looked into often enough.
    """
    if runs.is_spent:
        return None
    trips = [runs.sides[number].trace(side).trips.get(loop, 0) for side, loop in enumerate(loops)]
    states: list[dict[_At, Leaf]] = [{}, {}]
    for early in range(min(HEAD, *trips)):
        states = [_states(runs, number, side, loop, early) for side, loop in enumerate(loops)]
        wrong = _apart(runs, number, loops, states)
        if wrong is not None:
            return wrong
    together = _together(runs, number, states)
    iteration = _iteration(runs, number, loops, together, min(trips))
    if iteration is not None:
        runs.look(loops, frozenset([iteration - 1, iteration]))
        left = [_states(runs, number, side, loop, iteration) for side, loop in enumerate(loops)]
        pairs = [((number, left[0][one]), (number, left[1][other])) for one, other in together]
        return LoopValues.of([pair for pair in pairs if runs.differs(pair)])
    if trips[0] == trips[1]:
        return None
    last = min(trips)
    runs.look(loops, frozenset([last]))
    before, after = (
        runs.sides[number].trace(side).origin(Leaf(Place((*path, (loop, last)), _condition(loop))))
        for side, (path, loop) in enumerate(loops)
    )
    return LoopValues.of([((number, before), (number, after))], (trips[0], trips[1]))


def control_apart(
    runs: BothRuns, number: int, before: Iterable[Leaf], after: Iterable[Leaf]
) -> LoopValues | None:
    """What decides that what was read in either module came another way.

    That is out of corresponding loops of other trip counts, or another branch of a conditional.
    """
    sides = runs.sides[number]
    known = set(_controls(sides.before, before))
    for place in _controls(sides.after, after):
        other = corresponding(place, runs.pairing.before)
        if other not in known:
            continue
        if sides.before.taken.get(other) != sides.after.taken.get(place):
            ways = [
                (number, sides.trace(side).origin(Leaf(Place(path, one.operands[0]))))
                for side, (path, one) in enumerate((other, place))
            ]
            return LoopValues.of([(ways[0], ways[1])])
        if sides.before.trips.get(other) != sides.after.trips.get(place):
            return first_in_loops(runs, number, (other, place))
    return None


def ends_apart(runs: BothRuns, number: int, before: Leaf, after: Leaf) -> LoopValues | None:
    """What ends the loops around two values, where one is of an iteration that the other module does not run.

    That one differs from all that the other module computes though each iteration may be right.
    """
    sides = runs.sides[number]
    partners = runs.pairing.after, runs.pairing.before
    for side, leaf in ((1, after), (0, before)):
        last = sides.trace(side).trips.get(leaf.place, 0) - 1  # of a loop whose end was not kept
        path = (*leaf.place.path, (leaf.place.instruction, last))
        inner = [caller for caller, _ in path[1:]]
        for at, (caller, iteration) in enumerate(path):
            if caller.opcode != "while":
                continue
            if at < len(inner) and inner[at].computation is caller.condition:
                continue
            place = Place(path[:at], caller)
            other = corresponding(place, partners[side])
            trips = None if other is None else sides.trace(1 - side).trips.get(other)
            if other is not None and trips is not None and iteration >= trips:
                return first_in_loops(runs, number, (other, place) if side else (place, other))
    return None


def _controls(trace: Trace, leaves: Iterable[Leaf]) -> list[Place]:
    """The loops and conditionals that values came out of."""
    passed = [each.place for leaf in leaves for each in trace.route(leaf)]
    return [place for place in passed if place.instruction.opcode in ("while", "conditional")]


def _apart(
    runs: BothRuns, number: int, loops: Sequence[Place], states: Sequence[Mapping[_At, Leaf]]
) -> LoopValues | None:
    """What differs in the states that an early iteration leaves; None where either agrees with something."""
    wrong = [
        [
            (number, leaf)
            for leaf in states[side].values()
            if not runs.sides[number].agrees(side, leaf)
        ]
        for side in range(2)
    ]
    if all(wrong):
        return LoopValues(wrong[0], wrong[1])
    known = set(states[0].values())
    lost = {leaf for side in wrong for _, leaf in side}
    shapes = [[(shape.dtype, shape.dims) for _, shape in positions(one.shape)] for _, one in loops]
    pairs = []
    for index, leaf in states[1].items():
        other = _corresponding(runs, leaf)
        if other not in known and shapes[0] == shapes[1]:
            same = states[0][index]
            other = same if not lost.isdisjoint((leaf, same)) else None
        if other is not None and other in known:
            pairs.append(((number, other), (number, leaf)))
    apart = [pair for pair in pairs if runs.differs(pair)]
    return LoopValues.of(apart) if any(wrong) and apart else None


def _corresponding(runs: BothRuns, leaf: Leaf) -> Leaf | None:
    """What the corresponding instruction gives in the first module, in the same iterations."""
    place = corresponding(leaf.place, runs.pairing.before)
    return None if place is None else Leaf(place, leaf.at)


def _condition(loop: Instruction) -> Instruction:
    return loop.condition.root


def _states(runs: BothRuns, number: int, side: int, loop: Place, iteration: int) -> dict[_At, Leaf]:
    """What computed each array of the state that an iteration leaves."""
    trace = runs.sides[number].trace(side)
    return {index: trace.origin(leaf) for index, leaf in _left(loop, iteration).items()}


def _together(
    runs: BothRuns, number: int, states: Sequence[Mapping[_At, Leaf]]
) -> list[tuple[_At, _At]]:
    """Which arrays of two loops' states belong together: those that agree in an early iteration."""
    found = []
    taken: set[_At] = set()
    for after, leaf in states[1].items():
        alike = [
            before
            for before, other in states[0].items()
            if before not in taken and not runs.differs(((number, other), (number, leaf)))
        ]
        if alike:
            before = after if after in alike else alike[0]
            taken.add(before)
            found.append((before, after))
    return found


def _iteration(
    runs: BothRuns,
    number: int,
    loops: Sequence[Place],
    together: Sequence[tuple[_At, _At]],
    count: int,
) -> int | None:
    """The first iteration that leaves another state; None where none of ``count`` does."""
    low, high = HEAD - 1, count
    while high - low > 1 and not runs.is_spent:
        step = max(1, -(-(high - low - 1) // _STATES))
        tried = sorted({*range(low + step, high, step), high - 1})
        runs.look(loops, frozenset(), frozenset(tried))
        wrong = []
        for iteration in tried:
            left, right = (_left(loop, iteration) for loop in loops)
            pairs = [((number, left[one]), (number, right[other])) for one, other in together]
            if any(map(runs.differs, pairs)):
                wrong.append(iteration)
                break
        if not wrong and high == count:
            return None
        high = min(wrong, default=high)
        low = max((iteration for iteration in tried if iteration < high), default=low)
    return high if high < count else None


def _left(loop: Place, iteration: int) -> dict[_At, Leaf]:
    """The arrays of the state that an iteration leaves."""
    path, one = loop
    root = Place((*path, (one, iteration)), one.body.root)
    return {index: Leaf(root, index) for index, _ in positions(one.shape)}
