"""Batch dimensions of dots that lie together as one."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import ClassVar

from hloopt.analysis.layout import is_descending
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.rewrite import PassLog
from hloopt.rewrite.dimension_numbers import dot_attributes
from hloopt.rewrite.site import Site, SitePass, row_major
from hloopt.types import Dims, DotDims

__all__ = ["DotDimensionMerger"]


@dataclass(frozen=True)
class DotDimensionMerger(SitePass):
    """Make one batch dimension of several that both operands have side by side, in the same order.

        dot(a[b,h,m,k], b[b,h,k,n])    =>    reshape(dot(reshape(a)[b*h,m,k], reshape(b)[b*h,k,n]))

    Left alone: arrays that are not row-major.
    """

    opcode: ClassVar[str] = "dot"
    example: ClassVar[str] = """HloModule heads

ENTRY main {
  q = f32[2,3,8,4]{3,2,1,0} parameter(0)
  k = f32[2,3,4,8]{3,2,1,0} parameter(1)
  ROOT r = f32[2,3,8,8]{3,2,1,0} dot(q, k), lhs_batch_dims={0,1}, lhs_contracting_dims={3},
      rhs_batch_dims={0,1}, rhs_contracting_dims={2}
}
"""

    def rewrite(self, instruction: Instruction, log: PassLog) -> bool:
        """Merge the batch dimensions of one dot."""
        if not _is_mergeable(instruction):
            return False
        dims = DotDims.of(instruction.attributes)
        log.hit("merge batch dimensions", instruction, f"{len(dims.lhs_batch)} of them")
        _merge(instruction, dims)
        return True


def _is_mergeable(dot: Instruction) -> bool:
    dims = DotDims.of(dot.attributes)
    if len(dims.lhs_batch) < 2:
        return False
    sides = all(
        batch == tuple(range(batch[0], batch[0] + len(batch)))
        for batch in (dims.lhs_batch, dims.rhs_batch)
    )
    return sides and all(map(is_descending, (dot.array, *(one.array for one in dot.operands))))


def _merge(dot: Instruction, dims: DotDims) -> None:
    site, count = Site(dot), len(dims.lhs_batch)

    def merged(at: int, whole: Dims) -> Dims:
        return (*whole[:at], prod(whole[at : at + count]), *whole[at + count :])

    def moved(at: int, numbers: Dims) -> Dims:
        return tuple(dim - (count - 1) * (dim > at) for dim in numbers)

    left, right = dims.lhs_batch[0], dims.rhs_batch[0]
    sides = tuple(
        site.reshape(operand, row_major(operand.array, merged(at, operand.array.dims)))
        for operand, at in zip(dot.operands, (left, right), strict=True)
    )
    new = replace(
        dims,
        lhs_batch=(left,),
        rhs_batch=(right,),
        lhs_contracting=moved(left, dims.lhs_contracting),
        rhs_contracting=moved(right, dims.rhs_contracting),
    )
    shape = row_major(dot.array, merged(0, dot.array.dims))
    site.replace(
        site.reshape(site.make("dot", *sides, shape=shape, **dot_attributes(dot, new)), dot.array)
    )
