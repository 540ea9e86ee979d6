"""Triangular systems by substitution."""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.interpret import linalg
from hloopt.ir import Instruction
from hloopt.passes.expand.computations import loop
from hloopt.passes.expand.expander import Expander
from hloopt.passes.expand.matrices import (
    at,
    blocks,
    check_block,
    conjugate,
    joined,
    kept,
    part,
    place,
    product,
    stretched,
    taken,
    transposed,
)
from hloopt.passes.expand.writer import Term, Writer

__all__ = ["TriangularSolveExpander"]


@dataclass(frozen=True)
class TriangularSolveExpander(Expander):
    """Write ``triangular-solve`` as loops over rows and dots between blocks of rows.

    1. x op(a) = b becomes op(a)' x' = b'; op and the side make one triangle, lower or upper.
    2. The first block of rows (the last of an upper triangle) is solved: a ``while`` takes a row an iteration,
       x[r] = (b[r] - a[r, :] x) / a[r, r], with the other triangle of the block masked out.
    3. What the block contributes is taken off all rows to come by one dot; then the next block.

    Equal within rounding; floats narrower than f32 are computed in f32 and rounded once.  XLA inverts the
    blocks of the diagonal instead, which is less accurate.

    block   rows that a loop solves
    above   rows up to which a matrix is left as it is
    """

    opcodes: ClassVar[frozenset[str]] = frozenset({"triangular-solve"})
    example: ClassVar[str] = """\
HloModule solve

ENTRY main {
  a = f32[4,4]{1,0} parameter(0)
  b = f32[4,2]{1,0} parameter(1)
  ROOT x = f32[4,2]{1,0} triangular-solve(a, b), left_side=true, lower=true, transpose_a=NO_TRANSPOSE
}
"""

    block: int = 64
    above: int = 0

    def __post_init__(self) -> None:
        check_block(self.name, self.block)

    def obstacle(self, instruction: Instruction) -> str | None:
        """A system that is not known, or small enough to be left."""
        size = instruction.operands[0].array.dims[-1]
        problem = linalg.CHECKS["triangular-solve"](instruction)
        return problem or kept(self.name, instruction.array, size, self.above)

    def expand(self, instruction: Instruction, write: Writer) -> Term:
        """Bring the system into the form of a triangle times x, and solve that."""
        attributes, result = instruction.attributes, instruction.array
        if not result.elements:
            return write.splat(result, 0)
        a, b = (taken(write, operand) for operand in instruction.operands)
        lower, left = bool(attributes.get("lower")), bool(attributes.get("left_side"))
        transposition = attributes["transpose_a"]
        if transposition == "ADJOINT":
            a = conjugate(a)
        if (transposition != "NO_TRANSPOSE") == left:
            a, lower = transposed(a), not lower
        b = b if left else transposed(b)
        x = _solved(a, b, lower, bool(attributes.get("unit_diagonal")), self.block)
        return (x if left else transposed(x)).convert(result.dtype)


def _solved(a: Term, b: Term, lower: bool, unit: bool, block: int) -> Term:
    """The x with a x = b, where a is a lower or upper triangle."""
    size, rest, done = a.dims[-1], b, 0
    order = blocks(size, block)
    parts: list[Term] = []
    for first, last in order if lower else reversed(order):
        count, left = last - first, size - done
        here = (0, count) if lower else (left - count, left)
        diagonal = part(a, (first, last), (first, last))
        x = _substituted(diagonal, part(rest, here, None), lower, unit)
        parts.append(x)
        done += count
        if done < size:
            ahead = (last, size) if lower else (0, first)
            rest = part(rest, (count, left) if lower else (0, left - count), None)
            rest = rest - product(part(a, ahead, (first, last)), x)
    return joined(parts if lower else parts[::-1], -2)


def _substituted(a: Term, b: Term, lower: bool, unit: bool) -> Term:
    """The x of one block, row by row; rows to come are zero and so add nothing."""
    write, size = a.writer, a.dims[-1]
    if size == 1:
        return b if unit else b / stretched(a, b)
    inside = place(a, -2).compare("GT" if lower else "LT", place(a, -1))
    fixed = [inside.select(a, 0), b, *(() if unit else (a,))]

    def step(inner: Writer, index: Term, state: list[Term]) -> list[Term]:
        x, triangle, b, *whole = state
        row = index if lower else (size - 1) - index
        value = b.dynamic_slice(*at(b, row, None))
        value = value - product(triangle.dynamic_slice(*at(triangle, row, None)), x)
        for matrix in whole:
            value = value / stretched(matrix.dynamic_slice(*at(matrix, row, row)), value)
        starts, _ = at(x, row, None)
        return [x.updated(value, starts)]

    (x,) = loop(write, size, [b.like(0)], step, fixed)
    return x
