"""Systems whose triangle has nothing beside its diagonal: a division, or nothing where the diagonal is 1."""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.analysis.matrix_properties import Matrices
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.linear_algebra.masks import diagonal_of
from hloopt.linear_algebra.prices import AlgebraPrices
from hloopt.linear_algebra.systems.factor_uses import read_part
from hloopt.linear_algebra.systems.steps import Triangle, triangle_of
from hloopt.rewrite.site import Site, is_replaceable
from hloopt.targets import Target

__all__ = ["DiagonalSystem", "diagonal_systems"]


@dataclass(frozen=True)
class DiagonalSystem:
    """A triangular system, of which ``is_unit`` says that its diagonal is 1; ``seconds`` before and after."""

    triangle: Triangle
    is_unit: bool
    seconds: tuple[float, float]

    @property
    def solve(self) -> Instruction:
        """The instruction."""
        return self.triangle.solve

    def write(self) -> Instruction:
        """Put the right sides, divided, in the place of the solution; what stands there now."""
        site = Site(self.solve)
        matrix, right = self.solve.operands
        if self.is_unit:
            return site.replace(right)
        rank = right.array.rank
        along = rank - 2 if self.triangle.left_side else rank - 1
        dims = (*range(rank - 2), along)
        spread = site.make(
            "broadcast", diagonal_of(site, matrix), shape=right.array, dimensions=dims
        )
        return site.replace(site.make("divide", right, spread, shape=right.array))


def diagonal_systems(computation: Computation, target: Target) -> Iterator[DiagonalSystem]:
    """Those of a computation that take less as divisions."""
    matrices = Matrices()
    for solve in list(computation):
        triangle = triangle_of(solve)
        if triangle is None or not is_replaceable(solve):
            continue
        lower, is_unit = read_part(solve)
        matrix, right = (operand.array for operand in solve.operands)
        known, rank = matrices.of(solve.operands[0]), matrix.rank
        pair = (rank - 2, rank - 1) if lower else (rank - 1, rank - 2)
        if not matrix.dtype.is_float or not matrix.elements or not known.is_upper(*pair):
            continue
        prices = AlgebraPrices(target, matrix.dtype)
        rows = matrix.dims[-1]
        columns = right.elements * rows // matrix.elements
        before = prices.solve(matrix.elements // rows**2, rows, columns)
        after = prices.elementwise(right.elements)
        if not is_unit:
            after += prices.sum(matrix.elements)
        if after < before:
            yield DiagonalSystem(triangle, is_unit, (before, after))
