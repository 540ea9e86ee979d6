"""Values of a computation that are planned together, since they share products or could."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import Final

from ml_dtypes import finfo

from hloopt.analysis.effects import Effects
from hloopt.analysis.matrix_properties import Matrices
from hloopt.analysis.trip_count import counted_iterations
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.linear_algebra.building import PlanWriter
from hloopt.linear_algebra.known_products import KnownProducts
from hloopt.linear_algebra.nodes import ONCE, Iterations, PlanNodes, Use
from hloopt.linear_algebra.orders import PairBudget
from hloopt.linear_algebra.planning import ClusterPlanner, flops, launched, reached, seconds
from hloopt.linear_algebra.prices import AlgebraPrices, gained_time
from hloopt.linear_algebra.products import Addends, merged, settled
from hloopt.linear_algebra.reading import ARITHMETIC, dotted_of
from hloopt.linear_algebra.terms import IndexSpace, NumberedTerms, align
from hloopt.linear_algebra.values import (
    ClusterValue,
    factors_of,
    is_plain,
    joined_values,
    values_of,
    with_shared_sums,
)
from hloopt.numbers import amount
from hloopt.ops.traits import INDEXING
from hloopt.passes.loops.carried import growth_obstacle
from hloopt.passes.loops.invariant_motion import InvariantSearch, WhileInvariantMotion
from hloopt.rewrite import PassLog
from hloopt.targets import Target
from hloopt.types import DotDims, DType

__all__ = ["KINDS", "Cluster", "ClusterPlan", "clusters"]

_TAKING: Final = INDEXING - {"dynamic-update-slice"} | {"select", "slice"}
KINDS: Final = frozenset({"float", "signed", "unsigned"})
"""The kinds of element types of which there are values to plan."""
_MOST_VALUES: Final = 12
_LEAST: Final = 0.98
"""A plan has to take less than this part of the time, and not by elementwise ops alone: these fuse."""
_LEAST_ON_HOST: Final = 0.9
"""The same where elementwise ops count, for nothing fuses into a product there; into a sum it does."""


class Cluster:
    """Values with common products, of one element type and precision.

    What is read ``elsewhere``, too, is computed in any case, and saves nothing.  In a loop all counts through
    its ``iterations``, so that what they share may become cheaper than what each computes.  ``kept`` is the
    same with each sum that several read as a value of its own.
    """

    def __init__(
        self,
        values: Sequence[ClusterValue],
        space: IndexSpace,
        target: Target,
        elsewhere: AbstractSet[Instruction] = frozenset(),
        iterations: Iterations = ONCE,
        matrices: Matrices | None = None,
        kept: Cluster | None = None,
    ) -> None:
        self.values = tuple(values)
        self.kept = kept
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

    def best_plan(self, budget: PairBudget) -> ClusterPlan | None:
        """The better plan of those with shared sums read through, and as values; None without one."""
        plans = (one and one.plan(budget) for one in (self.kept, self))
        return min((plan for plan in plans if plan), key=lambda plan: plan.seconds, default=None)

    def plan(self, budget: PairBudget) -> ClusterPlan | None:
        """A plan that takes less than what is there; None without one."""
        factors = (factor for value in self.values for factor in factors_of(value.terms))
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
            f"{gained_time(before, after)} predicted on {self.target.name}, "
            f"{amount(work[0])} => {amount(work[1])} flops{self.iterations.words}{self._error(made)}"
        )
        was_cut = planner.is_spent or any(value.reader.was_cut for value in self.values)
        return ClusterPlan(self, made, gain, after, work, was_cut)

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

    def _error(self, uses: Sequence[Use | None]) -> str:
        """How far off rounding may put a float, beside the sum of the absolute values of its terms.

        ``n u / (1 - n u)`` for n roundings of relative error u where nothing underflows (Higham, Accuracy and
        Stability of Numerical Algorithms, 2.1 and 3.1).
        """
        if not self.dtype.is_float:
            return ""
        counts: dict[Instruction, int] = {}
        for value, use in zip(self.values, uses, strict=True):
            # What another value is a factor of was rounded before.
            before = sum(value.power(one) * times for one, times in counts.items())
            counts[value.root] = before + (use.node.roundings if use else 0)
        count = max(counts.values())
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
    """What takes the place of a cluster: a node for each of its values, None for a zero; what that takes."""

    cluster: Cluster
    uses: Sequence[Use | None]
    gain: str
    seconds: float
    flops: tuple[int, int]
    was_cut: bool

    @property
    def gain_us(self) -> float:
        """Microseconds that it saves, predicted."""
        return 1e6 * (self.cluster._seconds() - self.seconds)

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
    order = {one: place for place, one in enumerate(computation)}
    values = values_of(order, dotted, space, kinds)
    reads = Counter(one for value in values for one in value.reader.read)
    for group in joined_values(values):
        if len(group) == 1 and is_plain(group[0], space):
            continue
        for begin in range(0, len(group), _MOST_VALUES):
            part = group[begin : begin + _MOST_VALUES]
            counts = Counter(one for value in part for one in value.reader.read)
            elsewhere = frozenset(one for one, count in counts.items() if reads[one] > count)
            own = (space, target, elsewhere, iterations, matrices)
            shared = with_shared_sums(part, order, dotted, space)
            kept = Cluster(shared, *own) if len(part) < len(shared) <= _MOST_VALUES else None
            yield Cluster(part, *own, kept=kept)


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
