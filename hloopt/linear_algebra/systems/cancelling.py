"""A matrix and its inverse, one after the other: neither product nor solution is left.

``A inverse(A) B`` and ``inverse(A) (A B)`` are B, and the inverse of an inverse is the matrix itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from hloopt.analysis.matrix_properties import Matrices
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.linear_algebra.masks import where_places
from hloopt.linear_algebra.systems.chains import (
    VIEWS,
    Labels,
    identity_labels,
    read_chain,
    read_steps,
    viewed_labels,
)
from hloopt.linear_algebra.systems.inverses import (
    FAMILIES,
    Inverse,
    matrix_labels,
    outermost_inverse,
    same_matrix,
)
from hloopt.linear_algebra.systems.solved_factors import read_product
from hloopt.linear_algebra.systems.steps import IndexLabel
from hloopt.linear_algebra.systems.writing import ChainWriter, product_of_solution
from hloopt.rewrite.site import Site, is_replaceable

__all__ = ["Cancelled", "cancelled", "inverse_of"]

_PRODUCT: Final = "dot(A, solve(A, B)) => B"
_SOLUTION: Final = "solve(A, dot(A, B)) => B"
_BACK: Final = "dot(dot(B, inverse(A)), A) => B"
_ITSELF: Final = "solve(A, A) => identity"
_TWICE: Final = "solve(inverse(A), B) => dot(A, B)"


@dataclass(frozen=True)
class Cancelled:
    """A value that is one factor of itself, or the product of two.

    rule    the equation
    value   what is replaced, whose dimensions have the labels ``order``
    given   what it is, or the right side of the product with ``matrix``, with labels; None for an identity,
            whose indices are ``named``
    matrix  None where nothing is multiplied; else with labels
    summed  of a product
    named   the label that one of what is found gets in ``order``
    sizes   of all indices
    """

    rule: str
    value: Instruction
    order: Labels
    given: tuple[Instruction, Labels] | None
    matrix: tuple[Instruction, Labels] | None
    summed: IndexLabel | None
    named: tuple[IndexLabel, IndexLabel]
    sizes: Mapping[IndexLabel, int]

    def write(self) -> Instruction:
        """Put it in the place of the value; what stands there now."""
        if self.given is None:
            return self._identity()
        precision = self.value.attributes if self.value.opcode == "dot" else {}
        writer = ChainWriter(self.value, self.sizes, precision)
        found = writer.named(*self.given)
        if self.matrix is not None and self.summed is not None:
            found = writer.dot(writer.named(*self.matrix), found, {self.summed})
        return writer.put(found.renamed(*self.named), self.order)

    def _identity(self) -> Instruction:
        site, shape = Site(self.value), self.value.array
        one, other = (self.order.index(label) for label in self.named)
        mask = where_places(site, shape, (one, other), "EQ")
        return site.replace(site.make("convert", mask, shape=shape))


def cancelled(computation: Computation) -> Iterator[Cancelled]:
    """The values of a computation that inverses drop out of, in order; each is read when it is asked for."""
    if not any(_may_solve(one) for one in computation):
        return
    matrices = Matrices()
    for value in list(computation):
        if value.computation is None or not is_replaceable(value) or not value.is_array:
            continue
        found = None
        if value.opcode == "dot":
            found = _multiplied(value, matrices) or _multiplied_back(value, matrices)
        elif value.op.family in FAMILIES:
            inverse = inverse_of(value, matrices)
            if inverse is not None:
                found = _solved(inverse, matrices) or _twice(inverse, matrices)
        if found is not None:
            yield found


def _may_solve(value: Instruction) -> bool:
    if value.opcode == "custom-call":
        return value.custom_call_target.endswith("trsm_ffi")
    return value.opcode == "triangular-solve"


def inverse_of(value: Instruction, matrices: Matrices) -> Inverse | None:
    """The inverse that a value is multiplied by last, if it is its own first step."""
    chain = read_chain(value)
    if chain is None or chain.steps[0][1] is not value:
        return None
    return outermost_inverse(chain, matrices)


def _labelled(inverse: Inverse, row: IndexLabel, column: IndexLabel) -> Labels | None:
    """The labels of the matrix, of which the inverse, turned or not, leads from row to column."""
    if inverse.is_turned:
        row, column = column, row
    return matrix_labels(inverse.matrix, inverse.chain.batch, row, column)


def _multiplied(dot: Instruction, matrices: Matrices) -> Cancelled | None:
    """``dot(A, solve(A, B))``, either way round."""
    for side in (0, 1):
        chain = read_chain(dot.operands[side])
        product = chain and product_of_solution(dot, side, chain)
        if not chain or not product or product.summed != {chain.acted}:
            continue
        inverse = outermost_inverse(chain, matrices)
        others = product.names[1 - side]
        free = {label for label in others if label is not None} - {chain.acted, *chain.batch}
        if inverse is None or len(free) != 1:
            continue
        (row,) = free
        labels = _labelled(inverse, row, chain.acted)
        other = dot.operands[1 - side]
        if labels and same_matrix(other, others, inverse.matrix, labels, matrices):
            return Cancelled(
                _PRODUCT,
                dot,
                tuple(product.order()),
                inverse.right,
                None,
                None,
                (chain.acted, row),
                product.sizes,
            )
    return None


def _multiplied_back(dot: Instruction, matrices: Matrices) -> Cancelled | None:
    """``dot(dot(B, inverse(A)), A)``, with the factors in any order."""
    order = tuple(k if size > 1 else None for k, size in enumerate(dot.array.dims))
    sizes = {k: size for k, size in enumerate(dot.array.dims) if size > 1}
    if not sizes:
        return None
    outer = dict(sizes)
    factors = read_product(dot, order, outer)
    if factors is None or len(outer) != len(sizes) + 1:
        return None
    summed = max(outer)
    for (product, labels), (matrix, names) in (factors, factors[::-1]):
        inner = dict(outer)
        parts = read_product(product, labels, inner) if product.opcode == "dot" else None
        if parts is None or len(inner) != len(outer) + 1:
            continue
        column = max(inner)
        # The inverse has both indices that are summed.
        parts.sort(key=lambda part: summed not in part[1])
        (value, own), (given, rest) = parts
        free = {label for label in names if label is not None} - {summed, *own}
        if summed in rest or len(free) != 1 or given.array.dtype is not dot.array.dtype:
            continue
        (row,) = free
        wanted = _of_inverse(value, own, summed, column, row, matrices)
        if wanted and same_matrix(matrix, names, *wanted, matrices):
            return Cancelled(_BACK, dot, order, (given, rest), None, None, (column, row), inner)
    return None


def _of_inverse(
    value: Instruction,
    labels: Labels,
    summed: IndexLabel,
    column: IndexLabel,
    row: IndexLabel,
    matrices: Matrices,
) -> tuple[Instruction, Labels] | None:
    """The matrix that has a value as its inverse, with ``row`` in the place of ``column``."""
    chain = read_steps(value, labels)
    inverse = chain and chain.triangles and outermost_inverse(chain, matrices)
    if not chain or not inverse or inverse.steps != len(chain.steps):
        return None
    unit = identity_labels(*inverse.right)
    if unit is None or set(unit) != {summed, column}:
        return None
    ends = (row, summed) if chain.acted == summed else (summed, row)
    found = _labelled(inverse, *ends)
    return None if found is None else (inverse.matrix, found)


def _solved(inverse: Inverse, matrices: Matrices) -> Cancelled | None:
    """``solve(A, dot(A, B))``, and ``solve(A, A)``."""
    chain, (product, labels) = inverse.chain, inverse.right
    order = tuple(k if size > 1 else None for k, size in enumerate(chain.value.array.dims))
    others = {label for label in order if label is not None} - {chain.acted, *chain.batch}
    if len(others) == 1:
        (column,) = others
        wanted = _labelled(inverse, chain.acted, column)
        if wanted and same_matrix(product, labels, inverse.matrix, wanted, matrices):
            places = (chain.acted, column)
            return Cancelled(_ITSELF, chain.value, order, None, None, None, places, chain.sizes)
    while product.opcode in VIEWS:
        before = viewed_labels(product, labels)
        if before is None:
            return None
        product, labels = product.operands[0], before
    sizes = dict(chain.sizes)
    factors = read_product(product, labels, sizes) if product.opcode == "dot" else None
    summed = set(sizes) - set(chain.sizes)
    if factors is None or len(summed) != 1:
        return None
    (column,) = summed
    wanted = _labelled(inverse, chain.acted, column)
    for at, (factor, names) in enumerate(factors):
        other, rest = factors[1 - at]
        if chain.acted in rest or other.array.dtype is not chain.value.array.dtype:
            continue
        if wanted and same_matrix(factor, names, inverse.matrix, wanted, matrices):
            given = (other, rest)
            return Cancelled(
                _SOLUTION, chain.value, order, given, None, None, (column, chain.acted), sizes
            )
    return None


def _twice(inverse: Inverse, matrices: Matrices) -> Cancelled | None:
    """``solve(inverse(A), B)``: the product with A, and A itself where B is the identity."""
    matrix, chain = inverse.matrix, inverse.chain
    inner_chain = read_chain(matrix)
    inner = inner_chain and outermost_inverse(inner_chain, matrices)
    if not inner or not inner_chain or inner.steps != len(inner_chain.steps):
        return None
    rank, found = matrix.array.rank, identity_labels(*inner.right)
    batch = tuple(dim for dim in range(rank - 2) if matrix.array.dims[dim] > 1)
    if found is None or set(found) != {rank - 2, rank - 1} or inner_chain.batch != batch:
        return None
    if inner.matrix.array.dtype is not chain.value.array.dtype:
        return None
    is_turned = (inverse.is_turned != (inner.acted == rank - 1)) != inner.is_turned
    order = tuple(k if size > 1 else None for k, size in enumerate(chain.value.array.dims))
    sizes, acted = dict(chain.sizes), chain.acted
    column = max(sizes) + 1
    sizes[column] = sizes[acted]
    unit = identity_labels(*inverse.right)
    is_whole = unit is not None and acted in unit
    if unit is not None and is_whole:
        # The columns of the identity are those of the matrix.
        column = unit[0] if unit[1] == acted else unit[1]
    # A product sums the index that the right side has, and leaves the matrix's own.
    row, last = (acted, column) if is_whole else (column, acted)
    if is_turned:
        row, last = last, row
    named = matrix_labels(inner.matrix, chain.batch, row, last)
    if named is None:
        return None
    if not is_whole:
        factor = (inner.matrix, named)
        return Cancelled(
            _TWICE, chain.value, order, inverse.right, factor, acted, (column, acted), sizes
        )
    if {label for label in order if label is not None} - set(named):
        return None
    given = (inner.matrix, named)
    return Cancelled(_TWICE, chain.value, order, given, None, None, (acted, acted), sizes)
