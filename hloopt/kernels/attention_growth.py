"""Attention in a computation: products of scores, what is computed from them, and products with that again.

A *group* grows from one product: what has an element a score, what has a value a row of them, other products of
the same scores, and contexts, which contract one of their axes.  A group is cut into kernels by the axis that
is contracted and by what each context waits for: a forward pass is one, the gradient of the rows another one,
and those of the columns one more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from heapq import heappop, heappush
from typing import Final

from hloopt.analysis.attention.axes import AxisNumber
from hloopt.analysis.attention.reading import ScoreReader
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import PERMUTING
from hloopt.types import ArrayShape, elements_of

__all__ = ["AttentionGroup", "UnfitGroup", "attention_groups"]

_VIEWS: Final = PERMUTING - {"reverse"}
_MOST: Final = 300
"""Members of a group: what is larger has no kernel."""
_MOST_LOOKED_AT: Final = 2000
_LEAST: Final = 8
"""Columns of scores below which nothing is gained."""


@dataclass(frozen=True, eq=False)
class AttentionGroup:
    """Scores, and all that is computed from them.

    scores    products whose results are scores, in order
    heroes    reductions over an axis of the scores, with that axis
    contexts  products that contract an axis of the scores, with that axis
    members   all with an element a score or a value a row, in order: heroes and scores among them
    needs     the heroes that each hero and each context is computed from
    """

    scores: tuple[Instruction, ...]
    heroes: Mapping[Instruction, frozenset[AxisNumber]]
    contexts: Mapping[Instruction, frozenset[AxisNumber]]
    members: tuple[Instruction, ...]
    needs: Mapping[Instruction, frozenset[Instruction]]

    @property
    def outputs(self) -> Iterator[Instruction]:
        """Members that something else reads; contexts are not among them."""
        inside = {*self.members, *self.contexts}
        for one in self.members:
            if one.is_root or any(user not in inside for user in one.users):
                yield one


@dataclass(frozen=True)
class UnfitGroup:
    """Scores that are weighted by exponentials, and what is computed from them that no kernel computes."""

    first: Instruction
    user: Instruction
    words: str


def attention_groups(computation: Computation) -> list[AttentionGroup | UnfitGroup]:
    """The groups of a computation, in the order of their first products."""
    places = {one: at for at, one in enumerate(computation)}
    taken: set[Instruction] = set()
    found: list[AttentionGroup | UnfitGroup] = []
    for one in computation:
        if one.opcode == "dot" and one not in taken and _may_be_scores(one):
            growth = _Growth(places, one)
            group = growth.group()
            if isinstance(group, AttentionGroup):
                taken.update(group.members)
                taken.update(group.contexts)
                found.append(group)
            elif any(member.opcode == "exponential" for member in growth.reader.along):
                taken.update(growth.reader.scores)
                found.append(UnfitGroup(one, next(iter(one.users)), group))
    return found


def _may_be_scores(dot: Instruction) -> bool:
    """Whether what is computed from a product element by element is reduced, and is multiplied again."""
    if not isinstance(dot.shape, ArrayShape) or dot.shape.is_dynamic or dot.has_control_edges:
        return False
    pending, seen = [dot], {dot}
    kinds: set[str] = set()
    while pending and len(seen) < _MOST_LOOKED_AT:
        one = pending.pop()
        for user in one.users:
            if user.opcode in ("reduce", "dot"):
                kinds.add(user.opcode)
            elif user not in seen and _same_elements(user, dot) and _moves_alone(user):
                seen.add(user)
                pending.append(user)
    return kinds == {"reduce", "dot"}


def _same_elements(one: Instruction, other: Instruction) -> bool:
    return isinstance(one.shape, ArrayShape) and one.shape.elements == elements_of(other.shape)


def _moves_alone(one: Instruction) -> bool:
    return (one.op.is_elementwise or one.opcode in _VIEWS) and not one.has_control_edges


@dataclass
class _Growth:
    places: Mapping[Instruction, int]
    first: Instruction
    reader: ScoreReader = field(default_factory=ScoreReader)

    def group(self) -> AttentionGroup | str:
        """The group, or why something in it is of another form."""
        members = self._members()
        if members is None:
            return f"more than {_MOST} instructions are computed from {self.first.name}"
        reader = self.reader
        for one in sorted(members, key=self.places.__getitem__):
            problem = reader.visit(one)
            if problem:
                return problem
            weights = [part for part in one.operands if part in reader.along]
            if one in reader.contexts and not self._is_full(weights[0]):
                return f"{one.name} multiplies with what has no element a score"
        if not reader.contexts or not reader.heroes:
            return f"what {self.first.name} gives is not reduced and multiplied again"
        order = sorted(
            (one for one in members if one not in reader.contexts), key=self.places.__getitem__
        )
        heroes, contexts = self._resolved(reader.heroes), self._resolved(reader.contexts)
        for one, axes in contexts.items():
            if self._count(axes) < _LEAST:
                return f"{one.name} contracts {self._count(axes)} places; {_LEAST} are the least"
        return AttentionGroup(
            tuple(reader.scores), heroes, contexts, tuple(order), self._needs(order)
        )

    def _resolved(
        self, found: Mapping[Instruction, tuple[AxisNumber, ...]]
    ) -> dict[Instruction, frozenset[AxisNumber]]:
        order = sorted(found, key=self.places.__getitem__)
        return {one: frozenset(map(self.reader.axes.find, found[one])) for one in order}

    def _count(self, axes: Iterable[AxisNumber]) -> int:
        total = 1
        for axis in axes:
            total *= self.reader.axes.sizes[axis]
        return total

    def _members(self) -> set[Instruction] | None:
        """All that is computed from scores, and the other products of scores.

        What is computed from a context is none, though it may have as many elements as scores do.
        """
        found: set[Instruction] = set()
        after: set[Instruction] = set()
        seen = {self.first}
        pending = [(self.places[self.first], self.first)]
        while pending:
            # In order: what a member is computed from is known before it.
            one = heappop(pending)[1]
            if one.opcode == "dot" and not found.isdisjoint(one.operands):
                after.add(one)
                found.add(one)
                continue
            if one.opcode != "dot" and not after.isdisjoint(one.operands):
                after.add(one)
                continue
            found.add(one)
            if len(found) > _MOST:
                return None
            for other in (*self._behind(one), *self._before(one, seen)):
                if other not in seen:
                    seen.add(other)
                    heappush(pending, (self.places[other], other))
        return found

    def _behind(self, one: Instruction) -> Iterator[Instruction]:
        """Users that belong to the group."""
        for user in one.users:
            if user.has_control_edges or not isinstance(user.shape, ArrayShape):
                continue
            if self._is_full(one):
                if user.opcode in ("dot", "reduce") or self._keeps(user, one):
                    yield user
            elif self._keeps(user, one) or (user.opcode == "broadcast" and self._is_full(user)):
                yield user

    def _keeps(self, user: Instruction, one: Instruction) -> bool:
        return _moves_alone(user) and _same_elements(user, one)

    def _before(self, one: Instruction, found: set[Instruction]) -> Iterator[Instruction]:
        """What has an element a score and comes from another product of the same scores."""
        if not self._is_full(one) or one.opcode in ("dot", "broadcast"):
            return
        pending = [part for part in one.operands if part not in found and self._is_full(part)]
        seen = set(pending)
        while pending and len(seen) < _MOST_LOOKED_AT:
            last = pending.pop()
            if not _moves_alone(last):
                continue
            for part in last.operands:
                if part not in seen and part not in found and self._is_full(part):
                    seen.add(part)
                    pending.append(part)
        products: set[Instruction] = set()
        for part in sorted(seen, key=self.places.__getitem__):
            if (part.opcode == "dot" and not part.has_control_edges) or (
                _moves_alone(part) and products.intersection(part.operands)
            ):
                products.add(part)
        yield from products

    def _is_full(self, one: Instruction) -> bool:
        return _same_elements(one, self.first)

    def _needs(self, order: Iterable[Instruction]) -> dict[Instruction, frozenset[Instruction]]:
        behind: dict[Instruction, frozenset[Instruction]] = {}
        needs = {}
        for one in (*order, *self.reader.contexts):
            above = frozenset().union(*(behind.get(part, frozenset()) for part in one.operands))
            if one in self.reader.heroes or one in self.reader.contexts:
                needs[one] = above
            behind[one] = above | {one} if one in self.reader.heroes else above
        return needs
