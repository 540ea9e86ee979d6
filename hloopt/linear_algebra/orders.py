"""The order in which the factors of one product are multiplied.

It is found by dynamic programming over the connected sets of factors where those are few, else greedily.  What
is ``paid`` by others costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from heapq import heappop, heappush
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.linear_algebra.nodes import PlanNode, PlanNodes, Use
from hloopt.linear_algebra.products import connected
from hloopt.linear_algebra.terms import TensorIndex

__all__ = ["PairBudget", "ProductOrders", "alike"]

_MOST_SETS: Final = 120
"""Connected sets of factors of a product, above which its order is found greedily."""
_FEW: Final = 5
"""Factors of which all orders are looked at."""
_PLACES: Final = 4
"""Places before the last where a number is multiplied in the best order found."""
_MOST_PAIRS: Final = 3_000
"""Products of two that are looked at in one cluster."""
_MODULE_PAIRS: Final = 3_000
"""The same in a module; then each cluster has a few."""
_FEW_PAIRS: Final = 250


class PairBudget:
    """How many products of two may still be looked at in a module."""

    def __init__(self) -> None:
        self.left = _MODULE_PAIRS

    @property
    def of_cluster(self) -> int:
        """What the next cluster may take."""
        return min(_MOST_PAIRS, max(_FEW_PAIRS, self.left))


@dataclass(frozen=True)
class _Planned:
    """A way to compute a product of some factors, from those of two ``parts`` where it is not one itself."""

    seconds: float
    use: Use
    parts: tuple[int, int] | None = None


class ProductOrders:
    """Orders of products over the nodes of a cluster; ``within`` are the products of two looked at."""

    def __init__(self, nodes: PlanNodes, budget: PairBudget) -> None:
        self.nodes = nodes
        self.paid: set[PlanNode] = set()
        self.within: set[PlanNode] = set()
        self._budget = budget
        self._left = budget.of_cluster

    @property
    def is_spent(self) -> bool:
        """Whether so much was looked at that the rest is planned greedily."""
        return self._left <= 0

    def best(
        self, uses: Sequence[Use], scalars: Sequence[Use], kept: AbstractSet[TensorIndex]
    ) -> tuple[Use, frozenset[PlanNode]]:
        """The product of factors with indices and of numbers, and the products of two looked at for it."""
        self.within = set()
        made = self._ordered(uses, scalars, kept)
        return made, frozenset(self.within)

    def _ordered(
        self, uses: Sequence[Use], scalars: Sequence[Use], kept: AbstractSet[TensorIndex]
    ) -> Use:
        """The product of factors with indices and of numbers, by the best order found.

        What shares no summed index with the rest and has all indices of the result is computed by itself.
        """
        number = self._multiplied(scalars, kept) if scalars else None
        alone, together = _parted(uses, kept)
        pieces = [self._piece(group, kept) for group in alone]
        groups = connected(together)
        if len(groups) == 1:
            pieces.append(self._piece(groups[0], kept, number))
        else:
            pieces += [self._piece(group, kept) for group in groups]
            pieces += [] if number is None else [number]
        return self._multiplied(pieces, kept) if pieces else self.nodes.one()

    def _multiplied(self, pieces: Iterable[Use], kept: AbstractSet[TensorIndex]) -> Use:
        """The product of what shares no indices, the smallest first."""
        left = sorted(pieces, key=lambda use: use.node.elements)
        while len(left) > 1:
            one, other = left.pop(0), left.pop(0)
            left.insert(0, self.nodes.contracted(one, other, kept))
        return left[0]

    def _piece(
        self, group: Sequence[Use], kept: AbstractSet[TensorIndex], number: Use | None = None
    ) -> Use:
        """The product of factors that hang together, with a number where that costs least, rather late."""
        if len(group) == 1:
            alone = self.nodes.reduced(group[0], kept)
            return alone if number is None else self.nodes.contracted(alone, number, kept)
        sets = None if self.is_spent else _connected(group)
        if sets is None:
            made = self._greedy(list(group), kept)
            return made if number is None else self.nodes.contracted(made, number, kept)
        table: dict[int, _Planned] = {1 << at: _Planned(0.0, use) for at, use in enumerate(group)}
        # By their last factor, which one of both parts of a set has.
        ending = [[1 << at] for at in range(len(group))]
        for one in sets:
            last = ending[one.bit_length() - 1]
            table[one] = self._best(one, last, table, group, kept)
            last.append(one)
        if number is None:
            return table[sets[-1]].use
        return self._scaled(sets[-1], number, table, group, kept)

    def _scaled(
        self,
        whole: int,
        number: Use,
        table: Mapping[int, _Planned],
        uses: Sequence[Use],
        kept: AbstractSet[TensorIndex],
    ) -> Use:
        """The planned product of all factors, with a number multiplied where that costs least, rather late."""
        computed = [whole]
        for one in computed:
            computed += table[one].parts or ()
        smallest = sorted(computed[1:], key=lambda one: table[one].use.node.elements)
        ways = [
            self._scaled_at(place, whole, number, table, uses, kept)
            for place in (whole, *smallest[:_PLACES])
        ]
        return min(ways, key=lambda way: way.seconds).use

    def _scaled_at(
        self,
        place: int,
        group: int,
        number: Use,
        table: Mapping[int, _Planned],
        uses: Sequence[Use],
        kept: AbstractSet[TensorIndex],
    ) -> _Planned:
        """The product of a set of factors, of whose factors those at ``place`` are multiplied by the number."""
        planned = table[group]
        if place == group:
            return self._product(planned, _Planned(0.0, number), _needed(group, uses, kept))
        assert planned.parts is not None, "a place is within the set"
        one, other = planned.parts
        if place & one != place:
            one, other = other, one
        scaled = self._scaled_at(place, one, number, table, uses, kept)
        return self._product(scaled, table[other], _needed(group, uses, kept))

    def _product(
        self, one: _Planned, other: _Planned, needed: AbstractSet[TensorIndex]
    ) -> _Planned:
        """The product of two, which costs nothing where others pay it."""
        self._left -= 1
        self._budget.left -= 1
        use = self.nodes.contracted(one.use, other.use, needed)
        self.within.add(use.node)
        if use.node in self.paid:
            return _Planned(0.0, use)
        # A square: what is multiplied by itself is computed once.
        both = 0.0 if one.use.node is other.use.node else other.seconds
        return _Planned(one.seconds + both + use.node.seconds, use)

    def _best(
        self,
        group: int,
        parts: Sequence[int],
        table: dict[int, _Planned],
        uses: Sequence[Use],
        kept: AbstractSet[TensorIndex],
    ) -> _Planned:
        """The cheapest of the pairs that make up a set of factors, of which one is among the parts."""
        needed = _needed(group, uses, kept)
        best: _Planned | None = None
        for part in parts:
            other = table.get(group ^ part) if part & group == part else None
            if other is not None:
                one = table[part]
                made = self._product(one, other, needed)
                if best is None or made.seconds < best.seconds:
                    best = _Planned(made.seconds, made.use, (part, group ^ part))
        assert best is not None, "a connected set is two connected sets"
        return best

    def _greedy(self, uses: Sequence[Use], kept: AbstractSet[TensorIndex]) -> Use:
        """Two at a time, those whose product takes least.

        The prices of others stay: an index that they share with the two is one of the product, too.
        """
        left, pairs = _Factors(), list[tuple[float, int, int, Use]]()

        def price(one: int, other: int) -> None:
            needed = kept | left.shared_by_others(one, other)
            made = self.nodes.contracted(left.uses[one], left.uses[other], needed)
            heappush(pairs, (made.node.seconds, one, other, made))

        for at, use in enumerate(uses):
            left.add(at, use)
        for at in range(len(uses)):
            for other in left.near(at):
                if other > at:
                    price(at, other)
        last = len(uses)
        while len(left.uses) > 1:
            assert pairs, "connected factors share an index"
            _, one, other, made = heappop(pairs)
            if one not in left.uses or other not in left.uses:
                continue
            left.remove(one)
            left.remove(other)
            left.add(last, made)
            for near in left.near(last):
                price(near, last)
            last += 1
        return left.uses.popitem()[1]


class _Factors:
    """Factors by number, and which of them have an index."""

    def __init__(self) -> None:
        self.uses: dict[int, Use] = {}
        self._having: dict[TensorIndex, set[int]] = {}

    def add(self, number: int, use: Use) -> None:
        self.uses[number] = use
        for name in use.names:
            self._having.setdefault(name, set()).add(number)

    def remove(self, number: int) -> None:
        for name in self.uses.pop(number).names:
            self._having[name].discard(number)

    def near(self, number: int) -> list[int]:
        """The factors that share an index with one."""
        found = {at for name in self.uses[number].names for at in self._having[name]}
        return sorted(found - {number})

    def shared_by_others(self, one: int, other: int) -> set[TensorIndex]:
        """The indices of two factors that a third one has."""
        names = {*self.uses[one].names, *self.uses[other].names}
        return {name for name in names if self._having[name] - {one, other}}


def _needed(
    group: int, uses: Sequence[Use], kept: AbstractSet[TensorIndex]
) -> AbstractSet[TensorIndex]:
    """The indices that a set of factors has to keep: those of the result, and of the other factors."""
    return kept | {n for at, use in enumerate(uses) if not group >> at & 1 for n in use.names}


def _parted(
    uses: Sequence[Use], kept: AbstractSet[TensorIndex]
) -> tuple[list[list[Use]], list[Use]]:
    """Groups of factors over other summed indices, each with all indices of the result, and the rest.

    The longest group is part of the rest, whose scalings may go into it.
    """
    whole = {name for use in uses for name in use.names if name in kept}
    groups: list[tuple[set[TensorIndex], list[Use]]] = []
    for use in uses:
        names, members = set(use.names) - kept, [use]
        for group in [group for group in groups if group[0] & names]:
            names |= group[0]
            members = group[1] + members
            groups.remove(group)
        groups.append((names, members))
    full: list[list[Use]] = []
    rest: list[Use] = []
    for _, members in groups:
        if whole <= {name for use in members for name in use.names}:
            full.append(members)
        else:
            rest += members
    *alone, longest = sorted(full, key=len) or [[]]
    return alone, longest + rest


def alike(uses: Sequence[Use], nodes: PlanNodes) -> list[Use]:
    """With those of the same indices multiplied first where there are many: their order gains nothing."""
    if len(uses) <= _FEW:
        return list(uses)
    found: dict[frozenset[TensorIndex], Use] = {}
    for use in uses:
        names = frozenset(use.names)
        known = found.get(names)
        found[names] = use if known is None else nodes.contracted(known, use, names)
    return list(found.values())


def _connected(uses: Sequence[Use]) -> tuple[int, ...] | None:
    """The connected sets of two or more factors, smaller ones first; None where they are too many."""
    names = [frozenset(use.names) for use in uses]
    near = [
        sum([1 << at for at, other in enumerate(names) if not own.isdisjoint(other)])
        for own in names
    ]
    return _connected_sets(tuple(near))


@lru_cache(maxsize=256)
def _connected_sets(near: tuple[int, ...]) -> tuple[int, ...] | None:
    """The same of factors of which each hangs together with those in its set."""
    level = {1 << at for at in range(len(near))}
    found: list[int] = []
    while level:
        larger: set[int] = set()
        for group in level:
            around = 0
            for at, others in enumerate(near):
                if group >> at & 1:
                    around |= others
            around &= ~group
            while around:
                lowest = around & -around
                larger.add(group | lowest)
                around ^= lowest
            if len(found) + len(larger) > _MOST_SETS:
                return None
        found += sorted(larger)
        level = larger
    return tuple(found)
