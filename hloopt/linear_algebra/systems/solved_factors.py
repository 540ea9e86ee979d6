"""Solutions for right sides that are a thin product: ``solve(T, dot(U, W))`` as ``dot(solve(T, U), W)``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.linear_algebra.nodes import AlgebraPrices
from hloopt.linear_algebra.systems.chains import SolveChain, read_chain, read_steps
from hloopt.linear_algebra.systems.steps import IndexLabel, Triangle
from hloopt.linear_algebra.systems.writing import ChainWriter
from hloopt.rewrite.site import is_replaceable
from hloopt.targets import Target
from hloopt.types import DotDims

__all__ = ["SolvedFactor", "solved_factors"]


@dataclass(frozen=True)
class SolvedFactor:
    """A solution whose right sides are the product of a matrix with few columns.

    chain    of the solution
    across   the steps between it and the product, if any, which act on an index of the other operand
    side     the operand of the product that is solved for, whose rows the systems act on
    names    the label of each dimension of either operand that has more than one element
    sizes    of all indices
    summed   the indices that the product sums
    """

    chain: SolveChain
    across: SolveChain | None
    side: int
    names: tuple[tuple[IndexLabel | None, ...], ...]
    sizes: Mapping[IndexLabel, int]
    summed: frozenset[IndexLabel]

    @property
    def value(self) -> Instruction:
        """The solution, in the place of which the product is put."""
        return self.chain.value

    @property
    def product(self) -> Instruction:
        """What the right sides are, but for the steps across."""
        return _product(self.chain, self.across)

    @property
    def columns(self) -> tuple[int, int]:
        """Right sides of each system before and after."""
        kept = {self.chain.acted, *self.chain.batch}
        before = prod(size for label, size in self.chain.sizes.items() if label not in kept)
        solved = {label for label in self.names[self.side] if label is not None}
        return before, prod(self.sizes[label] for label in solved - kept)

    def seconds(self, prices: AlgebraPrices) -> tuple[float, float]:
        """Before and after; the factors of the matrices are there."""
        rows = self.sizes[self.chain.acted]
        batch = prod(self.sizes[label] for label in self.chain.batch)
        total = [0.0, 0.0]
        for at, columns in enumerate(self.columns):
            for step, _ in self.chain.steps:
                if isinstance(step, Triangle):
                    total[at] += prices.solve(batch, rows, columns)
                else:
                    total[at] += prices.elementwise(batch * rows * columns)
        # The product itself is as large before as after.
        return total[0], total[1]

    def write(self) -> Instruction:
        """Put it in the place of the solution; what stands there now."""
        product = self.product
        writer = ChainWriter(self.value, self.sizes, product.attributes)
        sides = [
            writer.named(operand, labels)
            for operand, labels in zip(product.operands, self.names, strict=True)
        ]
        sides[self.side] = writer.applied(self.chain, sides[self.side], transposed=False)
        if self.across is not None:
            other = 1 - self.side
            sides[other] = writer.applied(self.across, sides[other], transposed=False)
        found = writer.dot(sides[0], sides[1], self.summed)
        dims = self.value.array.dims
        return writer.put(found, [k if size > 1 else None for k, size in enumerate(dims)])


def solved_factors(
    computation: Computation, target: Target, least: float
) -> Iterator[tuple[SolvedFactor, tuple[float, float]]]:
    """Solutions that take less than ``least`` of their time with the product last, and both times."""
    covered: set[Instruction] = set()
    for value in reversed(list(computation)):
        if value in covered or value.op.family not in ("linear", "custom"):
            continue
        chain = read_chain(value)
        if chain is None or chain.steps[0][1] is not value:
            continue
        covered |= {at for _, at in chain.steps}
        found = _solved_factor(chain)
        if found is None:
            continue
        seconds = found.seconds(AlgebraPrices(target, value.array.dtype))
        if seconds[1] < seconds[0] * least:
            yield found, seconds


def _product(chain: SolveChain, across: SolveChain | None) -> Instruction:
    return chain.base if across is None else across.base


def _solved_factor(chain: SolveChain) -> SolvedFactor | None:
    across = read_steps(chain.base, chain.labels)
    product, value = _product(chain, across), chain.value
    labels = chain.labels if across is None else across.labels
    if product.opcode != "dot" or not is_replaceable(product) or len(product.operands) != 2:
        return None
    inside = (*chain.path[1:], *(across.path if across else ()), product)
    if any(len(one.users) != 1 or one.is_root for one in inside) or not is_replaceable(value):
        return None
    if any(one.array.dtype is not value.array.dtype for one in (product, *product.operands)):
        return None
    dims = DotDims.of(product.attributes)
    ranks = [operand.array.rank for operand in product.operands]
    placed = dims.places(*ranks)
    names: list[list[IndexLabel | None]] = [[None] * rank for rank in ranks]
    sizes = dict(chain.sizes)
    for side in (0, 1):
        for dim, at in placed[side].items():
            names[side][dim] = labels[at]
    summed: set[IndexLabel] = set()
    for one, other in zip(dims.lhs_contracting, dims.rhs_contracting, strict=True):
        size = product.operands[0].array.dims[one]
        if size != 1:
            label = value.array.rank + len(summed)
            names[0][one] = names[1][other] = label
            sizes[label] = size
            summed.add(label)
    sides = [side for side in (0, 1) if chain.acted in names[side]]
    if len(sides) != 1:  # a batch dimension of the product
        return None
    (side,) = sides
    if across is not None and (across.acted in names[side] or across.acted not in names[1 - side]):
        return None
    # Each matrix of a batch is multiplied by its own.
    shared = {label for label in names[0] if label in names[1]}
    batches = {*chain.batch, *(across.batch if across else ())}
    if not {label for label in batches if label in names[1 - side]} <= shared:
        return None
    found = (tuple(names[0]), tuple(names[1]))
    return SolvedFactor(chain, across, side, found, sizes, frozenset(summed))
