"""Dots in the one form that matrix multiplication has."""

from __future__ import annotations

from math import prod
from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.rewrite import PassLog
from hloopt.rewrite.dimension_numbers import dot_attributes
from hloopt.rewrite.site import Site, SitePass, row_major
from hloopt.types import Dims, DotDims, free_dims

__all__ = ["DotDecomposer"]


@dataclass(frozen=True)
class DotDecomposer(SitePass):
    """Bring dots into the form [batch..., M, K] x [batch..., K, N] = [batch..., M, N].

    1. Transpose each operand: batch dimensions first, in the order they are paired; then what comes back
       and what is contracted (left), or what is contracted and what comes back (right).
    2. Merge the dimensions of each part by a reshape.  Nothing contracted is a K of one element; nothing
       that comes back has no M or no N at all.
    3. Multiply, and reshape the result to its dimensions.

    The products of an element are the same, and are added in the same order.  Dots in that form already,
    with control edges or dynamic shapes are left alone.  simplify and transpose-folding undo step 1 and 3
    where they are free: run this pass last.

    matrices  whether matrices that are contracted along their other dimension are transposed, too; XLA's
              compilers leave them
    """

    opcode: ClassVar[str] = "dot"
    example: ClassVar[str] = """HloModule two_of_each

ENTRY main {
  a = f32[3,7,4,5]{3,2,1,0} parameter(0)
  b = f32[5,4,3,2]{3,2,1,0} parameter(1)
  ROOT r = f32[3,7,2]{2,1,0} dot(a, b), lhs_batch_dims={0}, lhs_contracting_dims={2,3},
      rhs_batch_dims={2}, rhs_contracting_dims={1,0}
}
"""

    matrices: bool = True

    def rewrite(self, instruction: Instruction, log: PassLog) -> bool:
        """Bring one dot into canonical form."""
        if _is_canonical(instruction, self.matrices):
            return False
        log.hit("canonical dot", instruction)
        _decompose(instruction)
        return True


def _is_canonical(dot: Instruction, matrices: bool) -> bool:
    dims = DotDims.of(dot.attributes)
    count = len(dims.lhs_batch)
    lhs, rhs = dot.operands[0].array.rank, dot.operands[1].array.rank
    leading = tuple(range(count))
    return (
        dims.lhs_batch == dims.rhs_batch == leading
        and len(dims.lhs_contracting) == 1
        and (not matrices or dims.lhs_contracting == (lhs - 1,))
        and (not matrices or dims.rhs_contracting == (count,))
        and lhs <= count + 2
        and rhs <= count + 2
    )


def _decompose(dot: Instruction) -> None:
    site, dims = Site(dot), DotDims.of(dot.attributes)
    left = _matrix(site, dot.operands[0], dims.lhs_batch, dims.lhs_contracting, last=True)
    right = _matrix(site, dot.operands[1], dims.rhs_batch, dims.rhs_contracting, last=False)
    count = len(dims.lhs_batch)
    leading = tuple(range(count))
    canonical = DotDims((left.array.rank - 1,), (count,), leading, leading)
    result = (
        *left.array.dims[:-1],
        *right.array.dims[count + 1 :],
    )
    shape = dot.array if result == dot.array.dims else row_major(dot.array, result)
    product = site.make("dot", left, right, shape=shape, **dot_attributes(dot, canonical))
    site.replace(site.reshape(product, dot.array))


def _matrix(
    site: Site,
    operand: Instruction,
    batch: Dims,
    contracting: Dims,
    *,
    last: bool,
) -> Instruction:
    """[batch..., free, contracting] where the contracted part is ``last``, else the two exchanged."""
    dims = operand.array.dims
    free = free_dims(len(dims), batch, contracting)
    order = (*batch, *free, *contracting) if last else (*batch, *contracting, *free)
    rows = (prod(dims[dim] for dim in free),) if free else ()
    depth = (prod(dims[dim] for dim in contracting),)
    inner = (*rows, *depth) if last else (*depth, *rows)
    sizes = (*(dims[dim] for dim in batch), *inner)
    return site.reshape(site.transpose(operand, order), row_major(operand.array, sizes))
