"""The first value that differs between two modules which give other results on the same inputs.

Both runs are traced (``observing``).  From the results that differ the search goes back through what each
value was made of, as long as it has no counterpart in the other run (``matching``); it ends at values that
differ though all that they were made of agrees.  What was computed otherwise on the way, but led to a value
that agrees, is never reached.  The same search in the first module finds the value that the second should have.

Constants, and what is made of them alone, have often no counterpart where modules are rewritten: they are to
blame only where the other module has another constant in the same place of the same op.

A loop of many iterations that differs is searched by its states for the first iteration that differs, and
then by the values of that iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Final, TypeAlias

from hloopt.analysis.pairing import Pairing, pair_modules
from hloopt.dataclass import dataclass
from hloopt.ir import Module
from hloopt.ops.traits import COLLECTIVE
from hloopt.prover.matching import Matcher, Reruns, Sides, Spreads, alike, likeness
from hloopt.prover.observing import HEAD, Leaf, Place, Trace, TraceScope, observe
from hloopt.prover.trials import Trial, TrialInputs, made
from hloopt.runtime.inputs import positions
from hloopt.runtime.tolerance import FREE, Tolerance

__all__ = ["Located", "locate"]

_STATES: Final = 32
"""Iterations whose states are kept in one run, when the first that differs is searched for."""

_OTHER_SEED: Final = 987_654
"""Of the inputs on which values must agree, too."""

_LIKE: Final = 2.0
"""What has to speak for two values belonging together: the same op, place in the program, or most operands."""

_DEPTH: Final = 16
"""Runs in which loops are looked into, at most."""

_Node: TypeAlias = "tuple[int, Leaf]"
"""A participant's value."""

_Pair: TypeAlias = "tuple[_Node, _Node]"
"""Values of both modules that ought to agree, and do not."""

_At: TypeAlias = "tuple[int, ...]"


@dataclass(frozen=True)
class Located:
    """A value that differs, of which all operands agree with values of the other module.

    after    the value in the second module
    before   the value of the first one that it should be; None where none corresponds to it
    missing  operands of ``before`` that the second module does not have there
    lost     what only the first module computes on the way to ``before``, of operands that both have
    alone    the first that differs, where only the second module computes it; then ``after`` is made of it
    trips    how many iterations a loop runs in either module, where that is what differs
    """

    participant: int
    after: Leaf
    before: Leaf | None
    missing: tuple[Leaf, ...]
    lost: tuple[Leaf, ...]
    sides: Sides
    alone: tuple[Leaf, ...] = ()
    trips: tuple[int, int] | None = None


def locate(
    before: Module,
    after: Module,
    inputs: TrialInputs,
    wrong: Iterable[tuple[int, int]],
    *,
    tolerance: Tolerance = FREE,
    excess_precision: bool = False,
) -> Located | None:
    """The first value that differs; None where the interpreter computes no other results.

    ``wrong`` are the results that differ, by participant and place in the flat list.  Raises as
    ``observing.observe``.
    """
    search = _Search((before, after), inputs, tolerance, excess_precision)
    pairs = []
    for number, output in wrong:
        sides = search.sides[number]
        ends = (sides.before.results()[output], sides.after.results()[output])
        pairs.append(((number, ends[0]), (number, ends[1])))
    return search.first([pair for pair in pairs if search.differs(pair)])


class _Search:
    """Traces of two modules on one input, made again where a loop is looked into."""

    def __init__(
        self,
        modules: tuple[Module, Module],
        inputs: TrialInputs,
        tolerance: Tolerance,
        excess_precision: bool,
    ) -> None:
        self._modules, self._inputs, self._tolerance = modules, inputs, tolerance
        self._excess = excess_precision
        self._pairing: Pairing = pair_modules(*modules)
        self._windows = [TraceScope(), TraceScope()]
        self._looked = 0
        self._passed: set[Leaf] = set()
        self.sides = self._traced()

    def _run(self, side: int, way: int = 0) -> list[Trace]:
        """The traces of a module: by the definition, by another way to round, or on other inputs (-1).

        Of large arrays the latter two keep parts only.
        """
        return observe(
            self._modules[side],
            self._inputs if way >= 0 else self._other_inputs,
            replace(self._windows[side], most=0) if way else self._windows[side],
            excess_precision=self._excess,
            rounding=way if way > 0 else None,
        )

    @cached_property
    def _other_inputs(self) -> TrialInputs:
        return made(self._modules[0], Trial(_OTHER_SEED), *self._inputs.counts)

    def _traced(self) -> list[Sides]:
        """Both runs, of each participant."""
        again = [Reruns(partial(self._run, side)) for side in range(2)]
        found = []
        for number, (before, after) in enumerate(zip(self._run(0), self._run(1), strict=True)):
            others = (
                partial(again[0].on_others, number, before),
                partial(again[1].on_others, number, after),
            )
            spreads = (
                Spreads(before, partial(again[0].trace, number)),
                Spreads(after, partial(again[1].trace, number)),
            )
            pairs = self._pairing
            found.append(
                Sides(
                    before,
                    after,
                    Matcher(before, after, spreads, pairs.before, self._tolerance, others),
                    Matcher(
                        after, before, spreads[::-1], pairs.after, self._tolerance, others[::-1]
                    ),
                )
            )
        return found

    def differs(self, pair: _Pair) -> bool:
        """Whether the values of a pair do not agree; also where one was not kept.

        What a loop came with into the first iteration that was kept agrees.
        """
        (number, before), (_, after) = pair
        sides = self.sides[number]
        if before not in sides.before.seen or after not in sides.after.seen:
            return any(leaf.place.instruction.opcode != "parameter" for leaf in (before, after))
        return not sides.counterparts.compared(after, before).passed

    def first(self, pairs: Sequence[_Pair]) -> Located | None:
        """The first value that differs on the way to these pairs."""
        fixed = all(
            self.sides[number].trace(side).is_fixed(leaf)
            for pair in pairs
            for side, (number, leaf) in enumerate(pair)
        )
        one, other = ([pair[side] for pair in pairs] for side in range(2))
        return self._first(one, other, pairs, fixed=fixed)

    def _first(
        self,
        before: Sequence[_Node],
        after: Sequence[_Node],
        pairs: Sequence[_Pair] = (),
        *,
        fixed: bool = False,
    ) -> Located | None:
        """As ``first``, from values that do not agree, of which not all are in pairs.

        ``fixed`` says that they are made of constants.
        """
        if not after:
            return None
        theirs, ours = self._ends(0, before, fixed), self._ends(1, after, fixed)
        starts = {after: before for before, after in pairs}
        order = self._order(node for node, is_end in ours.items() if is_end)
        matched = [(*self._best(node, theirs, starts.get(node)), node) for node in order]
        if not matched:
            return None
        _, partner, (number, found) = max(matched, key=lambda entry: entry[0])
        if partner is None:
            lost = [leaf for at, leaf in self._order((n for n, end in theirs.items() if end), 0)]
            joined = self._joined(ours, theirs, (number, found), starts)
            if joined is None:
                return Located(number, found, None, (), tuple(lost), self.sides[number])
            reads = self._reads_apart(number, *joined)
            return Located(
                number,
                joined[1],
                joined[0],
                tuple(reads),
                tuple(lost),
                self.sides[number],
                (found,),
            )
        places = partner.place, found.place
        if all(place.instruction.opcode == "while" for place in places):
            inside = self._inside(number, places)
            if inside is not None:
                return inside
        deeper = self._deeper(number, partner, found)
        if deeper is not None:
            return deeper
        sides = self.sides[number]
        fixed = sides.before.is_fixed(partner)
        ends = self._ends(0, [(number, partner)], fixed)
        lost = [
            leaf
            for at, leaf in self._order((n for n, end in ends.items() if end), 0)
            if at == number
        ]
        reads = self._reads_apart(number, partner, found)
        return Located(number, found, partner, tuple(reads), tuple(lost), sides)

    def _reads_apart(self, number: int, before: Leaf, after: Leaf) -> list[Leaf]:
        """The operands of a value that the other one lacks: in their places, where the op is the same."""
        sides = self.sides[number]
        own = [leaf for _, leaf in sides.before.operands(before.place)]
        theirs = [leaf for _, leaf in sides.after.operands(after.place)]
        if before.place.instruction.opcode == after.place.instruction.opcode and len(own) == len(
            theirs
        ):
            found = [
                left
                for left, right in zip(own, theirs, strict=True)
                if self.differs(((number, left), (number, right)))
            ]
        else:
            found = [leaf for leaf in own if not sides.agrees(0, leaf)]
        return list(dict.fromkeys(found))

    def _joined(
        self,
        ours: Mapping[_Node, bool],
        theirs: Mapping[_Node, bool],
        start: _Node,
        ends: Mapping[_Node, _Node],
    ) -> tuple[Leaf, Leaf] | None:
        """The first values after ``start`` that belong together: of one op, or one of the ``ends``."""
        order = self._order(ours)
        for node in order[order.index(start) + 1 :]:
            number, leaf = node
            _, partner = self._best(node, theirs, ends.get(node))
            if number != start[0] or partner is None:
                continue
            same = partner.place.instruction.opcode == leaf.place.instruction.opcode
            if same or ends.get(node) == (number, partner):
                return partner, leaf
        return None

    def _deeper(self, number: int, before: Leaf, after: Leaf) -> Located | None:
        """What differs before two values of one op, where an operand differs from the one in its place.

        That is where both are made of constants, and where what agrees with it does so by chance.
        """
        sides = self.sides[number]
        if before.place.instruction.opcode != after.place.instruction.opcode:
            return None
        reads = sides.before.operands(before.place), sides.after.operands(after.place)
        if len(reads[0]) != len(reads[1]) or (after in self._passed):
            return None
        self._passed.add(after)
        for (_, left), (_, right) in zip(*reads, strict=True):
            pair = ((number, left), (number, right))
            if not self.differs(pair):
                continue
            fixed = sides.before.is_fixed(left) and sides.after.is_fixed(right)
            if fixed or self._by_chance(sides, right):
                return self._first([pair[0]], [pair[1]], [pair], fixed=fixed)
        return None

    def _by_chance(self, sides: Sides, leaf: Leaf) -> bool:
        """Whether nothing but its data says what a value of the second module corresponds to."""
        other = sides.counterparts.counterpart(leaf)
        if other is None:
            return True
        one, two = leaf.place.instruction, other.place.instruction
        return self._pairing.before.get(one) is not two and one.opcode != two.opcode

    def _ends(self, side: int, starts: Iterable[_Node], fixed: bool) -> dict[_Node, bool]:
        """All values on the way that do not agree, and whether all that one was made of does.

        Unless ``fixed``, what was made of constants alone counts as if it did.
        """
        found: dict[_Node, bool] = {}
        pending = list(starts)
        while pending:
            node = pending.pop()
            if node in found:
                continue
            wrong = [
                (number, leaf)
                for number, leaf in self._reads(side, node)
                if not self.sides[number].agrees(side, leaf)
                and (fixed or not self.sides[number].trace(side).is_fixed(leaf))
            ]
            found[node] = not wrong
            pending += wrong
        return found

    def _reads(self, side: int, node: _Node) -> list[_Node]:
        """What a value was made of; of a collective also what the other participants have."""
        number, (place, _) = node
        others = range(len(self.sides)) if place.instruction.opcode in COLLECTIVE else (number,)
        return [
            (other, leaf)
            for other in others
            for _, leaf in self.sides[other].trace(side).operands(place)
        ]

    def _order(self, nodes: Iterable[_Node], side: int = 1) -> list[_Node]:
        """Values of a module in the order in which they were computed."""
        at = {
            (number, leaf): step
            for number, sides in enumerate(self.sides)
            for step, leaf in enumerate(sides.trace(side).seen)
        }
        return sorted(nodes, key=lambda node: (at.get(node, len(at)), node[0]))

    def _best(
        self, node: _Node, others: Mapping[_Node, bool], start: _Node | None
    ) -> tuple[float, Leaf | None]:
        """The value of the first module that one of the second should be, and how sure that is."""
        number, leaf = node
        sides = self.sides[number]
        seen = sides.after.seen.get(leaf)
        read = [sides.counterparts.counterpart(one) for _, one in sides.after.operands(leaf.place)]
        best: tuple[float, Leaf | None] = (0.0, None)
        for (at, other), is_end in others.items():
            theirs = sides.before.seen.get(other)
            if at != number or (seen and theirs and not alike(seen, theirs)):
                continue
            own = [one for _, one in sides.before.operands(other.place)]
            shared = sum(one in read for one in own) / max(len(own), len(read), 1)
            score = likeness(leaf.place.instruction, other.place.instruction, self._pairing)
            score += 3 * shared + 3 * ((at, other) == start)
            if score < _LIKE:
                continue
            score += is_end + 3 * (_iterations(leaf) == _iterations(other))
            best = max(best, (score, other), key=lambda entry: entry[0])
        return best

    def _inside(self, number: int, loops: tuple[Place, Place]) -> Located | None:
        """The first value that differs in two executions of loops whose initial states agree."""
        if self._looked >= _DEPTH:
            return None
        sides = self.sides[number]
        trips = tuple(sides.trace(side).trips.get(loop, 0) for side, loop in enumerate(loops))
        states = [self._states(number, side, loops[side], HEAD - 1) for side in range(2)]
        wrong = [
            [(number, leaf) for leaf in states[side].values() if not sides.agrees(side, leaf)]
            for side in range(2)
        ]
        if all(wrong):
            return self._first(wrong[0], wrong[1], fixed=sides.after.is_fixed(wrong[1][0][1]))
        together = self._together(number, states)
        iteration = self._iteration(number, loops, together, min(trips))
        if iteration is not None:
            self._look(loops, frozenset([iteration - 1, iteration]))
            left = [self._states(number, side, loops[side], iteration) for side in range(2)]
            pairs = [((number, left[0][one]), (number, left[1][other])) for one, other in together]
            return self.first([pair for pair in pairs if self.differs(pair)])
        if trips[0] == trips[1]:
            return None
        self._look(loops, frozenset([min(trips)]))
        conditions = [
            Leaf(Place((*path, (loop, min(trips))), loop.condition.root)) for path, loop in loops
        ]
        before, after = (
            (number, self.sides[number].trace(side).origin(leaf))
            for side, leaf in enumerate(conditions)
        )
        found = self.first([(before, after)])
        return None if found is None else replace(found, trips=(trips[0], trips[1]))

    def _states(self, number: int, side: int, loop: Place, iteration: int) -> dict[_At, Leaf]:
        """What computed each array of the state that an iteration leaves."""
        trace = self.sides[number].trace(side)
        return {index: trace.origin(leaf) for index, leaf in _left(loop, iteration).items()}

    def _together(self, number: int, states: Sequence[Mapping[_At, Leaf]]) -> list[tuple[_At, _At]]:
        """Which arrays of two loops' states belong together: those that agree in an early iteration."""
        found = []
        taken: set[_At] = set()
        for after, leaf in states[1].items():
            alike = [
                before
                for before, other in states[0].items()
                if before not in taken and not self.differs(((number, other), (number, leaf)))
            ]
            if alike:
                before = after if after in alike else alike[0]
                taken.add(before)
                found.append((before, after))
        return found

    def _look(
        self, loops: Sequence[Place], bodies: frozenset[int], states: frozenset[int] = frozenset()
    ) -> None:
        """Trace again, with other iterations of two loops."""
        self._looked += 1
        for side, loop in enumerate(loops):
            window = self._windows[side]
            self._windows[side] = replace(
                window, bodies={**window.bodies, loop: bodies}, states={loop: states}
            )
        self.sides = self._traced()

    def _iteration(
        self,
        number: int,
        loops: Sequence[Place],
        together: Sequence[tuple[_At, _At]],
        count: int,
    ) -> int | None:
        """The first iteration that leaves another state; None where none of ``count`` does."""
        low, high = HEAD - 1, count
        while high - low > 1 and self._looked < _DEPTH:
            step = max(1, -(-(high - low - 1) // _STATES))
            tried = sorted({*range(low + step, high, step), high - 1})
            self._look(loops, frozenset(), frozenset(tried))
            wrong = []
            for iteration in tried:
                left, right = (_left(loop, iteration) for loop in loops)
                pairs = [((number, left[one]), (number, right[other])) for one, other in together]
                if any(map(self.differs, pairs)):
                    wrong.append(iteration)
                    break
            if not wrong and high == count:
                return None
            high = min(wrong, default=high)
            low = max((iteration for iteration in tried if iteration < high), default=low)
        return high if high < count else None


def _iterations(leaf: Leaf) -> list[int]:
    """Of the loops that a value was computed in."""
    return [number for caller, number in leaf.place.path if caller.opcode == "while"]


def _left(loop: Place, iteration: int) -> dict[_At, Leaf]:
    """The arrays of the state that an iteration leaves."""
    path, one = loop
    root = Place((*path, (one, iteration)), one.body.root)
    return {index: Leaf(root, index) for index, _ in positions(one.shape)}
