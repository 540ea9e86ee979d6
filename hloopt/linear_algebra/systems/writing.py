"""A product of a solution, written as the solution for fewer right sides: ``dot(solve(T, R), B)`` as
``solve(T, dot(R, B))``, and ``dot(solve(T, R)', B)`` as ``dot(R', solve(T', B))``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, Final

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.linear_algebra.prices import AlgebraPrices
from hloopt.linear_algebra.systems.chains import SolveChain
from hloopt.linear_algebra.systems.steps import IndexLabel, Negation, Triangle
from hloopt.rewrite.site import Site, row_major
from hloopt.types import DotDims, record_of

__all__ = ["ChainWriter", "ProductOfSolution", "has_one_precision", "product_of_solution"]

_PRECISION: Final = ("operand_precision", "algorithm")


@dataclass(frozen=True)
class _Named:
    """An instruction whose dimensions all have more than one element, and a label each."""

    value: Instruction
    labels: tuple[IndexLabel, ...]

    def renamed(self, old: IndexLabel, new: IndexLabel) -> _Named:
        """The same with another label."""
        return _Named(self.value, tuple(new if label == old else label for label in self.labels))


@dataclass(frozen=True)
class ProductOfSolution:
    """A dot, one side of which is a solution.

    dot        the instruction
    side       the operand that ``chain`` computes
    summed     the indices of that operand that the dot sums
    names      the label of each dimension of either operand that has more than one element
    sizes      of all indices
    is_turned  whether the index that is solved for is summed: the transposed systems are solved then
    """

    dot: Instruction
    side: int
    chain: SolveChain
    summed: frozenset[IndexLabel]
    names: tuple[tuple[IndexLabel | None, ...], ...]
    sizes: Mapping[IndexLabel, int]
    is_turned: bool

    @property
    def columns(self) -> int:
        """Right sides of each system that are left."""
        kept = {self.chain.acted, *self.chain.batch}
        if self.is_turned:
            found = self._other_labels() - kept
        else:
            base = set() if self.chain.identity is not None else set(self._base_labels())
            found = (base | self._other_labels()) - kept - self.summed
        return prod(self.sizes[label] for label in found)

    @property
    def columns_before(self) -> int:
        """Right sides of each system as it is written."""
        kept = {self.chain.acted, *self.chain.batch}
        return prod(size for label, size in self.chain.sizes.items() if label not in kept)

    def _base_labels(self) -> tuple[IndexLabel, ...]:
        return tuple(label for label in self.chain.labels if label is not None)

    def _other_labels(self) -> set[IndexLabel]:
        return {label for label in self.names[1 - self.side] if label is not None}

    @property
    def matrices(self) -> int:
        """How many there are in the batch."""
        return prod(self.sizes[label] for label in self.chain.batch)

    def seconds(self, prices: AlgebraPrices) -> float:
        """What the product takes, written so; the factors are there."""
        rows = self.sizes[self.chain.acted]
        elements = self.matrices * rows * self.columns
        total = 0.0
        for step, _ in self.chain.steps:
            if isinstance(step, Triangle):
                total += prices.solve(self.matrices, rows, self.columns)
            else:
                total += prices.elementwise(elements)
        if self.chain.identity is None:
            base = self.chain.base.array.elements
            other = self.dot.operands[1 - self.side].array.elements
            moved = base + (elements if self.is_turned else other)
            written = self.dot.array.elements if self.is_turned else elements
            depth = rows if self.is_turned else prod(self.sizes[label] for label in self.summed)
            total += prices.product(written * depth, moved + written)
        return total

    def write(self) -> Instruction:
        """Put it in the place of the dot; what stands there now."""
        chain, dot = self.chain, self.dot
        writer = ChainWriter(dot, self.sizes, dot.attributes)
        other = writer.named(dot.operands[1 - self.side], self.names[1 - self.side])
        base = writer.named(chain.base, chain.labels)
        columns = chain.identity
        if self.is_turned:
            found = writer.applied(chain, other, transposed=True)
            if columns is not None:
                found = found.renamed(chain.acted, columns)
            else:
                found = writer.dot(base, found, {chain.acted})
        elif columns is not None:
            found = writer.applied(chain, other.renamed(columns, chain.acted), transposed=False)
        else:
            found = writer.applied(chain, writer.dot(base, other, self.summed), transposed=False)
        return writer.put(found, self.order())

    def order(self) -> list[IndexLabel | None]:
        """Of the dot's dimensions: batch, left and right ones."""
        dims = DotDims.of(self.dot.attributes)
        left, right = self.names
        order = [left[dim] for dim in dims.lhs_batch]
        order += [left[dim] for dim in dims.lhs_free(len(left))]
        return order + [right[dim] for dim in dims.rhs_free(len(right))]


def product_of_solution(dot: Instruction, side: int, chain: SolveChain) -> ProductOfSolution | None:
    """A dot as the product of a solution; None where the product does not go before solving."""
    dims = DotDims.of(dot.attributes)
    own = (dims.lhs_contracting, dims.lhs_batch), (dims.rhs_contracting, dims.rhs_batch)
    (contracting, batch), (others, other_batch) = own[side], own[1 - side]
    mine, theirs = dot.operands[side].array, dot.operands[1 - side].array
    if not mine.dtype is theirs.dtype is dot.array.dtype or not dot.array.elements:
        return None
    if len(dot.operands) != 2 or not has_one_precision(dot):
        return None
    names = tuple(k if size > 1 else None for k, size in enumerate(mine.dims))
    other: list[IndexLabel | None] = [
        mine.rank + k if size > 1 else None for k, size in enumerate(theirs.dims)
    ]
    for one, place in zip((*contracting, *batch), (*others, *other_batch), strict=True):
        other[place] = names[one]
    sizes = {
        label: size
        for labels, dims_ in ((names, mine.dims), (other, theirs.dims))
        for label, size in zip(labels, dims_, strict=True)
        if label is not None
    }
    summed = frozenset(label for dim in contracting if (label := names[dim]) is not None)
    shared = {label for dim in batch if (label := names[dim]) is not None}
    is_turned = chain.acted in summed
    if not summed or (is_turned and summed != {chain.acted}):
        return None
    if not shared <= set(chain.batch) or not summed.isdisjoint(chain.batch):
        return None
    if is_turned and not all(step.can_transpose for step, _ in chain.steps):
        return None
    if not summed <= {*(label for label in chain.labels if label is not None), chain.acted}:
        return None
    both = (names, tuple(other)) if side == 0 else (tuple(other), names)
    return ProductOfSolution(dot, side, chain, summed, both, sizes, is_turned)


def has_one_precision(dot: Instruction) -> bool:
    """Whether both sides of a dot have the same, so that they may change places."""
    sides = record_of(dot.attributes, "operand_precision", tuple)
    return "operand_precision" not in dot.attributes or len(set(sides or ())) == 1


class ChainWriter:
    """Makes instructions before ``root``, whose dimensions have labels; ``precision`` is that of dots."""

    def __init__(
        self,
        root: Instruction,
        sizes: Mapping[IndexLabel, int],
        precision: Mapping[str, Any],
    ) -> None:
        self.site = Site(root)
        self.sizes = sizes
        self.precision = {name: precision[name] for name in _PRECISION if name in precision}

    def put(self, found: _Named, order: Iterable[IndexLabel | None]) -> Instruction:
        """Put a value in the place of the root, with its dimensions in order."""
        value = self._arranged(found, [label for label in order if label is not None]).value
        value = self.site.reshape(value, self.site.root.array)
        if value.opcode == "custom-call":
            # A library writes in one layout, whatever that of the root is.
            value = self.site.make("copy", value, shape=self.site.root.array)
        return self.site.replace(value)

    def named(self, value: Instruction, labels: Iterable[IndexLabel | None]) -> _Named:
        """An instruction without its dimensions of one element."""
        kept = tuple(label for label in labels if label is not None)
        dims = tuple(self.sizes[label] for label in kept)
        return _Named(self.site.reshape(value, row_major(value.array, dims)), kept)

    def applied(self, chain: SolveChain, columns: _Named, *, transposed: bool) -> _Named:
        """All steps of a chain, of [batch, rows, columns], signs last: systems of x and -x are one."""
        kept = (*chain.batch, chain.acted)
        rest = tuple(label for label in columns.labels if label not in kept)
        arranged = self._arranged(columns, (*kept, *rest))
        dims = arranged.value.array.dims
        flat = (*dims[: len(kept)], prod(self.sizes[label] for label in rest))
        value = self.site.reshape(arranged.value, row_major(arranged.value.array, flat))
        steps = [step for step, _ in (chain.steps if transposed else reversed(chain.steps))]
        for step in sorted(steps, key=lambda one: isinstance(one, Negation)):
            value = step.apply(self.site, value, transposed=transposed)
        return _Named(self.site.reshape(value, row_major(value.array, dims)), arranged.labels)

    def dot(self, one: _Named, other: _Named, summed: Iterable[IndexLabel]) -> _Named:
        """The product of two, summed over some of the indices that both have; the rest of these is kept."""
        gone = sorted(summed)
        batch = [label for label in one.labels if label in other.labels and label not in gone]
        free = [
            [label for label in side.labels if label not in gone and label not in batch]
            for side in (one, other)
        ]
        labels = (*batch, *free[0], *free[1])
        lists = {
            "lhs_batch_dims": tuple(one.labels.index(label) for label in batch),
            "lhs_contracting_dims": tuple(one.labels.index(label) for label in gone),
            "rhs_batch_dims": tuple(other.labels.index(label) for label in batch),
            "rhs_contracting_dims": tuple(other.labels.index(label) for label in gone),
        }
        shape = row_major(one.value.array, tuple(self.sizes[label] for label in labels))
        numbers = {name: dims for name, dims in lists.items() if dims}
        value = self.site.make(
            "dot", one.value, other.value, shape=shape, **numbers, **self.precision
        )
        return _Named(value, labels)

    def elementwise(self, opcode: str, one: _Named, other: _Named) -> _Named:
        """An op of elements at the same indices."""
        labels = tuple(dict.fromkeys((*one.labels, *other.labels)))
        sides = [self._arranged(side, labels).value for side in (one, other)]
        return _Named(self.site.make(opcode, *sides, shape=sides[0].array), labels)

    def _arranged(self, one: _Named, order: Sequence[IndexLabel]) -> _Named:
        """The same with its indices in another order, repeated along those that it lacks."""
        site = self.site
        present = tuple(label for label in order if label in one.labels)
        value = site.transpose(one.value, tuple(one.labels.index(label) for label in present))
        if present != tuple(order):
            places = tuple(order.index(label) for label in present)
            shape = row_major(value.array, tuple(self.sizes[label] for label in order))
            value = site.make("broadcast", value, shape=shape, dimensions=places)
        return _Named(value, tuple(order))
