"""The cheapest way to compute sums of products: their order, what is shared, what is factored out.

``orders.py`` has the orders of one product; of sums, one law after the other is applied as long as the plan
becomes cheaper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from math import prod
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.linear_algebra.nodes import PlanNode, PlanNodes, Use
from hloopt.linear_algebra.orders import PairBudget, ProductOrders, alike
from hloopt.linear_algebra.products import (
    Addends,
    Factors,
    RewrittenSum,
    WeightedProduct,
    absorbed,
    distributed,
    factored,
    glued,
    has_sums,
)
from hloopt.linear_algebra.terms import TensorIndex

__all__ = ["ClusterPlanner", "flops", "launched", "reached", "seconds"]

_MOST_TRIED: Final = 60
"""Forms of a sum that are planned."""
_MOST_PLACES: Final = 8
"""Sums that are multiplied out at once."""
_MOST_SHARED: Final = 16
"""Intermediate values that are tried as shared ones."""
_DISTRIBUTED: Final = 4
"""How many times fewer flops a sum has to have when multiplied out: its error is that of the largest term."""
_UPDATED: Final = 1.25
"""The same of a matrix B to which products U W are added. As ``|B| <= |B + U W| + |U| |W|``, the error of
``A B + (A U) W`` is at most ``n u |A| |B + U W| + (2 n + k) u |A| |U| |W|``, n and k being the depths; as it is
written it has k in place of 2 n + k. The bound keeps its form: where B and U W cancel, U W was rounded in any
case. A sum of two given matrices is exact where they cancel, and multiplied out it is not."""


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

    def __init__(self, nodes: PlanNodes, budget: PairBudget) -> None:
        self.nodes = nodes
        self.orders = ProductOrders(nodes, budget)
        self.seen: Counter[PlanNode] = Counter()
        self._tries = 0
        self._known: dict[
            tuple[Factors, frozenset[TensorIndex]], tuple[Use, frozenset[PlanNode]]
        ] = {}

    @property
    def is_spent(self) -> bool:
        """Whether so much was looked at that the rest is planned greedily."""
        return self.orders.is_spent

    @property
    def paid(self) -> set[PlanNode]:
        """The nodes that others compute."""
        return self.orders.paid

    def planned(self, values: Sequence[Addends]) -> list[Use]:
        """A plan for all values together."""
        best = [self.rewritten(value) for value in values]
        if len(best) > 1 and any(map(has_sums, best)) and not self.is_spent:
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
            self.paid.update(node for node in reached(others) if node.flops)
            found[at] = self.rewritten(value)
            self.paid.clear()
        both = [seconds([self.sum(value) for value in each]) for each in (values, found)]
        return found if both[1] < both[0] else list(values)

    def _cost(self, value: Addends) -> _Form:
        """What a form takes besides that which is paid."""
        rest = frozenset(node for node in reached([self.sum(value)]) if node not in self.paid)
        return _Form(value, sum(node.seconds for node in rest), rest)

    def rewritten(self, value: Addends) -> Addends:
        """The cheapest form that the laws of distribution lead to, one step at a time."""
        value = self._inner(value)
        if self.is_spent or (len(value.products) == 1 and not has_sums(value)):
            return value
        self._tries = _MOST_TRIED
        best: _Form | None = self._cost(value)
        while best is not None:
            value, form = best.value, best
            ways = (self._cheapest(law(value), form, times) for law, times in self._laws)
            best = next((way for way in ways if way is not None), None)
        return value

    @property
    def _laws(self) -> tuple[tuple[Callable[[Addends], Iterator[RewrittenSum]], float], ...]:
        """In the order they are tried: what gives forms of a sum, and how many times fewer flops these need."""
        return (
            (self._rearranged, 1),
            (self._multiplied_out, _DISTRIBUTED),
            (self._updates, _UPDATED),
            (self._updates_in_all_places, _UPDATED),
            (lambda value: self._and_factored(self._multiplied_out(value)), _DISTRIBUTED),
            (lambda value: self._and_factored(self._updates(value)), _UPDATED),
        )

    def _cheapest(self, forms: Iterable[RewrittenSum], known: _Form, times: float) -> _Form | None:
        """The cheapest of the forms with so many times fewer flops; None where ``known`` is cheaper."""
        best: _Form | None = None
        for one in forms:
            if self._tries <= 0 or self.is_spent:
                break
            self._tries -= 1
            form = self._cost(Addends(one.products, known.value.names))
            if form.seconds < (best or known).seconds and self._falls(one, form, known, times):
                best = form
        return best

    def _falls(self, one: RewrittenSum, form: _Form, known: _Form, times: float) -> bool:
        """Whether flops fall so many times, of what changed; what is made of that has as many as before."""
        if form.falls(known, times):
            return True
        return bool(one.parts) and all(
            self._cost(after).falls(self._cost(before), times) for before, after in one.parts
        )

    def _rearranged(self, value: Addends) -> Iterator[RewrittenSum]:
        yield from factored(value.products, self.nodes.space)
        yield from glued(value.products, self.nodes)

    def _multiplied_out(self, value: Addends) -> Iterator[RewrittenSum]:
        return distributed(value.products, self.nodes.space)

    def _updates(self, value: Addends) -> Iterator[RewrittenSum]:
        return distributed(value.products, self.nodes.space, updates=True)

    def _updates_in_all_places(self, value: Addends) -> Iterator[RewrittenSum]:
        """Updates multiplied out wherever that takes less: a sum that is read twice goes in both places."""
        found = RewrittenSum(value.products)
        while len(found.parts) < _MOST_PLACES:
            for at, one in absorbed(found.products, self.nodes.space):
                before, after = (self._cost(part) for part in one.parts[0])
                if after.seconds < before.seconds and after.falls(before, _UPDATED):
                    products = (*found.products[:at], *one.products, *found.products[at + 1 :])
                    found = RewrittenSum(products, (*found.parts, *one.parts))
                    break
            else:
                break
        if len(found.parts) > 1:
            yield found

    def _and_factored(self, forms: Iterable[RewrittenSum]) -> Iterator[RewrittenSum]:
        """What was multiplied out with a common factor taken out of it: ``A (A B + B)`` is ``(A A + A) B``."""
        for form in forms:
            yield from factored(form.products, self.nodes.space)

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
        products = [self._weighed(product, names) for product in value.products]
        uses = [self.product(product, names) for product in products]
        return self.nodes.summed(uses, [product.weight for product in products], names)

    def _weighed(
        self, product: WeightedProduct, names: AbstractSet[TensorIndex]
    ) -> WeightedProduct:
        """With a weight as a factor where a factor is smaller than the product."""
        sizes = [
            self._elements(factor.names)
            for factor in product.factors
            if not (isinstance(factor, Use) and factor.node.kind == "identity")
        ]
        made = self._elements(product.free & names)
        if abs(product.weight) == 1 or min(sizes, default=made) >= made:
            return product
        weight = self.nodes.summed([self.nodes.one()], [abs(product.weight)], frozenset())
        return WeightedProduct(
            1 if product.weight > 0 else -1, (*product.factors, weight), product.summed
        )

    def _elements(self, names: Iterable[TensorIndex]) -> int:
        return prod(self.nodes.space.size(name) for name in set(names))

    def product(self, product: WeightedProduct, names: AbstractSet[TensorIndex]) -> Use:
        """A plan for a product; its weight is left to the sum."""
        kept = frozenset(product.free & names)
        known = self._known.get((product.factors, kept))
        if known is None or not self._holds(product, known[1]):
            known = self._product(product, kept)
            if not self.paid:
                self._known[product.factors, kept] = known
        self.seen.update(known[1])
        return known[0]

    def _holds(self, product: WeightedProduct, within: AbstractSet[PlanNode]) -> bool:
        """Whether what is paid changes nothing in a plan for which the products ``within`` were looked at."""
        if not self.paid:
            return True
        plain = all(isinstance(factor, Use) for factor in product.factors)
        return plain and self.paid.isdisjoint(within)

    def _product(
        self, product: WeightedProduct, kept: frozenset[TensorIndex]
    ) -> tuple[Use, frozenset[PlanNode]]:
        uses = [
            factor if isinstance(factor, Use) else self.sum(factor) for factor in product.factors
        ]
        scalars = [use for use in uses if not use.names]
        uses = [self.nodes.reduced(use, frozenset(use.names)) for use in uses if use.names]
        # What only those have that are multiplied here is summed right after.
        uses = alike(uses, self.nodes)
        counts = Counter(name for use in uses for name in set(use.names))
        alone = {name for name in product.summed if counts[name] == 1}
        uses = [self.nodes.reduced(use, frozenset(set(use.names) - alone)) for use in uses]
        scalars += [use for use in uses if not use.names]
        uses = [use for use in uses if use.names]
        return self.orders.best(uses, scalars, kept)
