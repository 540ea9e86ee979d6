"""Solutions for right sides that are a thin product, or are all the same: ``solve(T, dot(U, W))`` as
``dot(solve(T, U), W)``, ``solve(T, broadcast(u))`` as ``broadcast(solve(T, u))``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.linear_algebra.prices import AlgebraPrices
from hloopt.linear_algebra.systems.chains import Labels, SolveChain, read_chain, read_steps
from hloopt.linear_algebra.systems.steps import IndexLabel, Triangle
from hloopt.linear_algebra.systems.writing import ChainWriter, has_one_precision
from hloopt.rewrite.site import is_replaceable
from hloopt.targets import Target
from hloopt.types import DotDims

__all__ = ["SolvedFactor", "read_product", "solved_factors"]


@dataclass(frozen=True)
class SolvedFactor:
    """A solution whose right sides are made of a matrix with few columns.

    chain    of the solution
    across   the steps between it and the product, if any, which act on an index of the other factors
    factors  what is multiplied, with the label of each dimension of more than one element: the rows of the
             first are those that the systems act on
    sizes    of all indices
    summed   the indices that the product sums
    """

    chain: SolveChain
    across: SolveChain | None
    factors: tuple[tuple[Instruction, Labels], ...]
    sizes: Mapping[IndexLabel, int]
    summed: frozenset[IndexLabel]

    @property
    def value(self) -> Instruction:
        """The solution, in the place of which the product is put."""
        return self.chain.value

    @property
    def columns(self) -> tuple[int, int]:
        """Right sides of each system before and after."""
        kept = {self.chain.acted, *self.chain.batch}
        before = prod(size for label, size in self.chain.sizes.items() if label not in kept)
        solved = {label for label in self.factors[0][1] if label is not None}
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
        product = _product(self.chain, self.across)
        writer = ChainWriter(self.value, self.sizes, product.attributes)
        first, *rest = (writer.named(value, labels) for value, labels in self.factors)
        found = writer.applied(self.chain, first, transposed=False)
        for other in rest:
            if self.across is not None:
                other = writer.applied(self.across, other, transposed=False)
            if product.opcode == "dot":
                found = writer.dot(found, other, self.summed)
            else:
                found = writer.elementwise("multiply", found, other)
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
    if not is_replaceable(product) or not is_replaceable(value):
        return None
    inside = (*chain.path[1:], *(across.path if across else ()), product)
    if any(len(one.users) != 1 or one.is_root for one in inside):
        return None
    sizes = dict(chain.sizes)
    factors = read_product(product, chain.labels if across is None else across.labels, sizes)
    if factors is None or any(one.array.dtype is not value.array.dtype for one, _ in factors):
        return None
    factors.sort(key=lambda factor: chain.acted not in factor[1])
    first, *others = (labels for _, labels in factors)
    if chain.acted not in first or any(chain.acted in labels for labels in others):
        return None
    if across is not None and (
        across.acted in first or not others or across.acted not in others[0]
    ):
        return None
    summed = frozenset(label for label in sizes if label not in chain.sizes)
    return SolvedFactor(chain, across, tuple(factors), sizes, summed)


def read_product(
    product: Instruction, labels: Labels, sizes: dict[IndexLabel, int]
) -> list[tuple[Instruction, Labels]] | None:
    """What is multiplied, or repeated; the indices that are summed get labels and ``sizes``."""
    if product.opcode == "broadcast":
        return [_repeated(product, labels)]
    if product.opcode == "multiply" and all(one.opcode == "broadcast" for one in product.operands):
        return [_repeated(one, labels) for one in product.operands]
    if product.opcode != "dot" or len(product.operands) != 2 or not has_one_precision(product):
        return None
    dims = DotDims.of(product.attributes)
    ranks = [operand.array.rank for operand in product.operands]
    names: list[list[IndexLabel | None]] = [[None] * rank for rank in ranks]
    for side, places in enumerate(dims.places(*ranks)):
        for dim, at in places.items():
            names[side][dim] = labels[at]
    for one, other in zip(dims.lhs_contracting, dims.rhs_contracting, strict=True):
        size = product.operands[0].array.dims[one]
        if size != 1:
            label = max(sizes) + 1
            names[0][one] = names[1][other] = label
            sizes[label] = size
    return [(operand, tuple(found)) for operand, found in zip(product.operands, names, strict=True)]


def _repeated(broadcast: Instruction, labels: Labels) -> tuple[Instruction, Labels]:
    return broadcast.operands[0], tuple(labels[dim] for dim in broadcast.dimensions)
