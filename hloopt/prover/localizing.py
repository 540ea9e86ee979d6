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
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module
from hloopt.ops.traits import COLLECTIVE
from hloopt.prover.both_runs import BothRuns, RunValue, UnequalPair
from hloopt.prover.loop_search import LoopValues, control_apart, ends_apart, first_in_loops
from hloopt.prover.matching import Sides, alike, corresponding, is_telling, likeness
from hloopt.prover.observing import Leaf, Place
from hloopt.prover.trials import TrialInputs
from hloopt.runtime.inputs import positions
from hloopt.runtime.tolerance import FREE, Tolerance

__all__ = ["Located", "locate"]

_FEW: Final = 8
"""Operands whose order is looked at."""

_LIKE: Final = 2.0
"""What has to speak for two values belonging together: the same op, place in the program, or most operands."""


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
    runs = BothRuns((before, after), inputs, tolerance, excess_precision=excess_precision)
    return _Search(runs).from_results(wrong)


class _Search:
    """The way back from values that differ."""

    def __init__(self, runs: BothRuns) -> None:
        self._runs, self._pairing = runs, runs.pairing
        self._passed: set[Leaf] = set()
        self._ended: set[Leaf] = set()
        self._is_rounding = False

    @property
    def _sides(self) -> list[Sides]:
        return self._runs.sides

    def from_results(self, wrong: Iterable[tuple[int, int]]) -> Located | None:
        """The first value that differs on the way to results."""
        pairs = []
        for number, output in wrong:
            sides = self._sides[number]
            ends = (sides.before.results()[output], sides.after.results()[output])
            pair = ((number, ends[0]), (number, ends[1]))
            if not self._runs.differs(pair):
                continue
            pairs.append(pair)
            roots = [sides.trace(side).module.entry.root for side in range(2)]
            if sides.agrees(1, ends[1]):
                read = (_read(Place((), root), [root]) for root in roots)
                found = self._from(control_apart(self._runs, number, *read))
                if found is not None:
                    return found
        self._is_rounding = self._runs.is_strict and not any(map(self._is_apart, pairs))
        return self.first(pairs)

    def _is_apart(self, pair: UnequalPair) -> bool:
        """Whether values differ by more than what rounding allows."""
        return self._runs.differs(pair, FREE)

    def _are_others(self, number: int, before: Leaf, after: Leaf) -> bool:
        """Whether results that roundings alone set apart are made of these two as of different values.

        As those of ``(x + y) + z`` and ``x + (y + z)`` are of their sums.
        """
        return self._is_rounding and self._is_apart(((number, before), (number, after)))

    def first(self, pairs: Sequence[UnequalPair]) -> Located | None:
        """The first value that differs on the way to these pairs."""
        fixed = all(
            self._sides[number].trace(side).is_fixed(leaf)
            for pair in pairs
            for side, (number, leaf) in enumerate(pair)
        )
        one, other = ([pair[side] for pair in pairs] for side in range(2))
        return self._first(one, other, pairs, fixed=fixed)

    def _first(
        self,
        before: Sequence[RunValue],
        after: Sequence[RunValue],
        pairs: Sequence[UnequalPair] = (),
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
        if partner is None or self._are_others(number, partner, found):
            return self._alone((number, found), ours, theirs, starts)
        deeper = self._deeper(number, partner, found)
        if deeper is not None:
            return deeper
        sides = self._sides[number]
        fixed = sides.before.is_fixed(partner)
        ends = self._ends(0, [(number, partner)], fixed)
        lost = [
            leaf
            for at, leaf in self._order((n for n, end in ends.items() if end), 0)
            if at == number
        ]
        reads = self._reads_apart(number, partner, found)
        return Located(number, found, partner, tuple(reads), tuple(lost), sides)

    def _alone(
        self,
        node: RunValue,
        ours: Mapping[RunValue, bool],
        theirs: Mapping[RunValue, bool],
        ends: Mapping[RunValue, RunValue],
    ) -> Located:
        """From a value that only the second module computes to the first one that should be in the other."""
        number, found = node
        sides = self._sides[number]
        lost = tuple(leaf for at, leaf in self._order((n for n, end in theirs.items() if end), 0))
        place = corresponding(found.place, self._pairing.before)
        partner = None if place is None else Leaf(place, found.at)
        known = partner is not None and partner in sides.before.seen
        if partner is not None and known and not self._are_others(number, partner, found):
            deeper = self._deeper(number, partner, found)
            if deeper is not None:
                return deeper
            if self._are_apart(sides, partner, found):
                reads = self._reads_apart(number, partner, found)
                return Located(number, found, partner, tuple(reads), lost, sides)
        joined = self._joined(ours, theirs, node, ends)
        if joined is None:
            return Located(number, found, None, (), lost, sides)
        deeper = self._deeper(number, *joined)
        if deeper is not None:
            return deeper
        reads = self._reads_apart(number, *joined)
        return Located(number, joined[1], joined[0], tuple(reads), lost, sides, (found,))

    def _are_apart(self, sides: Sides, before: Leaf, after: Leaf) -> bool:
        """Whether two values of one op, which belong together, agree with nothing at all."""
        seen = sides.before.seen.get(before), sides.after.seen.get(after)
        return (
            before.place.instruction.opcode == after.place.instruction.opcode
            and seen[0] is not None
            and seen[1] is not None
            and alike(seen[0], seen[1])
            and not sides.agrees(0, before)
        )

    def _from(self, values: LoopValues | None) -> Located | None:
        """The first value that differs on the way to those of loops."""
        if values is None:
            return None
        if values.pairs:
            found = self.first(values.pairs)
        else:
            fixed = all(self._sides[at].after.is_fixed(leaf) for at, leaf in values.after[:1])
            found = self._first(values.before, values.after, fixed=fixed)
        return found if found is None else replace(found, trips=values.trips or found.trips)

    def _reads_apart(self, number: int, before: Leaf, after: Leaf) -> list[Leaf]:
        """The operands of a value that the other one lacks: in their places, where the op is the same."""
        sides = self._sides[number]
        own = [leaf for _, leaf in sides.before.operands(before.place)]
        theirs = [leaf for _, leaf in sides.after.operands(after.place)]
        if before.place.instruction.opcode == after.place.instruction.opcode and len(own) == len(
            theirs
        ):
            found = [
                left
                for left, right in zip(own, theirs, strict=True)
                if self._runs.differs(((number, left), (number, right)))
            ]
        else:
            found = [leaf for leaf in own if not sides.agrees(0, leaf)]
        return list(dict.fromkeys(found))

    def _joined(
        self,
        ours: Mapping[RunValue, bool],
        theirs: Mapping[RunValue, bool],
        start: RunValue,
        ends: Mapping[RunValue, RunValue],
    ) -> tuple[Leaf, Leaf] | None:
        """The first values after ``start`` that belong together: of one op, or one of the ``ends``."""
        order = self._order(ours)
        for node in order[order.index(start) + 1 :]:
            number, leaf = node
            _, partner = self._best(node, theirs, ends.get(node))
            if number != start[0] or partner is None or self._are_others(number, partner, leaf):
                continue
            same = partner.place.instruction.opcode == leaf.place.instruction.opcode
            if same or ends.get(node) == (number, partner):
                return partner, leaf
        return None

    def _deeper(self, number: int, before: Leaf, after: Leaf) -> Located | None:
        """What differs before two values of one op, where an operand differs from the one in its place."""
        if before.place.instruction.opcode == after.place.instruction.opcode == "while":
            return self._from(first_in_loops(self._runs, number, (before.place, after.place)))
        if after not in self._ended:
            self._ended.add(after)
            found = self._from(ends_apart(self._runs, number, before, after))
            if found is not None:
                return found
        pair: tuple[Leaf, Leaf] | None = (before, after)
        while pair is not None:
            read = (_read(leaf.place, leaf.place.instruction.operands) for leaf in pair)
            found = self._from(control_apart(self._runs, number, *read))
            if found is not None:
                return found
            last, pair = pair, self._operand_apart(number, *pair)
        if last == (before, after):
            return None
        sides = self._sides[number]
        fixed = sides.before.is_fixed(last[0]) and sides.after.is_fixed(last[1])
        one, other = (number, last[0]), (number, last[1])
        return self._first([one], [other], [(one, other)], fixed=fixed)

    def _operand_apart(self, number: int, before: Leaf, after: Leaf) -> tuple[Leaf, Leaf] | None:
        """Operands in the same place of one op that differ, though the second module's agrees with something.

        Both are made of constants, or it agrees by chance.
        """
        sides = self._sides[number]
        if before.place.instruction.opcode != after.place.instruction.opcode:
            return None
        reads = sides.before.operands(before.place), sides.after.operands(after.place)
        if len(reads[0]) != len(reads[1]) or after in self._passed:
            return None
        self._passed.add(after)
        if self._is_permuted(number, *([leaf for _, leaf in side] for side in reads)):
            return None
        for (_, left), (_, right) in zip(*reads, strict=True):
            if not self._runs.differs(((number, left), (number, right))):
                continue
            belong = self._belong(left.place.instruction, right.place.instruction)
            if sides.before.is_fixed(left) and sides.after.is_fixed(right):
                known = sides.agrees(0, left) and sides.agrees(1, right)
                if belong or not known:
                    return left, right
            elif sides.agrees(1, right) and (
                self._by_chance(sides, right) or (belong and self._is_surplus(sides, right))
            ):
                return left, right
        return None

    def _is_permuted(self, number: int, before: Sequence[Leaf], after: Sequence[Leaf]) -> bool:
        """Whether a few operands are those of the other module in another order."""
        left = list(before)
        for leaf in after if 1 < len(after) <= _FEW else ():
            same = [one for one in left if not self._runs.differs(((number, one), (number, leaf)))]
            if not same:
                return False
            left.remove(same[0])
        return not left

    def _belong(self, before: Instruction, after: Instruction) -> bool:
        """Whether two instructions are the same one: by the pairing, or by name where that says nothing."""
        partner = self._pairing.before.get(after)
        same = before.name == after.name and before.opcode == after.opcode
        return partner is before or (partner is None and before not in self._pairing.after and same)

    def _is_surplus(self, sides: Sides, leaf: Leaf) -> bool:
        """Whether what a value of the second module agrees with is another one there, or many agree."""
        seen, other = sides.after.seen.get(leaf), sides.counterparts.counterpart(leaf)
        if seen is None or other is None or not is_telling(seen):
            return seen is not None
        one = self._pairing.after.get(other.place.instruction)
        back = sides.reverse.counterpart(other)
        return (
            back is not None and back.place.instruction is one and one is not leaf.place.instruction
        )

    def _by_chance(self, sides: Sides, leaf: Leaf) -> bool:
        """Whether nothing but its data says what a value of the second module corresponds to."""
        other = sides.counterparts.counterpart(leaf)
        if other is None:
            return True
        one, two = leaf.place.instruction, other.place.instruction
        return self._pairing.before.get(one) is not two and one.opcode != two.opcode

    def _ends(self, side: int, starts: Iterable[RunValue], fixed: bool) -> dict[RunValue, bool]:
        """All values on the way that do not agree, and whether all that one was made of does.

        Unless ``fixed``, what was made of constants alone counts as if it did.
        """
        found: dict[RunValue, bool] = {}
        pending = list(starts)
        while pending:
            node = pending.pop()
            if node in found:
                continue
            wrong = [
                (number, leaf)
                for number, leaf in self._reads(side, node)
                if not self._sides[number].agrees(side, leaf)
                and (fixed or not self._sides[number].trace(side).is_fixed(leaf))
            ]
            found[node] = not wrong
            pending += wrong
        return found

    def _reads(self, side: int, node: RunValue) -> list[RunValue]:
        """What a value was made of; of a collective also what the other participants have."""
        number, (place, _) = node
        others = range(len(self._sides)) if place.instruction.opcode in COLLECTIVE else (number,)
        return [
            (other, leaf)
            for other in others
            for _, leaf in self._sides[other].trace(side).operands(place)
        ]

    def _order(self, nodes: Iterable[RunValue], side: int = 1) -> list[RunValue]:
        """Values of a module in the order in which they were computed."""
        at = {
            (number, leaf): step
            for number, sides in enumerate(self._sides)
            for step, leaf in enumerate(sides.trace(side).seen)
        }
        return sorted(nodes, key=lambda node: (at.get(node, len(at)), node[0]))

    def _best(
        self, node: RunValue, others: Mapping[RunValue, bool], start: RunValue | None
    ) -> tuple[float, Leaf | None]:
        """The value of the first module that one of the second should be, and how sure that is."""
        number, leaf = node
        sides = self._sides[number]
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


def _iterations(leaf: Leaf) -> list[int]:
    """Of the loops that a value was computed in."""
    return [number for caller, number in leaf.place.path if caller.opcode == "while"]


def _read(place: Place, read: Iterable[Instruction]) -> list[Leaf]:
    """All arrays of what an execution reads of its computation."""
    return [
        Leaf(Place(place.path, one), index) for one in read for index, _ in positions(one.shape)
    ]
