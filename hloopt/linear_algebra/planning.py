"""The cheapest way to compute sums of products: their order, what is shared, what is factored out.

Orders of one product are found by dynamic programming over its connected sets of factors, where those are few;
of sums, one law after the other is applied as long as the plan becomes cheaper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.linear_algebra.nodes import PlanNode, PlanNodes, Use
from hloopt.linear_algebra.products import (
    Addends,
    Factors,
    WeightedProduct,
    connected,
    distributed,
    factored,
    glued,
    has_sums,
)
from hloopt.linear_algebra.terms import TensorIndex

__all__ = ["ClusterPlanner", "flops", "launched", "reached", "seconds"]

_MOST_SETS: Final = 120
"""Connected sets of factors of a product, above which its order is found greedily."""
_FEW: Final = 5
"""Factors of which all orders are looked at."""
_MOST_PAIRS: Final = 2_000
"""Products of two that are looked at in one cluster."""
_MOST_TRIED: Final = 60
"""Forms of a sum that are planned."""
_MOST_SHARED: Final = 16
"""Intermediate values that are tried as shared ones."""
_DISTRIBUTED: Final = 4
"""How many times fewer flops a sum has to have when multiplied out: its error is that of the largest term."""
_UPDATED: Final = 1.5
"""The same of a matrix and products that are added to it: these were rounded already, with the same error."""


def reached(uses: Iterable[Use]) -> list[PlanNode]:
    """All nodes of a plan, each once."""
    return list(dict.fromkeys(node for use in uses for node in use.node.reached()))


def seconds(uses: Iterable[Use]) -> float:
    """What a plan takes."""
    return sum(node.seconds for node in reached(uses))


def launched(uses: Iterable[Use]) -> float:
    """What its products and sums take."""
    return sum(node.seconds for node in reached(uses) if node.is_launched)


def flops(uses: Iterable[Use]) -> int:
    """What a plan computes."""
    return sum(node.flops for node in reached(uses))


@dataclass(frozen=True)
class _Planned:
    """A way to compute a product of some factors."""

    seconds: float
    use: Use


@dataclass(frozen=True)
class _Form:
    """A way to write a sum, with what its plan takes."""

    value: Addends
    seconds: float
    nodes: frozenset[PlanNode]

    def falls(self, before: _Form, times: float) -> bool:
        """Whether what is computed otherwise than before takes so many times fewer flops."""
        added = sum(node.flops for node in self.nodes - before.nodes)
        return added * times <= sum(node.flops for node in before.nodes - self.nodes)


class ClusterPlanner:
    """Plans the values of one cluster over its nodes."""

    def __init__(self, nodes: PlanNodes) -> None:
        self.nodes = nodes
        self.paid: set[PlanNode] = set()
        self.seen: Counter[PlanNode] = Counter()
        self._left = _MOST_PAIRS
        self._tries = 0
        self._within: set[PlanNode] = set()
        self._known: dict[
            tuple[Factors, frozenset[TensorIndex]], tuple[Use, frozenset[PlanNode]]
        ] = {}

    @property
    def is_spent(self) -> bool:
        """Whether so much was looked at that the rest is planned greedily."""
        return self._left <= 0

    def planned(self, values: Sequence[Addends]) -> list[Use]:
        """A plan for all values together."""
        best = [self.rewritten(value) for value in values]
        if len(best) > 1 and any(map(has_sums, best)):
            best = self._beside_others(best)
        self.seen.clear()
        uses = [self.sum(value) for value in best]
        shared = [node for node, count in self.seen.items() if count > 1 and node.flops]
        shared.sort(key=lambda node: -node.seconds)
        least = seconds(uses)
        for node in shared[:_MOST_SHARED]:
            if self.is_spent:
                break
            self.paid.add(node)
            tried = [self.sum(value) for value in best]
            cost = seconds(tried)
            if cost < least:
                uses, least = tried, cost
            else:
                self.paid.discard(node)
        self.paid.clear()
        return uses

    def _beside_others(self, values: Sequence[Addends]) -> list[Addends]:
        """Sums again where what the other values compute costs nothing: ``A (B + D)`` beside ``A B``."""
        found = list(values)
        for at, value in enumerate(values):
            if not has_sums(value) or self.is_spent:
                continue
            others = [self.sum(one) for place, one in enumerate(found) if place != at]
            self.paid = {node for node in reached(others) if node.flops}
            found[at] = self.rewritten(value)
            self.paid = set()
        both = [seconds([self.sum(value) for value in each]) for each in (values, found)]
        return found if both[1] < both[0] else list(values)

    def _cost(self, value: Addends) -> _Form:
        """What a form takes besides that which is paid."""
        rest = frozenset(node for node in reached([self.sum(value)]) if node not in self.paid)
        return _Form(value, sum(node.seconds for node in rest), rest)

    def rewritten(self, value: Addends) -> Addends:
        """The cheapest form that the laws of distribution lead to, one step at a time."""
        value = self._inner(value)
        self._tries = _MOST_TRIED
        best: _Form | None = self._cost(value)
        while best is not None:
            value, form = best.value, best
            best = (
                self._cheapest(self._rearranged(value), form, 1)
                or self._cheapest(self._multiplied_out(value), form, _DISTRIBUTED)
                or self._cheapest(self._updates(value), form, _UPDATED)
                or self._cheapest(self._and_factored(value), form, _DISTRIBUTED)
            )
        return value

    def _cheapest(
        self, forms: Iterable[tuple[WeightedProduct, ...]], known: _Form, times: float
    ) -> _Form | None:
        """The cheapest of the forms with so many times fewer flops; None where ``known`` is cheaper."""
        best: _Form | None = None
        for products in forms:
            if self._tries <= 0 or self.is_spent:
                break
            self._tries -= 1
            form = self._cost(Addends(products, known.value.names))
            if form.seconds < (best or known).seconds and form.falls(known, times):
                best = form
        return best

    def _rearranged(self, value: Addends) -> Iterator[tuple[WeightedProduct, ...]]:
        yield from factored(value.products, self.nodes.space)
        yield from glued(value.products, self.nodes)

    def _multiplied_out(self, value: Addends) -> Iterator[tuple[WeightedProduct, ...]]:
        return distributed(value.products, self.nodes.space)

    def _updates(self, value: Addends) -> Iterator[tuple[WeightedProduct, ...]]:
        return distributed(value.products, self.nodes.space, updates=True)

    def _and_factored(self, value: Addends) -> Iterator[tuple[WeightedProduct, ...]]:
        """What was multiplied out with a common factor taken out of it: ``A (A B + B)`` is ``(A A + A) B``."""
        for form in self._multiplied_out(value):
            yield from factored(form, self.nodes.space)

    def _inner(self, value: Addends) -> Addends:
        """With the sums within it in their cheapest forms."""
        products = tuple(
            WeightedProduct(
                product.weight,
                tuple(
                    factor if isinstance(factor, Use) else self.rewritten(factor)
                    for factor in product.factors
                ),
                product.summed,
            )
            for product in value.products
        )
        return Addends(products, value.names)

    def sum(self, value: Addends) -> Use:
        """A plan for a sum in its given form."""
        names = frozenset(value.names)
        uses = [self.product(product, names) for product in value.products]
        return self.nodes.summed(uses, [product.weight for product in value.products], names)

    def product(self, product: WeightedProduct, names: AbstractSet[TensorIndex]) -> Use:
        """A plan for a product; its weight is left to the sum."""
        kept = frozenset(product.free & names)
        known = None if self.paid else self._known.get((product.factors, kept))
        if known is None:
            known = self._product(product, kept)
            if not self.paid:
                self._known[product.factors, kept] = known
        self.seen.update(known[1])
        return known[0]

    def _product(
        self, product: WeightedProduct, kept: frozenset[TensorIndex]
    ) -> tuple[Use, frozenset[PlanNode]]:
        uses = [
            factor if isinstance(factor, Use) else self.sum(factor) for factor in product.factors
        ]
        scalars = [use for use in uses if not use.names]
        uses = [self.nodes.reduced(use, frozenset(use.names)) for use in uses if use.names]
        uses = _alike(uses, self.nodes)
        counts = Counter(name for use in uses for name in set(use.names))
        alone = {name for name in product.summed if counts[name] == 1}
        uses = [self.nodes.reduced(use, frozenset(set(use.names) - alone)) for use in uses]
        scalars += [use for use in uses if not use.names]
        uses = [use for use in uses if use.names]
        self._scale(uses, scalars)
        self._within = set()
        made = self._ordered(uses, kept)
        return made, frozenset(self._within)

    def _scale(self, uses: list[Use], scalars: Sequence[Use]) -> None:
        """Multiply the smallest factor by the numbers."""
        for scalar in scalars:
            if not uses:
                uses.append(scalar)
                continue
            least = min(range(len(uses)), key=lambda at: uses[at].node.elements)
            small = uses[least]
            uses[least] = self.nodes.contracted(small, scalar, frozenset(small.names))

    def _ordered(self, uses: Sequence[Use], kept: AbstractSet[TensorIndex]) -> Use:
        """The product of factors with indices, by the best order found."""
        pieces = [self._piece(group, kept) for group in connected(uses)]
        pieces.sort(key=lambda use: use.node.elements)
        while len(pieces) > 1:
            one, other = pieces.pop(0), pieces.pop(0)
            pieces.insert(0, self.nodes.contracted(one, other, kept))
        return pieces[0] if pieces else self.nodes.one()

    def _piece(self, uses: Sequence[Use], kept: AbstractSet[TensorIndex]) -> Use:
        if len(uses) == 1:
            return self.nodes.reduced(uses[0], kept)
        sets = None if self.is_spent else _connected(uses)
        if sets is None:
            return self._greedy(list(uses), kept)
        table: dict[int, _Planned] = {1 << at: _Planned(0.0, use) for at, use in enumerate(uses)}
        for group in sets:
            table[group] = self._best(group, table, uses, kept)
        return table[sets[-1]].use

    def _best(
        self,
        group: int,
        table: dict[int, _Planned],
        uses: Sequence[Use],
        kept: AbstractSet[TensorIndex],
    ) -> _Planned:
        """The cheapest of the pairs that make up a set of factors."""
        outside = {n for at, use in enumerate(uses) if not group >> at & 1 for n in use.names}
        needed = kept | outside
        best: _Planned | None = None
        for part, one in list(table.items()):
            other = table.get(group ^ part) if part & group == part > group ^ part else None
            if other is not None:
                self._left -= 1
                use = self.nodes.contracted(one.use, other.use, needed)
                self._within.add(use.node)
                own = 0.0 if use.node in self.paid else use.node.seconds
                cost = one.seconds + other.seconds + own
                if best is None or cost < best.seconds:
                    best = _Planned(cost, use)
        assert best is not None, "a connected set is two connected sets"
        if best.use.node in self.paid:
            return _Planned(0.0, best.use)
        return best

    def _greedy(self, uses: list[Use], kept: AbstractSet[TensorIndex]) -> Use:
        while len(uses) > 1:
            best: tuple[float, int, int, Use] | None = None
            for one, other in combinations(range(len(uses)), 2):
                if not set(uses[one].names) & set(uses[other].names):
                    continue
                rest = {
                    n for at, use in enumerate(uses) if at not in (one, other) for n in use.names
                }
                use = self.nodes.contracted(uses[one], uses[other], kept | rest)
                if best is None or use.node.seconds < best[0]:
                    best = (use.node.seconds, one, other, use)
            assert best is not None, "connected factors share an index"
            _, one, other, made = best
            uses = [use for at, use in enumerate(uses) if at not in (one, other)] + [made]
        return uses[0]


def _alike(uses: Sequence[Use], nodes: PlanNodes) -> list[Use]:
    """With those of the same indices multiplied first where there are many: their order gains nothing."""
    if len(uses) <= _FEW:
        return list(uses)
    found: dict[frozenset[TensorIndex], Use] = {}
    for use in uses:
        names = frozenset(use.names)
        known = found.get(names)
        found[names] = use if known is None else nodes.contracted(known, use, names)
    return list(found.values())


def _connected(uses: Sequence[Use]) -> list[int] | None:
    """The connected sets of two or more factors, smaller ones first; None where they are too many."""
    near = [
        sum(1 << at for at, other in enumerate(uses) if set(use.names) & set(other.names))
        for use in uses
    ]
    level = {1 << at for at in range(len(uses))}
    found: list[int] = []
    while level:
        larger: set[int] = set()
        for group in level:
            around = 0
            for at in range(len(uses)):
                if group >> at & 1:
                    around |= near[at]
            around &= ~group
            while around:
                lowest = around & -around
                larger.add(group | lowest)
                around ^= lowest
            if len(found) + len(larger) > _MOST_SETS:
                return None
        found += sorted(larger)
        level = larger
    return found
