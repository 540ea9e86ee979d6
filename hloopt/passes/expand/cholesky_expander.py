"""Cholesky factorisation by columns."""

from __future__ import annotations

from math import nan
from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.passes.expand.computations import loop
from hloopt.passes.expand.expander import Expander
from hloopt.passes.expand.matrices import (
    adjoint,
    at,
    blocks,
    check_block,
    kept,
    part,
    place,
    product,
    stretched,
    taken,
)
from hloopt.passes.expand.writer import Term, Writer

__all__ = ["CholeskyExpander"]


@dataclass(frozen=True)
class CholeskyExpander(Expander):
    """Write ``cholesky`` as loops over columns and dots between panels of columns.

    For each panel P of columns of the lower triangle, from the diagonal down:

    1. P is less what the columns before it make of it, by one dot: P - L[i:, :i] L[i:i+k, :i]'.
    2. A ``while`` takes one column each time: p = P[:, j] - L L[j, :]', L[:, j] = p / sqrt(p[j]) from row j on.

    A pivot that is not positive makes its column NaN, this makes the last element of the diagonal NaN, and
    that makes the matrix NaN.  U of the upper triangle is the adjoint of L of the adjoint.

    Equal within rounding; floats narrower than f32 are computed in f32 and rounded once.

    block   columns of a panel
    above   rows up to which a matrix is left as it is
    """

    opcodes: ClassVar[frozenset[str]] = frozenset({"cholesky"})
    example: ClassVar[str] = """\
HloModule factor

ENTRY main {
  a = f32[4,4]{1,0} parameter(0)
  ROOT l = f32[4,4]{1,0} cholesky(a), lower=true
}
"""

    block: int = 64
    above: int = 0

    def __post_init__(self) -> None:
        check_block(self.name, self.block)

    def obstacle(self, instruction: Instruction) -> str | None:
        """A matrix that is small enough to be left."""
        result = instruction.array
        return kept(self.name, result, result.dims[-1], self.above)

    def expand(self, instruction: Instruction, write: Writer) -> Term:
        """Factor the lower triangle, or the adjoint of the upper one."""
        result = instruction.array
        if not result.elements:
            return write.splat(result, 0)
        lower = bool(instruction.attributes.get("lower"))
        a = taken(write, instruction.operands[0])
        factor = _factor(a if lower else adjoint(a), self.block)
        size = a.dims[-1]
        last = part(factor, (size - 1, size), (size - 1, size))
        factor = stretched(last.differs(last), factor).select(nan, factor)
        return (factor if lower else adjoint(factor)).convert(result.dtype)


def _factor(a: Term, block: int) -> Term:
    """L, where every pivot is positive."""
    size = a.dims[-1]
    if size <= block:
        return _columns(a)
    factor = a.like(0)
    for first, last in blocks(size, block):
        panel = part(a, (first, size), (first, last))
        if first:
            rows = part(factor, (first, size), (0, first))
            panel = panel - product(rows, adjoint(part(rows, (0, last - first), None)))
        starts, _ = at(panel, None, None)
        corner = a.writer.scalar(starts[0].dtype, first)
        factor = factor.updated(_columns(panel), [*starts[:-2], corner, corner])
    return factor


def _columns(panel: Term) -> Term:
    """The columns of L in a panel, of which all columns before were taken off."""

    def step(inner: Writer, index: Term, state: list[Term]) -> list[Term]:
        known, panel = state
        row = known.dynamic_slice(*at(known, index, None))
        column = panel.dynamic_slice(*at(panel, None, index)) - product(known, adjoint(row))
        pivot = column.dynamic_slice(*at(column, index, None))
        root = stretched(_root(pivot), column)
        below = place(column, -2)
        scaled = below.equals(index).select(root, column / root)
        scaled = (below >= index).select(scaled, 0)
        starts, _ = at(known, None, index)
        return [known.updated(scaled, starts)]

    (columns,) = loop(panel.writer, panel.dims[-1], [panel.like(0)], step, [panel])
    return columns


def _root(pivot: Term) -> Term:
    """The square root of what is positive, NaN of the rest; of a complex number, of its real part."""
    size = pivot.unary("real") if pivot.dtype.is_complex else pivot
    root = (size > 0).select(size.unary("sqrt"), nan)
    return root.convert(pivot.dtype)
