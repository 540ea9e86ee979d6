"""Products of nodes that are summed and added, and the laws by which they are rewritten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.linear_algebra.nodes import Cut, PlanNodes, Use
from hloopt.linear_algebra.terms import (
    Coefficient,
    IndexAxis,
    IndexSpace,
    Sum,
    TensorIndex,
    TensorTerm,
)

__all__ = [
    "Addends",
    "Factors",
    "RewrittenSum",
    "WeightedProduct",
    "connected",
    "distributed",
    "factored",
    "glued",
    "has_sums",
    "merged",
    "settled",
]


@dataclass(frozen=True)
class WeightedProduct:
    """``weight`` times the product of the factors, summed over ``summed``."""

    weight: Coefficient
    factors: tuple[Use | Addends, ...]
    summed: frozenset[TensorIndex]

    @property
    def free(self) -> frozenset[TensorIndex]:
        """The indices that come back."""
        return frozenset(name for factor in self.factors for name in factor.names) - self.summed

    def renamed(self, names: Mapping[TensorIndex, TensorIndex]) -> WeightedProduct:
        """With other indices, those of sums within it included where they are not theirs alone."""
        return WeightedProduct(
            self.weight,
            tuple(_renamed(factor, names) for factor in self.factors),
            frozenset(names.get(name, name) for name in self.summed),
        )

    def fresh(self, space: IndexSpace) -> WeightedProduct:
        """With summed indices that nothing else has."""
        return self.renamed({name: space.new(space.size(name)) for name in self.summed})


@dataclass(frozen=True)
class Addends:
    """Products that are added; what one lacks of ``names`` it is repeated along."""

    products: tuple[WeightedProduct, ...]
    names: tuple[TensorIndex, ...]


Factors: TypeAlias = "tuple[Use | Addends, ...]"
_Named = TypeVar("_Named", bound="Use | Addends")


def _renamed(factor: Use | Addends, names: Mapping[TensorIndex, TensorIndex]) -> Use | Addends:
    moved = tuple(names.get(name, name) for name in factor.names)
    if isinstance(factor, Use):
        return Use(factor.node, moved)
    own = {old: new for old, new in zip(factor.names, moved, strict=True) if old != new}
    return Addends(tuple(one.renamed(own) for one in factor.products), tuple(sorted(set(moved))))


def settled(terms: Iterable[TensorTerm], nodes: PlanNodes) -> tuple[WeightedProduct, ...]:
    """The terms over nodes: instructions are leaves, identities gone where an index can be put for another."""
    return tuple(_settled(term, nodes) for term in terms)


def _settled(term: TensorTerm, nodes: PlanNodes) -> WeightedProduct:
    space = nodes.space
    factors: list[Use | Addends] = []
    for factor in term.factors:
        if isinstance(factor.value, Instruction):
            factors.append(nodes.leaf(factor.value, tuple(map(space.resolved, factor.axes))))
        elif isinstance(factor.value, Sum):
            within = merged(settled(factor.value.terms, nodes))
            if not within:
                return WeightedProduct(0, (), frozenset())
            factors.append(addends(within))
        else:
            pairs = [space.resolved(axis) for axis in factor.axes]
            factors += [nodes.identity(one, other) for one, other in zip(*pairs, strict=True)]
    summed = frozenset(space.resolved(term.summed))
    return _without_identities(WeightedProduct(term.coefficient, tuple(factors), summed), space)


def addends(products: Sequence[WeightedProduct]) -> Addends:
    """The sum of products, with all indices that come back."""
    names = frozenset().union(*(product.free for product in products))
    return Addends(tuple(products), tuple(sorted(names)))


def _without_identities(product: WeightedProduct, space: IndexSpace) -> WeightedProduct:
    """An identity over a summed index puts the other one in its place; a summed index of no factor counts."""
    for factor in product.factors:
        if not isinstance(factor, Use) or factor.node.kind != "identity":
            continue
        one, other = factor.names
        if other not in product.summed:
            one, other = other, one
        if one != other and other not in product.summed:
            continue
        rest = tuple(found for found in product.factors if found is not factor)
        less = WeightedProduct(
            product.weight, rest, product.summed - ({other} if one != other else set())
        )
        return _without_identities(less.renamed({other: one}), space)
    used = {name for factor in product.factors for name in factor.names}
    weight = product.weight
    for name in product.summed - used:
        weight *= space.size(name)
    return WeightedProduct(weight, product.factors, product.summed & used)


@dataclass(frozen=True)
class RewrittenSum:
    """Products in place of those of a sum; ``parts`` are the sums in it that changed, before and after."""

    products: tuple[WeightedProduct, ...]
    parts: tuple[tuple[Addends, Addends], ...] = ()


def distributed(
    products: Sequence[WeightedProduct], space: IndexSpace, *, updates: bool = False
) -> Iterator[RewrittenSum]:
    """Each form in which a sum was multiplied out: with all factors or some, whole or partly.

    ``updates`` leaves sums alone of which more than one term is no product.
    """
    for at, product in enumerate(products):
        for factor in product.factors:
            # A square that is multiplied out cancels: (x - y)^2 is never x^2 - 2xy + y^2.
            if (
                isinstance(factor, Addends)
                and product.factors.count(factor) == 1
                and (not updates or _is_updated(factor))
            ):
                for form in _multiplied_out(product, factor, space):
                    changed = (*products[:at], *form.products, *products[at + 1 :])
                    yield replace(form, products=changed)


def absorbed(
    products: Sequence[WeightedProduct], space: IndexSpace
) -> Iterator[tuple[int, RewrittenSum]]:
    """Each update that may be multiplied with what is beside it: where its product is, what that becomes."""
    for at, product in enumerate(products):
        for factor in product.factors:
            if (
                isinstance(factor, Addends)
                and product.factors.count(factor) == 1
                and _is_updated(factor)
            ):
                rest = tuple(found for found in product.factors if found is not factor)
                outer = replace(product, factors=rest)
                for near in _near(rest, factor):
                    yield at, _absorbed(outer, factor, near, space)


def has_sums(value: Addends) -> bool:
    """Whether a sum is a factor of anything in it."""
    return any(isinstance(one, Addends) for product in value.products for one in product.factors)


def _is_updated(value: Addends) -> bool:
    return sum(len(product.factors) < 2 for product in value.products) <= 1


def _multiplied_out(
    product: WeightedProduct, factor: Addends, space: IndexSpace
) -> Iterator[RewrittenSum]:
    rest = tuple(found for found in product.factors if found is not factor)
    outer = replace(product, factors=rest)
    yield RewrittenSum(tuple(_times(outer, inner.fresh(space), space) for inner in factor.products))
    for near in _near(rest, factor):
        yield _absorbed(outer, factor, near, space)
    if len(factor.products) > 2:
        for inner in factor.products:
            others = addends([found for found in factor.products if found is not inner])
            left = WeightedProduct(1, (others,), frozenset())
            alone = _times(outer, inner.fresh(space), space).fresh(space)
            yield RewrittenSum((_times(outer, left, space), alone))


def _near(rest: Factors, factor: Addends) -> Iterator[Factors]:
    """Factors that share an index with a sum: one alone, or all that hang together without it; never all."""
    for one in rest:
        if len(rest) > 1 and set(one.names) & set(factor.names):
            yield (one,)
    groups = [
        tuple(group) for group in connected(rest) if len(group) > 1 and len(group) < len(rest)
    ]
    yield from groups


def _absorbed(
    outer: WeightedProduct, factor: Addends, near: Factors, space: IndexSpace
) -> RewrittenSum:
    """Factors multiplied with each term of a sum beside them: ``A (B + C) x`` is ``A (B x + C x)``."""
    rest = outer.factors
    for one in near:
        rest = _less(rest, one)
    outside = {name for found in rest for name in found.names}
    inside = {name for found in (factor, *near) for name in found.names}
    own = frozenset(outer.summed & inside - outside)
    inner = WeightedProduct(1, near, own)
    terms = [_times(inner, term.fresh(space), space).fresh(space) for term in factor.products]
    before, after = addends([WeightedProduct(1, (factor, *near), own)]), addends(terms)
    left = WeightedProduct(1, (after,), frozenset())
    whole = _times(replace(outer, factors=rest, summed=outer.summed - own), left, space)
    return RewrittenSum((whole,), ((before, after),))


def connected(uses: Iterable[_Named]) -> list[list[_Named]]:
    """Factors in groups that share no index with each other."""
    groups: list[tuple[set[TensorIndex], list[_Named]]] = []
    for use in uses:
        names, members = set(use.names), [use]
        for group in [group for group in groups if group[0] & names]:
            names |= group[0]
            members = group[1] + members
            groups.remove(group)
        groups.append((names, members))
    return [members for _, members in groups]


def _times(outer: WeightedProduct, inner: WeightedProduct, space: IndexSpace) -> WeightedProduct:
    both = WeightedProduct(
        outer.weight * inner.weight,
        (*outer.factors, *inner.factors),
        outer.summed | inner.summed,
    )
    return _without_identities(both, space)


def factored(products: Sequence[WeightedProduct], space: IndexSpace) -> Iterator[RewrittenSum]:
    """Each form in which common factors of two products are taken out of their sum, all of them or one."""
    for at, one in enumerate(products):
        for place in range(at + 1, len(products)):
            others = (*products[:at], *products[at + 1 : place], *products[place + 1 :])
            for joined in _joined(one, products[place], space):
                yield RewrittenSum((*others, joined))


def _joined(
    one: WeightedProduct, other: WeightedProduct, space: IndexSpace
) -> Iterator[WeightedProduct]:
    for first in one.factors:
        for second in other.factors:
            names = _matched(first, second, one, other)
            if names is None:
                continue
            fresh = {
                name: space.new(space.size(name)) for name in other.summed if name not in names
            }
            moved = replace(other, factors=_less(other.factors, second)).renamed(names | fresh)
            own = frozenset(first.names)
            parts = (
                WeightedProduct(one.weight, _less(one.factors, first), one.summed - own),
                WeightedProduct(moved.weight, moved.factors, moved.summed - own),
            )
            total = merged(parts)
            if len(total) == 2 and all(part.factors for part in parts):
                more = next(_joined(*total, space), None)
                if more is not None:
                    yield WeightedProduct(
                        more.weight, (first, *more.factors), (one.summed & own) | more.summed
                    )
                yield WeightedProduct(1, (first, addends(total)), one.summed & own)
            elif len(total) == 1 and total[0].factors:
                rest = total[0]
                yield WeightedProduct(
                    rest.weight, (first, *rest.factors), (one.summed & own) | rest.summed
                )


def _less(factors: Factors, gone: Use | Addends) -> Factors:
    at = next(place for place, factor in enumerate(factors) if factor is gone)
    return factors[:at] + factors[at + 1 :]


def _matched(
    first: Use | Addends, second: Use | Addends, one: WeightedProduct, other: WeightedProduct
) -> dict[TensorIndex, TensorIndex] | None:
    """What the indices of ``second`` are called in ``first``, if both are the same value; None if not."""
    if isinstance(first, Use) != isinstance(second, Use) or len(first.names) != len(second.names):
        return None
    if isinstance(first, Use) and isinstance(second, Use):
        if first.node is not second.node or not first.names:
            return None
    elif _with_own_names(first) != _with_own_names(second):
        return None
    names: dict[TensorIndex, TensorIndex] = {}
    for old, new in zip(second.names, first.names, strict=True):
        if (old in other.summed) != (new in one.summed) or names.setdefault(old, new) != new:
            return None
        if old not in other.summed and old != new:
            return None
    return names if len(set(names.values())) == len(names) else None


def _with_own_names(factor: Use | Addends) -> object:
    """The same for sums that differ in the names of their indices alone."""
    return _key(WeightedProduct(1, (factor,), frozenset(factor.names)))


def glued(products: Sequence[WeightedProduct], nodes: PlanNodes) -> Iterator[RewrittenSum]:
    """Each form in which two sums over neighbouring parts of the same values are one sum over both."""
    for at, one in enumerate(products):
        for place, other in enumerate(products):
            if place != at and one.weight == other.weight and len(one.summed) == 1:
                whole = _glued(one, other, nodes)
                if whole is not None:
                    rest = (p for own, p in enumerate(products) if own not in (at, place))
                    yield RewrittenSum((*rest, whole))


def _glued(
    one: WeightedProduct, other: WeightedProduct, nodes: PlanNodes
) -> WeightedProduct | None:
    """The sum over both parts, ``one`` first; None where they do not lie side by side in every factor."""
    space = nodes.space
    (index,), others = one.summed, tuple(other.summed)
    if len(others) != 1 or len(one.factors) != len(other.factors):
        return None
    both = space.new(space.size(index) + space.size(others[0]))
    left, factors = list(other.factors), list[Use | Addends]()
    for factor in one.factors:
        pairs = (
            (near, _side_by_side(factor, near, index, others[0], both, nodes)) for near in left
        )
        near, use = next(((near, use) for near, use in pairs if use is not None), (None, None))
        if near is None or use is None:
            return None
        left.remove(near)
        factors.append(use)
    return WeightedProduct(one.weight, tuple(factors), frozenset((both,)))


def _side_by_side(
    one: Use | Addends,
    other: Use | Addends,
    index: TensorIndex,
    next_: TensorIndex,
    both: TensorIndex,
    nodes: PlanNodes,
) -> Use | None:
    """Two parts of one value that follow each other along an index, as one part; the same value without it."""
    if not isinstance(one, Use) or not isinstance(other, Use):
        return None
    if index not in one.names and one == other:
        return one
    first, second = one.node, other.node
    if first.value is None or first.value is not second.value or first.lengths != second.lengths:
        return None
    names = tuple(both if name == index else name for name in one.names)
    if index not in one.names or names != tuple(
        both if name == next_ else name for name in other.names
    ):
        return None
    given, axes, cuts = iter(names), list[IndexAxis](), list[tuple[Cut, ...]]()
    for dim, length in enumerate(first.lengths):
        axis = tuple(next(given) for _ in range(length))
        axes.append(axis)
        if axis != (both,):
            if both in axis or first.cuts[dim] != second.cuts[dim]:
                return None
            cuts.append(first.cuts[dim])
            continue
        cut = _neighbours(first.cuts[dim], second.cuts[dim])
        if cut is None:
            return None
        cuts.append((cut,) if cut[2] < first.value.array.dims[dim] else ())
    return nodes.part(first.value, tuple(cuts), tuple(axes))


def _neighbours(one: tuple[Cut, ...], other: tuple[Cut, ...]) -> Cut | None:
    """One cut for two of the same steps, the second of which goes on where the first ends."""
    if len(one) != 1 or len(other) != 1:
        return None
    (start, stride, size), (further, steps, more) = one[0], other[0]
    if not isinstance(start, int) or stride != steps or further != start + size * stride:
        return None
    return start, stride, size + more


def merged(products: Sequence[WeightedProduct]) -> tuple[WeightedProduct, ...]:
    """Equal products counted once, with the sum of their weights; none where that is 0."""
    found: dict[tuple[object, ...], WeightedProduct] = {}
    for product in products:
        key = _key(product)
        known = found.get(key)
        found[key] = (
            product if known is None else replace(known, weight=known.weight + product.weight)
        )
    return tuple(product for product in found.values() if product.weight)


def _key(
    product: WeightedProduct, outer: Mapping[TensorIndex, int] = MappingProxyType({})
) -> tuple[object, ...]:
    """The same for products that differ in the names of summed indices, as far as their order shows it.

    ``outer`` are those that are summed around it, with their numbers.
    """
    factors = sorted(
        product.factors,
        key=lambda factor: (
            isinstance(factor, Addends),
            factor.node.number if isinstance(factor, Use) else 0,
            tuple(-1 if name in product.summed else name for name in factor.names),
        ),
    )
    names = dict(outer)
    key: list[object] = []
    for factor in factors:
        places = tuple(
            ("summed", names.setdefault(name, len(names)))
            if name in product.summed or name in names
            else ("free", name)
            for name in factor.names
        )
        made: object = factor.node.number if isinstance(factor, Use) else None
        if isinstance(factor, Addends):
            made = frozenset((inner.weight, _key(inner, names)) for inner in factor.products)
        key.append((made, places))
    return tuple(key)
