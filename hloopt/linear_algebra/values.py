"""The values of a computation that are planned, and which of them are planned together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.linear_algebra.masks import is_summing
from hloopt.linear_algebra.reading import TermReader, is_result, takes
from hloopt.linear_algebra.terms import Factor, IndexAxes, IndexSpace, Sum, TensorTerm
from hloopt.ops.traits import REARRANGING

__all__ = [
    "ClusterValue",
    "factors_of",
    "is_plain",
    "joined_values",
    "values_of",
    "with_shared_sums",
]

_MOVES: Final = REARRANGING - {"slice", "bitcast", "reverse"}
_PAIRED: Final = 10
"""Factors of a term of which each two may be multiplied in another value, too."""


@dataclass(frozen=True)
class ClusterValue:
    """An instruction, whose dimensions count through ``axes``, as a sum of products; ``reader`` read it."""

    root: Instruction
    axes: IndexAxes
    terms: tuple[TensorTerm, ...]
    reader: TermReader

    @property
    def leaves(self) -> Iterator[Instruction]:
        """What it is made of."""
        return _leaves(self.terms)

    def power(self, leaf: Instruction) -> int:
        """How often an instruction is a factor of one of the terms, at most."""
        return max((list(_leaves((term,))).count(leaf) for term in self.terms), default=0)


def _leaves(terms: Iterable[TensorTerm]) -> Iterator[Instruction]:
    for factor in factors_of(terms):
        if isinstance(factor.value, Instruction):
            yield factor.value


def factors_of(terms: Iterable[TensorTerm]) -> Iterator[Factor]:
    """The factors of terms, in sums within them, too."""
    for term in terms:
        for factor in term.factors:
            if isinstance(factor.value, Sum):
                yield from factors_of(factor.value.terms)
            else:
                yield factor


def values_of(
    order: Mapping[Instruction, int],
    dotted: AbstractSet[Instruction],
    space: IndexSpace,
    kinds: AbstractSet[str],
) -> list[ClusterValue]:
    """What is read outside of linear algebra, and what was read no further within it.

    ``order`` has the place of each instruction of a computation; so are the values sorted.
    """
    pending = [one for one in order if is_result(one, dotted)]
    found: dict[Instruction, ClusterValue] = {}
    while pending:
        root = pending.pop()
        if root in found or not takes(root) or root.array.dtype.kind not in kinds:
            continue
        value = _value(root, space, dotted)
        if value.reader.is_polynomial:
            value = _value(root, space, dotted, stops_at_shared=True)
        found[root] = value
        # What cannot be followed, such as rows in another order, has values before it all the same.
        before = value.leaves if value.reader.read else root.operands
        pending += [
            leaf for leaf in before if leaf not in found and (leaf in dotted or is_summing(leaf))
        ]
    read = [value for value in found.values() if value.reader.read]
    return sorted(read, key=lambda value: order[value.root])


def with_shared_sums(
    values: Sequence[ClusterValue],
    order: Mapping[Instruction, int],
    dotted: AbstractSet[Instruction],
    space: IndexSpace,
) -> list[ClusterValue]:
    """The values, and each sum in them that several read, which the others do not read through."""
    if not any(value.reader.shares_sums for value in values):
        return list(values)
    inner = {one for value in values for one in value.reader.read}
    found: dict[Instruction, ClusterValue] = {}
    pending = [value.root for value in values]
    while pending:
        root = pending.pop()
        if root not in found:
            found[root] = _value(root, space, dotted, stops_at_shared=True)
            pending += [leaf for leaf in found[root].leaves if leaf in inner]
    return sorted(found.values(), key=lambda value: order[value.root])


def _value(
    root: Instruction,
    space: IndexSpace,
    dotted: AbstractSet[Instruction],
    *,
    stops_at_shared: bool = False,
) -> ClusterValue:
    reader = TermReader(space, root, dotted, stops_at_shared=stops_at_shared)
    axes = tuple(space.axis(size) for size in root.array.dims)
    return ClusterValue(root, axes, reader.terms(root, axes), reader)


def is_plain(value: ClusterValue, space: IndexSpace) -> bool:
    """Whether nothing can be gained: one dot or sum, each summed index in all factors, no identity."""
    if len(value.terms) != 1 or sum(one.opcode not in _MOVES for one in value.reader.read) != 1:
        return False
    (term,) = value.terms
    if len(term.factors) > 2 or any(not isinstance(one.value, Instruction) for one in term.factors):
        return False
    names = [
        {index for axis in factor.axes for index in space.resolved(axis)} for factor in term.factors
    ]
    if any(index in space.windows for side in names for index in side):
        return False
    summed = set(space.resolved(term.summed))
    return all(summed <= side for side in names)


def joined_values(values: Sequence[ClusterValue]) -> list[list[ClusterValue]]:
    """Values of one precision that read the same instructions, or multiply the same two."""
    first: dict[object, int] = {}
    groups = list(range(len(values)))

    def found(at: int) -> int:
        while groups[at] != at:
            groups[at] = groups[groups[at]]
            at = groups[at]
        return at

    for at, value in enumerate(values):
        pairs = (
            frozenset(pair)
            for term in value.terms
            for pair in combinations(list(_leaves((term,)))[:_PAIRED], 2)
        )
        precision = tuple(sorted((value.reader.precision or {}).items()))
        for one in (*value.reader.read, *pairs):
            key = (one, precision)
            groups[found(at)] = found(first.setdefault(key, at))
    joined: dict[int, list[ClusterValue]] = {}
    for at, value in enumerate(values):
        joined.setdefault(found(at), []).append(value)
    return list(joined.values())
