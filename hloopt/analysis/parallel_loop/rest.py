"""Conditions over all work items that hold while any continues: may each work item stop by itself?

A work item's own part of such a condition is the condition with its reduces over parallel axes taken over the
elements of the work item alone.  Each work item may run while its own part holds, if

1. the condition holds wherever a work item's own part does: ``or`` of the work items leads to true, ``and`` to
   false;
2. a work item whose own part does not hold is at **rest**: iterations that others need change nothing
   observable of it.  Shown by computing the body under what follows from the own part being false (``terms``),
   in each of the cases in which it may be; what a case rests on must itself be at rest, so that it stays so.

An element of the state that counts iterations for all work items is not at rest: where it is read after the
loop, its final value is common to all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Final, TypeAlias

from hloopt.analysis.elementwise import plain_opcode
from hloopt.analysis.parallel_loop.model import Axes, LoopNode
from hloopt.analysis.parallel_loop.numbers import numbers
from hloopt.analysis.parallel_loop.state import LoopState
from hloopt.analysis.parallel_loop.terms import Contradiction, TermId, Terms
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops.traits import FORWARDING, MIRRORED

__all__ = ["Rest", "rest"]

_MOST_CASES: Final = 16
"""The most cases in which a work item's own part of a condition may be false; no known loop has more."""

_VIEWS: Final = frozenset({*FORWARDING, "bitcast", "broadcast", "reshape"})
_LEADING: Final = {
    ("maximum", False): ("GT", "GE"),
    ("minimum", False): ("LT", "LE"),
    ("maximum", True): ("LT", "LE"),
    ("minimum", True): ("GT", "GE"),
}
"""Comparisons that hold of the greatest, or least, wherever they hold of one; or only if they hold of all."""


@dataclass(frozen=True, slots=True)
class Rest:
    """An answer.

    reduces  those of the condition that a work item takes over its own elements
    own      the pred of which the condition is the ``or``, where it is nothing else and a work item has
             one
    problem  why work items cannot stop by themselves; empty where they can
    """

    reduces: tuple[Instruction, ...] = ()
    own: Instruction | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Fact:
    """That a pred is ``value`` everywhere in a work item, or in all of them (``uniform``).

    The pred is an instruction of the condition, or a comparison of two, of which reduces are left out.
    """

    one: Instruction
    value: bool
    uniform: bool = False
    direction: str = ""
    other: Instruction | None = None


_Case: TypeAlias = "frozenset[_Fact]"


class _Unprovable(Exception):  # noqa: N818 - not an error: an answer
    pass


def rest(state: LoopState, owned: Mapping[LoopNode, Axes]) -> Rest:
    """Whether each work item may run while its own part of the condition holds."""
    return _Prover(state, owned).prove()


class _Prover:
    def __init__(self, state: LoopState, owned: Mapping[LoopNode, Axes]) -> None:
        self.state = state
        self.owned = owned
        self.root = state.condition.root
        self.reduces: dict[Instruction, None] = {}
        self.over_work_items = self._over_work_items()
        self.plain_terms = Terms()
        self.plain_numbers = numbers(self.plain_terms, state.condition)

    def _over_work_items(self) -> frozenset[Instruction]:
        """The instructions of the condition that depend on all work items."""
        found: set[Instruction] = set()
        for one in self.state.condition:
            if not found.isdisjoint(one.operands) or (
                one.opcode == "reduce" and self._is_over_axes(one)
            ):
                found.add(one)
        return frozenset(found)

    def prove(self) -> Rest:
        try:
            cases = list(dict.fromkeys(self._cases(self.root, False, None)))
            for case in cases:
                self._check(case)
        except _Unprovable as problem:
            return Rest(tuple(self.reduces), problem=str(problem))
        return Rest(tuple(self.reduces), self._own())

    def _own(self) -> Instruction | None:
        root = _plain(self.root)
        if root not in self.reduces or plain_opcode(root.to_apply) != "or":
            return None
        literal = root.operands[1].literal
        starts_false = literal is not None and literal.splat is not None and not literal.splat
        return root.operands[0] if starts_false and self._is_single(root.operands[0]) else None

    # ---- 1: the cases in which a work item's own part is false --------------------------------------------

    def _cases(
        self, one: Instruction, wanted: bool, work_item: Instruction | None
    ) -> Iterator[_Case]:
        """The cases in which a pred is ``wanted`` for a work item.

        ``work_item``: an array of the work item's own, below a reduce, of whose elements all are as wanted.
        """
        one = _plain(one)
        opcode = one.opcode
        if opcode == "not":
            yield from self._cases(one.operands[0], not wanted, work_item)
        elif opcode in ("and", "or") and one.array.dtype.is_pred:
            yield from self._joined(one, wanted, work_item)
        elif opcode == "broadcast" and one.operands[0].array.rank == 0:
            yield from self._cases(one.operands[0], wanted, work_item)
        elif opcode == "reduce" and (one in self.over_work_items or self._may_split(one, wanted)):
            yield from self._reduced(one, wanted)
        elif one not in self.over_work_items:
            yield frozenset((_Fact(one, wanted, uniform=self._is_uniform(one)),))
        elif opcode == "compare":
            yield from self._compared(one, wanted)
        elif opcode in _VIEWS:
            yield from self._cases(one.operands[0], wanted, work_item)
        else:
            raise _Unprovable(
                f"{opcode} {one.name} combines values of work items in an unsupported way"
            )

    def _joined(
        self, one: Instruction, wanted: bool, work_item: Instruction | None
    ) -> Iterator[_Case]:
        left, right = one.operands
        if (one.opcode == "and") == wanted:
            pairs = product(
                self._cases(left, wanted, work_item), self._cases(right, wanted, work_item)
            )
            for number, (first, second) in enumerate(pairs):
                if number >= _MOST_CASES:
                    raise _Unprovable(f"its condition has more than {_MOST_CASES} cases")
                yield first | second
        elif work_item is None or self._is_single(work_item):
            yield from self._cases(left, wanted, work_item)
            yield from self._cases(right, wanted, work_item)
        else:
            yield frozenset((_Fact(one, wanted),))

    def _may_split(self, reduce: Instruction, wanted: bool) -> bool:
        opcode = plain_opcode(reduce.to_apply)
        return len(reduce.operands) == 2 and opcode == ("and" if wanted else "or")

    def _reduced(self, one: Instruction, wanted: bool) -> Iterator[_Case]:
        if not self._may_split(one, wanted):
            opcode = plain_opcode(one.to_apply)
            if opcode in ("and", "or"):
                raise _Unprovable("it continues only while all work items do")
            raise _Unprovable(
                f"its reducer {one.attributes['to_apply'].name} is neither `and` nor `or`"
            )
        self._take(one)
        yield from self._cases(one.operands[0], wanted, one.operands[0])

    def _take(self, reduce: Instruction) -> None:
        if reduce.operands[1] in self.over_work_items:
            raise _Unprovable(f"reduce {reduce.name} begins with values of work items")
        if self._is_over_axes(reduce):
            self.reduces[reduce] = None

    def _compared(self, one: Instruction, wanted: bool) -> Iterator[_Case]:
        """A comparison of the greatest, the least or the number of what work items have; integers only.

        Of floats, one work item's NaN would decide for all.
        """
        left, right = one.operands
        direction = one.direction
        if right in self.over_work_items:
            left, right, direction = right, left, MIRRORED[direction]
        reduce = left
        while reduce.opcode in _VIEWS:
            reduce = reduce.operands[0]
        if (
            right in self.over_work_items
            or reduce.opcode != "reduce"
            or not self._is_uniform(right)
        ):
            raise _Unprovable(f"compare {one.name} compares values of work items")
        opcode = plain_opcode(reduce.to_apply)
        if opcode == "add":
            yield from self._counted(one, reduce, right, direction, wanted)
            return
        kind = reduce.operands[0].array.dtype
        if kind.is_float:
            raise _Unprovable(f"one work item's NaN of {kind.name} would decide for all")
        if not kind.is_integer:
            raise _Unprovable(f"compare {one.name} compares values of work items")
        if direction not in _LEADING.get((opcode, wanted), ()):
            raise _Unprovable(
                f"compare {one.name} may hold for all work items where it does for none"
            )
        self._take(reduce)
        value = reduce.operands[0]
        if value in self.over_work_items:
            raise _Unprovable(f"reduce {reduce.name} is not the first over the work items")
        yield frozenset((_Fact(value, wanted, direction=direction, other=right),))

    def _counted(
        self,
        one: Instruction,
        reduce: Instruction,
        other: Instruction,
        direction: str,
        wanted: bool,
    ) -> Iterator[_Case]:
        """How many preds are true, compared with 0."""
        value = _plain(reduce.operands[0])
        pred = value.operands[0] if value.opcode == "convert" else value
        fits = value.array.dtype.is_integer and value.array.elements <= value.array.dtype.limits[1]
        zero = _is_number(other, 0) and _is_number(reduce.operands[1], 0)
        expected = direction in (("EQ", "LE") if wanted else ("NE", "GT"))
        if not (pred.array.dtype.is_pred and fits and zero and expected):
            raise _Unprovable(f"compare {one.name} adds up what work items have")
        self._take(reduce)
        yield from self._cases(pred, False, pred)

    def _is_over_axes(self, reduce: Instruction) -> bool:
        axes = self.owned.get((reduce.operands[0], 0))
        return axes is not None and any(
            axes[dim] is not None for dim in reduce.attributes["dimensions"]
        )

    def _is_uniform(self, one: Instruction) -> bool:
        """Whether every work item has the same; what is free has, where it has no dimensions."""
        axes = self.owned.get((one, 0))
        return one.array.rank == 0 if axes is None else all(axis is None for axis in axes)

    def _is_single(self, one: Instruction) -> bool:
        """Whether a work item has one element."""
        axes = self.owned.get((one, 0), (None,) * one.array.rank)
        return all(
            axis is not None or size == 1 for axis, size in zip(axes, one.array.dims, strict=True)
        )

    # ---- 2: rest ------------------------------------------------------------------------------------

    def _check(self, case: _Case) -> None:
        """Raise ``_Unprovable`` where a work item that has stopped for this reason may change."""
        uniform_facts = {fact.one: fact.value for fact in case if fact.uniform}
        if self._value(self.root, uniform_facts) is False:
            return
        facts = list(case)
        while True:
            try:
                kept = self._kept(facts)
            except Contradiction:
                return
            lasting = [fact for fact in facts if self._lasts(fact, kept)]
            if len(lasting) == len(facts):
                break
            facts = lasting
        results = self.state.results
        for number, value in enumerate(self.state.body.root.operands):
            if number not in kept and (results is None or number in results):
                raise _Unprovable(
                    f"{value.opcode} {value.name} still changes element {number} of the state of work items"
                    " that are done"
                )

    def _value(self, one: Instruction, uniform_facts: Mapping[Instruction, bool]) -> bool | None:
        """The whole condition where parts of it are what they are for all work items; None: it depends."""
        one = _plain(one)
        if one in uniform_facts:
            return uniform_facts[one]
        if one.literal is not None and one.literal.splat is not None:
            return bool(one.literal.splat)
        opcode = plain_opcode(one.to_apply) if one.opcode == "reduce" else one.opcode
        if opcode in _VIEWS:
            return self._value(one.operands[0], uniform_facts) if one.operands else None
        if opcode not in ("and", "not", "or") or not one.array.dtype.is_pred:
            return None
        parts = [self._value(operand, uniform_facts) for operand in one.operands]
        if opcode == "not":
            return None if parts[0] is None else not parts[0]
        decides = opcode == "or"
        return decides if decides in parts else None if None in parts else not decides

    def _kept(self, facts: Sequence[_Fact]) -> frozenset[int]:
        """The elements of the state that the body passes through where the facts hold.

        Raises ``Contradiction``.
        """
        terms = Terms()
        known = -1
        while known != len(terms.facts) + len(terms.bounds):
            known = len(terms.facts) + len(terms.bounds)
            found = numbers(terms, self.state.condition)
            for fact in facts:
                terms.learn(_term(terms, found, fact), fact.value)
        after = numbers(terms, self.state.body)
        return frozenset(
            number
            for number in range(self.state.count)
            if after[self.state.body.root, number] == terms.make("state", number)
        )

    def _lasts(self, fact: _Fact, kept: frozenset[int]) -> bool:
        """Whether a fact is still true in the next iteration: it reads what is kept."""
        reads = self.plain_terms.reads(_term(self.plain_terms, self.plain_numbers, fact))
        return reads is not None and reads <= kept | self.state.invariant


def _term(terms: Terms, found: Mapping[LoopNode, TermId], fact: _Fact) -> TermId:
    if fact.other is None:
        return found[fact.one, 0]
    kind = fact.one.array.dtype
    return terms.compare(fact.direction, found[fact.one, 0], found[fact.other, 0], kind)


def _plain(one: Instruction) -> Instruction:
    while one.opcode in FORWARDING:
        one = one.operands[0]
    return one


def _is_number(one: Instruction, number: int) -> bool:
    literal = _plain(one).literal
    return literal is not None and literal.splat is not None and bool(literal.splat == number)
