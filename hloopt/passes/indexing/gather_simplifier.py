"""Gathers in the one form that emitters need to know."""

from __future__ import annotations

from math import prod
from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.passes.indexing.windows import Starts, index_matrix
from hloopt.rewrite import PassLog
from hloopt.rewrite.site import Site, SitePass, row_major
from hloopt.types import GatherDims

__all__ = ["GatherSimplifier"]


@dataclass(frozen=True)
class GatherSimplifier(SitePass):
    """Bring gathers into the form ``[N, k]`` indices, ``[N, window...]`` result.

    1. Index vectors become the rows of a matrix; batching dimensions become columns that count.
    2. The gather takes whole windows, none of their dimensions collapsed.
    3. The result is reshaped where dimensions were collapsed or rows belong to several batch dimensions,
       and transposed.

    The operand keeps the order of its dimensions, as in XLA of 2026.

    Only data moves, so that results are the same. Gathers in that form already, with control edges,
    dynamic shapes or an operand without elements are left alone. It is a form for emitters: simplify
    makes batching dimensions out of counting columns again, so run this pass after it.
    """

    opcode: ClassVar[str] = "gather"
    example: ClassVar[str] = """HloModule columns

ENTRY main {
  x = f32[4,5]{1,0} parameter(0)
  i = s32[2,3]{1,0} parameter(1)
  ROOT r = f32[4,2,3]{2,1,0} gather(x, i), offset_dims={0}, collapsed_slice_dims={1},
      start_index_map={1}, index_vector_dim=2, slice_sizes={4,1}
}
"""

    def rewrite(self, instruction: Instruction, log: PassLog) -> bool:
        """Bring one gather into canonical form."""
        if _is_canonical(instruction) or not instruction.operands[0].array.elements:
            return False
        log.hit("canonical gather", instruction)
        _rewrite(instruction)
        return True


def _is_canonical(gather: Instruction) -> bool:
    dims = GatherDims.of(gather.attributes)
    rank = gather.operands[0].array.rank
    return (
        gather.operands[1].array.rank == 2
        and dims.index_vector_dim == 1
        and not dims.collapsed_slice_dims
        and not dims.operand_batching_dims
        and dims.offset_dims == tuple(range(1, rank + 1))
    )


def _rewrite(gather: Instruction) -> None:
    site, dims = Site(gather), GatherDims.of(gather.attributes)
    starts = Starts.of_gather(gather, dims)
    operand = gather.operands[0]
    rank, rows = operand.array.rank, prod(starts.batch)
    indices = index_matrix(starts, site)
    sizes = dims.slice_sizes
    attributes = {
        name: value
        for name, value in gather.attributes.items()
        if name in ("indices_are_sorted", "unique_indices", "backend_config")
    }
    if dims.operand_batching_dims:
        attributes.pop("indices_are_sorted", None)
    attributes |= {
        "offset_dims": tuple(range(1, rank + 1)),
        "collapsed_slice_dims": (),
        "start_index_map": starts.moving,
        "index_vector_dim": 1,
        "slice_sizes": sizes,
    }
    windows = site.make(
        "gather", operand, indices, shape=row_major(operand.array, (rows, *sizes)), **attributes
    )
    value = site.reshape(windows, row_major(operand.array, (*starts.batch, *dims.kept_sizes)))
    count = len(starts.batch)
    batch = iter(range(count))
    places = tuple(
        count + dims.offset_dims.index(dim) if dim in dims.offset_dims else next(batch)
        for dim in range(gather.array.rank)
    )
    site.replace(site.transpose(value, places))
