"""Ways to compute sums of products: a graph of contractions and sums, in which what is equal is one node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import prod
from typing import Final, Literal, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.linear_algebra.prices import AlgebraPrices
from hloopt.linear_algebra.terms import Coefficient, IndexAxes, IndexAxis, IndexSpace, TensorIndex

__all__ = [
    "ONCE",
    "Cut",
    "Iterations",
    "KnownPrice",
    "PlanNode",
    "PlanNodeKind",
    "PlanNodes",
    "Use",
    "is_elementwise",
]

PlanNodeKind: TypeAlias = Literal["leaf", "one", "identity", "reduce", "contract", "sum"]
Cut: TypeAlias = "tuple[int | Instruction, int, int]"
"""What is taken of a dimension: from where, in which steps, how many."""


@dataclass(frozen=True)
class Iterations:
    """A computation runs ``count`` times, in which its ``invariant`` instructions are the same."""

    count: int = 1
    invariant: AbstractSet[Instruction] = frozenset()

    def times(self, instruction: Instruction) -> int:
        """How often an instruction has to be computed."""
        return 1 if instruction in self.invariant else self.count

    def all_invariant(self, instructions: Iterable[Instruction]) -> bool:
        """Whether all of them are the same in each iteration."""
        return all(one in self.invariant for one in instructions)

    @property
    def words(self) -> str:
        """For remarks; empty outside of loops."""
        return f" in {self.count:,} iterations" if self.count > 1 else ""


ONCE: Final = Iterations()


@dataclass(frozen=True, slots=True)
class Use:
    """A node, and what each of its indices is called by who uses it."""

    node: PlanNode
    names: tuple[TensorIndex, ...]


@dataclass(frozen=True, eq=False)
class PlanNode:
    """A value of a plan.

    number      its place among the nodes; parts come first
    sizes       of its own indices
    parts       what it is made of, with names from 0 on for all indices of them
    kept        the names that come back, one for each of ``sizes``; the others are summed
    weights     of a sum: the coefficient of each part
    value       of a leaf: each dimension is cut (``cuts``), then read by so many indices (``lengths``)
    seconds     of making it of its parts, and ``flops`` of that
    roundings   how often what an element is made of is rounded, at most
    invariant   whether it is the same in each iteration of the loop around it

    A node that is invariant counts once, any other one in each iteration.
    """

    number: int
    kind: PlanNodeKind
    sizes: tuple[int, ...]
    parts: tuple[Use, ...] = ()
    kept: tuple[int, ...] = ()
    weights: tuple[Coefficient, ...] = ()
    value: Instruction | None = None
    cuts: tuple[tuple[Cut, ...], ...] = ()
    lengths: tuple[int, ...] = ()
    seconds: float = 0.0
    flops: int = 0
    roundings: int = 0
    invariant: bool = True

    @property
    def is_launched(self) -> bool:
        """Whether this is a product or a sum over an index, with a kernel of its own."""
        if self.kind == "contract":
            return len(self.kept) < len({name for part in self.parts for name in part.names})
        return self.kind == "reduce"

    @property
    def elements(self) -> int:
        """How many there are."""
        return prod(self.sizes)

    def reached(self) -> list[PlanNode]:
        """It and all it is made of, parts first, each once."""
        found: dict[PlanNode, None] = {}
        pending: list[tuple[PlanNode, bool]] = [(self, False)]
        while pending:
            node, is_done = pending.pop()
            if is_done:
                found.setdefault(node)
            elif node not in found:
                pending.append((node, True))
                pending += [(part.node, False) for part in node.parts]
        return list(found)


def is_elementwise(parts: Sequence[Use], kept: Sequence[int]) -> bool:
    """Whether two parts are multiplied element by element: they have the same indices, most of them several."""
    one, other = (set(part.names) for part in parts)
    summed = (one & other) - set(kept)
    if not summed:
        return True
    return one == other and len(one) > 1


_Key: TypeAlias = tuple[object, ...]


KnownPrice: TypeAlias = (
    "Callable[[Sequence[Use], Sequence[int], Mapping[int, int]], tuple[float, int] | None]"
)
"""Of two parts, what is kept, and all sizes: seconds and flops of a product that takes less than others."""


class PlanNodes:
    """The nodes of one cluster; made again they are the same."""

    def __init__(
        self,
        space: IndexSpace,
        prices: AlgebraPrices,
        iterations: Iterations = ONCE,
        known: KnownPrice | None = None,
    ) -> None:
        self.space = space
        self.prices = prices
        self._known = known
        self._iterations = iterations
        self._made: dict[_Key, PlanNode] = {}
        self._products: dict[_Key, Use] = {}

    def leaf(self, value: Instruction, axes: IndexAxes) -> Use:
        """A value that is there, of which windows may be taken."""
        dims: list[IndexAxis] = []
        cuts: list[tuple[Cut, ...]] = []
        for axis in axes:
            taken: list[Cut] = []
            found = axis
            while len(found) == 1 and (window := self.space.windows.get(found[0])) is not None:
                taken.append((window.start, window.stride, self.space.size(window.inner)))
                found = self.space.resolved((window.inner,))
            dims.append(tuple(index for index in found if self.space.size(index) > 1))
            cuts.append(tuple(taken))
        return self.part(value, tuple(cuts), tuple(dims))

    def part(self, value: Instruction, cuts: tuple[tuple[Cut, ...], ...], axes: IndexAxes) -> Use:
        """What is left of a value after cuts, of which no cut is one of the whole."""
        names = tuple(index for axis in axes for index in axis)
        sizes = self._sizes(names)
        lengths = tuple(len(axis) for axis in axes)
        key = ("leaf", value, cuts, sizes, lengths)
        node = self._made.get(key)
        if node is None:
            elements = prod(sizes) if any(cuts) else 0
            starts = (cut[0] for taken in cuts for cut in taken)
            read = (value, *(one for one in starts if isinstance(one, Instruction)))
            times = max(map(self._iterations.times, read))
            made = PlanNode(
                len(self._made),
                "leaf",
                sizes,
                value=value,
                cuts=cuts,
                lengths=lengths,
                seconds=times * self.prices.elementwise(elements) if elements else 0.0,
                invariant=self._iterations.all_invariant(read),
            )
            node = self._kept(key, made)
        return Use(node, names)

    def one(self) -> Use:
        """The number 1, of which a constant is a multiple."""
        node = self._made.get(("one",)) or self._kept(
            ("one",), PlanNode(len(self._made), "one", ())
        )
        return Use(node, ())

    def identity(self, one: TensorIndex, other: TensorIndex) -> Use:
        """1 where two indices are equal, else 0."""
        sizes = self._sizes((one, other))
        key = ("identity", *sizes)
        node = self._made.get(key) or self._kept(key, PlanNode(len(self._made), "identity", sizes))
        return Use(node, (one, other))

    def reduced(self, use: Use, kept: AbstractSet[TensorIndex]) -> Use:
        """Summed over what is not kept, with each index once: where two are the same, on the diagonal."""
        names = tuple(dict.fromkeys(use.names))
        if names == use.names and kept >= set(names):
            return use
        if use.node.kind == "reduce" and set(use.node.parts[0].names) == set(use.node.kept):
            # A sum of a diagonal takes the diagonal itself.
            (part,) = use.node.parts
            outer = dict(zip(use.node.kept, use.names, strict=True))
            use = Use(part.node, tuple(outer[name] for name in part.names))
        return self._combined("reduce", (use,), kept)

    def contracted(self, one: Use, other: Use, kept: AbstractSet[TensorIndex]) -> Use:
        """The product of two, summed over what is not kept."""
        if (other.node.number, other.names) < (one.node.number, one.names):
            one, other = other, one
        # The same two are asked about again and again.
        outer = tuple([name in kept for name in (*one.names, *other.names)])
        key = one.node.number, one.names, other.node.number, other.names, outer
        found = self._products.get(key)
        if found is None:
            found = self._products[key] = self._combined("contract", (one, other), kept)
        return found

    def summed(
        self, uses: Sequence[Use], weights: Sequence[Coefficient], kept: AbstractSet[TensorIndex]
    ) -> Use:
        """A sum with coefficients; what a part lacks it is repeated along."""
        if len(uses) == 1 and weights[0] == 1 and set(uses[0].names) == set(kept):
            return uses[0]
        common = abs(weights[0])
        if len(uses) > 1 and common != 1 and all(abs(weight) == common for weight in weights):
            # Added first, then multiplied once.
            total = self.summed(uses, [int(weight / common) for weight in weights], kept)
            return self.summed([total], [common], kept)
        pairs = sorted(
            zip(uses, weights, strict=True),
            key=lambda pair: (pair[0].node.number, pair[0].names, pair[1]),
        )
        return self._combined(
            "sum", [use for use, _ in pairs], kept, tuple(weight for _, weight in pairs)
        )

    def _combined(
        self,
        kind: PlanNodeKind,
        uses: Sequence[Use],
        kept: AbstractSet[TensorIndex],
        weights: tuple[Coefficient, ...] = (),
    ) -> Use:
        own: dict[TensorIndex, int] = {}
        for use in uses:
            for name in use.names:
                if name not in own:
                    own[name] = len(own)
        # Lists, for this is where planning spends its time.
        outer = tuple([name for name in own if name in kept])
        places = tuple([own[name] for name in outer])
        named = [tuple([own[name] for name in use.names]) for use in uses]
        numbered = [(use.node.number, names) for use, names in zip(uses, named, strict=True)]
        key = (kind, *numbered, places, weights)
        node = self._made.get(key)
        if node is None:
            sizes = self._sizes(outer)
            parts = tuple(Use(use.node, names) for use, names in zip(uses, named, strict=True))
            work = prod(self._sizes(own))
            seconds, flops, more = self._price(kind, parts, places, work, prod(sizes), weights)
            roundings = max(part.node.roundings for part in parts)
            if kind == "contract":
                roundings = sum(part.node.roundings for part in parts)
            invariant = all(part.node.invariant for part in parts)
            times = 1 if invariant else self._iterations.count
            node = self._kept(
                key,
                PlanNode(
                    len(self._made),
                    kind,
                    sizes,
                    parts,
                    places,
                    weights,
                    seconds=times * seconds,
                    flops=times * flops,
                    roundings=roundings + more,
                    invariant=invariant,
                ),
            )
        return Use(node, outer)

    def _price(
        self,
        kind: PlanNodeKind,
        parts: Sequence[Use],
        kept: Sequence[int],
        work: int,
        elements: int,
        weights: Sequence[Coefficient],
    ) -> tuple[float, int, int]:
        """Seconds, flops, and roundings of an element on the way through this node."""
        prices, sums = self.prices, work // max(elements, 1)
        # Narrow floats are summed in f32, and rounded once.
        rounded = 1 if prices.is_narrow else sums
        if kind == "sum":
            count = len(parts) - 1 + sum(abs(weight) != 1 for weight in weights)
            count += all(weight == -1 for weight in weights)
            return count * prices.elementwise(elements), count * elements, count
        if kind == "reduce":
            read = parts[0].node.elements
            on_diagonal = len(set(parts[0].names)) < len(parts[0].names)
            masking = prices.elementwise(read) if on_diagonal else 0.0
            return masking + prices.sum(read), read, rounded
        if sums == 1:
            return prices.elementwise(elements), elements, 1
        if is_elementwise(parts, kept):
            return prices.elementwise(work) + prices.sum(work), 2 * work, rounded
        sizes = {
            name: size
            for part in parts
            for name, size in zip(part.names, part.node.sizes, strict=True)
        }
        known = self._known and self._known(parts, kept, sizes)
        if known:
            return *known, rounded
        moved = elements + sum(part.node.elements for part in parts)
        return prices.product(work, moved), 2 * work, rounded

    def _sizes(self, names: Iterable[TensorIndex]) -> tuple[int, ...]:
        return tuple(self.space.size(name) for name in names)

    def _kept(self, key: _Key, node: PlanNode) -> PlanNode:
        self._made[key] = node
        return node
