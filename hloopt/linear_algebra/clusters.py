"""Values of a computation that are planned together, since they share products or could."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import combinations
from typing import Final

from ml_dtypes import finfo

from hloopt.analysis.effects import Effects
from hloopt.analysis.matrix_properties import Matrices
from hloopt.analysis.trip_count import counted_iterations
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.linear_algebra.building import PlanWriter
from hloopt.linear_algebra.known_products import KnownProducts
from hloopt.linear_algebra.masks import is_summing
from hloopt.linear_algebra.nodes import ONCE, Iterations, PlanNodes, Use
from hloopt.linear_algebra.orders import PairBudget
from hloopt.linear_algebra.planning import ClusterPlanner, flops, launched, reached, seconds
from hloopt.linear_algebra.prices import AlgebraPrices
from hloopt.linear_algebra.products import Addends, merged, settled
from hloopt.linear_algebra.reading import ARITHMETIC, TermReader, dotted_of, is_result, takes
from hloopt.linear_algebra.terms import (
    Factor,
    IndexAxes,
    IndexSpace,
    NumberedTerms,
    Sum,
    TensorTerm,
    align,
)
from hloopt.ops.traits import INDEXING, REARRANGING
from hloopt.passes.loops.carried import growth_obstacle
from hloopt.passes.loops.invariant_motion import InvariantSearch, WhileInvariantMotion
from hloopt.rewrite import PassLog
from hloopt.targets import Target
from hloopt.types import DotDims, DType

__all__ = ["KINDS", "Cluster", "ClusterPlan", "ClusterValue", "clusters"]

_MOVES: Final = REARRANGING - {"slice", "bitcast", "reverse"}
_TAKING: Final = INDEXING - {"dynamic-update-slice"} | {"select", "slice"}
KINDS: Final = frozenset({"float", "signed", "unsigned"})
"""The kinds of element types of which there are values to plan."""
_MOST_VALUES: Final = 12
_PAIRED: Final = 10
"""Factors of a term of which each two may be multiplied in another value, too."""
_LEAST: Final = 0.98
"""A plan has to take less than this part of the time, and not by elementwise ops alone: these fuse."""
_LEAST_ON_HOST: Final = 0.9
"""The same where elementwise ops count, for nothing fuses into a product there; into a sum it does."""


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


def _leaves(terms: Iterable[TensorTerm]) -> Iterator[Instruction]:
    for factor in _factors(terms):
        if isinstance(factor.value, Instruction):
            yield factor.value


def _factors(terms: Iterable[TensorTerm]) -> Iterator[Factor]:
    for term in terms:
        for factor in term.factors:
            if isinstance(factor.value, Sum):
                yield from _factors(factor.value.terms)
            else:
                yield factor


class Cluster:
    """Values with common products, of one element type and precision.

    What is read ``elsewhere``, too, is computed in any case, and saves nothing.  In a loop all counts through
    its ``iterations``, so that what they share may become cheaper than what each computes.
    """

    def __init__(
        self,
        values: Sequence[ClusterValue],
        space: IndexSpace,
        target: Target,
        elsewhere: AbstractSet[Instruction] = frozenset(),
        iterations: Iterations = ONCE,
        matrices: Matrices | None = None,
    ) -> None:
        self.values = tuple(values)
        self._elsewhere = elsewhere
        self.space = space
        self.dtype: DType = values[0].root.array.dtype
        precision = next((one.reader.precision for one in values if one.reader.precision), {})
        self.prices = AlgebraPrices(target, self.dtype, precision.get("algorithm", ""))
        self._matrices = matrices or Matrices()
        self._known = KnownProducts(self._matrices, self.prices)
        self.target = target
        self.iterations = iterations

    @cached_property
    def read(self) -> tuple[Instruction, ...]:
        """The instructions that were followed, each once."""
        found = dict.fromkeys(one for value in self.values for one in value.reader.read)
        return tuple(one for one in found if one not in self._elsewhere)

    @property
    def signature(self) -> object:
        """Equal for clusters of which one has a better plan if the other has."""
        seen = NumberedTerms(self.space)
        values = tuple(
            (tuple(map(seen.axis, value.axes)), seen.terms(value.terms)) for value in self.values
        )
        leaves = tuple(
            (
                tuple(self._matrices.of(leaf).named(leaf.array.dims)),
                leaf in self.iterations.invariant,
            )
            for leaf in seen.leaves
        )
        has_sums = any(one.opcode == "reduce" for one in self.read)
        cost = self._seconds(), self._least(), self.flops, has_sums
        return self.dtype, self.iterations.count, values, tuple(seen.indices), leaves, cost

    def is_there(self, replaced: Mapping[Instruction, Instruction]) -> bool:
        """Whether all of it is still in the module, or was ``replaced`` by what is."""
        roots = all(value.root.computation is not None for value in self.values)
        return roots and all(
            replaced.get(leaf, leaf).computation is not None
            for value in self.values
            for leaf in value.leaves
        )

    def plan(self, budget: PairBudget) -> ClusterPlan | None:
        """A plan that takes less than what is there; None without one."""
        factors = (factor for value in self.values for factor in _factors(value.terms))
        if not align(factors, self.space):
            return None
        nodes = PlanNodes(self.space, self.prices, self.iterations, self._known.of_parts)
        planner = ClusterPlanner(nodes, budget)
        found: list[Addends] = []
        for value in self.values:
            products = merged(settled(value.terms, nodes))
            names = {i for axis in value.axes for i in self.space.resolved(axis)}
            found.append(Addends(products, tuple(sorted(names))))
        uses = planner.planned([one for one in found if one.products])
        if not self.gains(uses):
            return None
        before, after = self._seconds(), seconds(uses)
        work = (self.flops, flops(uses))
        rest = iter(uses)
        made = [next(rest) if one.products else None for one in found]
        gain = (
            f"{before * 1e6:.3g} => {after * 1e6:.3g} us predicted on {self.target.name}, "
            f"{work[0]:.3g} => {work[1]:.3g} flops{self.iterations.words}{self._error(uses)}"
        )
        was_cut = planner.is_spent or any(value.reader.was_cut for value in self.values)
        return ClusterPlan(self, made, gain, work, was_cut)

    def gains(self, uses: Sequence[Use]) -> bool:
        """Whether a plan takes less time, by products and sums, with no more flops."""
        if seconds(uses) >= self._seconds() * _LEAST or flops(uses) > self.flops:
            return False
        if not self.target.has_threads and seconds(uses) < self._seconds() * _LEAST_ON_HOST:
            sums = any(one.opcode == "reduce" for one in self.read)
            if not sums and all(node.kind != "reduce" for node in reached(uses)):
                return True
        least = self._least()
        less = self.prices.launch / 2 * self.iterations.count
        return launched(uses) < max(least - less, least * _LEAST)

    def _error(self, uses: Sequence[Use]) -> str:
        """How far off rounding may put a float, beside the sum of the absolute values of its terms.

        ``n u / (1 - n u)`` for n roundings of relative error u (Higham, Accuracy and Stability of Numerical
        Algorithms, 3.1).
        """
        if not self.dtype.is_float:
            return ""
        count = max((use.node.roundings for use in uses), default=0)
        step = finfo(self.dtype.numpy).eps  # type: ignore[no-untyped-call]
        error = count * float(step) / 2
        if error >= 1:
            return ", no bound of the error is known"
        return f", error at most {error / (1 - error):.2g} of its absolute terms"

    def _seconds(self) -> float:
        return sum(
            (self._launched(one) + self._elementwise(one)) * self.iterations.times(one)
            for one in self.read
        )

    def _least(self) -> float:
        """What the dots and sums that are there take."""
        return sum(self._launched(one) * self.iterations.times(one) for one in self.read)

    def _launched(self, one: Instruction) -> float:
        """Of a dot or a sum."""
        if one.opcode == "dot":
            known = self._known.of_dot(one)
            if known is not None:
                return known[0]
            elements = sum(operand.array.elements for operand in one.operands)
            return self.prices.product(_multiply_adds(one), elements + one.array.elements)
        return self.prices.sum(one.operands[0].array.elements) if one.opcode == "reduce" else 0.0

    def _elementwise(self, one: Instruction) -> float:
        if one.opcode in ARITHMETIC or one.opcode in _TAKING:
            return self.prices.elementwise(one.array.elements)
        return 0.0

    @property
    def flops(self) -> int:
        """What is there computes."""
        return sum(self._flops(one) * self.iterations.times(one) for one in self.read)

    def _flops(self, one: Instruction) -> int:
        known = self._known.of_dot(one) if one.opcode == "dot" else None
        return _flops(one) if known is None else known[1]


def _flops(one: Instruction) -> int:
    if one.opcode == "dot":
        return 2 * _multiply_adds(one)
    if one.opcode == "reduce":
        return one.operands[0].array.elements
    return one.array.elements if one.opcode in ARITHMETIC else 0


def _multiply_adds(dot: Instruction) -> int:
    dims = DotDims.of(dot.attributes)
    depth = 1
    for dim in dims.lhs_contracting:
        depth *= dot.operands[0].array.dims[dim]
    return dot.array.elements * depth


@dataclass(frozen=True)
class ClusterPlan:
    """What takes the place of a cluster: a node for each of its values, None for a zero."""

    cluster: Cluster
    uses: Sequence[Use | None]
    gain: str
    flops: tuple[int, int]
    was_cut: bool

    def write(self, replaced: dict[Instruction, Instruction]) -> None:
        """Put it in the place of the values; ``replaced`` is what earlier ones became, and is added to."""
        cluster = self.cluster
        precision = next(
            (value.reader.precision for value in cluster.values if value.reader.precision), {}
        )
        builder = PlanWriter(cluster.space, cluster.dtype, precision, replaced)
        for value, use in zip(cluster.values, self.uses, strict=True):
            if use is None:
                builder.zero(value.root)
            else:
                builder.put(value.root, use, value.axes)


def clusters(
    computation: Computation,
    target: Target,
    effects: Effects,
    matrices: Matrices,
    kinds: AbstractSet[str] = KINDS,
) -> Iterator[Cluster]:
    """The clusters of a computation that may gain, each with its values in the order of the computation.

    ``kinds`` are those of the element types that are looked at, ``effects`` those of the module, ``matrices``
    what is known of its instructions.
    """
    dotted = dotted_of(computation)
    iterations = _iterations(computation, effects) if dotted else ONCE
    space = IndexSpace()
    values = _values(computation, dotted, space, kinds)
    reads = Counter(one for value in values for one in value.reader.read)
    for group in _joined(values):
        if len(group) == 1 and _is_plain(group[0], space):
            continue
        for begin in range(0, len(group), _MOST_VALUES):
            part = group[begin : begin + _MOST_VALUES]
            own = Counter(one for value in part for one in value.reader.read)
            elsewhere = frozenset(one for one, count in own.items() if reads[one] > count)
            yield Cluster(part, space, target, elsewhere, iterations, matrices)


def _values(
    computation: Computation,
    dotted: AbstractSet[Instruction],
    space: IndexSpace,
    kinds: AbstractSet[str],
) -> list[ClusterValue]:
    """What is read outside of linear algebra, and what was read no further within it."""
    order = {one: place for place, one in enumerate(computation)}
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


def _iterations(computation: Computation, effects: Effects) -> Iterations:
    """The iterations of the one loop whose body this is; once where it is not, or nothing can leave it."""
    loops = list(computation.callers)
    if len(loops) != 1 or loops[0].opcode != "while" or loops[0].body is not computation:
        return ONCE
    (loop,) = loops
    count = counted_iterations(loop).count
    if count < 2 or growth_obstacle(loop):
        return ONCE
    motion = WhileInvariantMotion(constants=True, reshapes=True)
    return Iterations(
        count, InvariantSearch(motion, loop, "body", effects, PassLog()).invariant.keys()
    )


def _is_plain(value: ClusterValue, space: IndexSpace) -> bool:
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


def _joined(values: Sequence[ClusterValue]) -> list[list[ClusterValue]]:
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
