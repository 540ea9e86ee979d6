"""Scatters in the one form that emitters need to know."""

from __future__ import annotations

from math import prod
from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.passes.indexing.windows import Starts, index_matrix
from hloopt.rewrite import PassLog
from hloopt.rewrite.site import Site, SitePass, row_major
from hloopt.types import ScatterDims

__all__ = ["ScatterSimplifier"]


@dataclass(frozen=True)
class ScatterSimplifier(SitePass):
    """Bring scatters into the form ``[N, k]`` indices, ``[N, window...]`` updates.

    1. Index vectors become the rows of a matrix; batching dimensions become columns that count.
    2. Updates are transposed and reshaped to one window a row, no dimension of it left out.

    Operands keep the order of their dimensions, as in XLA of 2026.
    Windows are combined in the same order, so that results are the same. Scatters in that form already,
    with control edges, dynamic shapes or an operand without elements are left alone. It is a form for
    emitters: simplify makes batching dimensions out of counting columns again, so run this pass after
    it.
    """

    opcode: ClassVar[str] = "scatter"
    example: ClassVar[str] = """HloModule columns

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = f32[4,5]{1,0} parameter(0)
  i = s32[2,3]{1,0} parameter(1)
  u = f32[4,2,3]{2,1,0} parameter(2)
  ROOT r = f32[4,5]{1,0} scatter(x, i, u), update_window_dims={0}, inserted_window_dims={1},
      scatter_dims_to_operand_dims={1}, index_vector_dim=2, to_apply=add
}
"""

    def rewrite(self, instruction: Instruction, log: PassLog) -> bool:
        """Bring one scatter into canonical form."""
        if _is_canonical(instruction) or not instruction.operands[0].array.elements:
            return False
        log.hit("canonical scatter", instruction)
        _rewrite(instruction)
        return True


def _is_canonical(scatter: Instruction) -> bool:
    dims = ScatterDims.of(scatter.attributes)
    indices = scatter.scatter_indices.array
    rank = scatter.operands[0].array.rank
    return (
        indices.rank == 2
        and dims.index_vector_dim == 1
        and not dims.inserted_window_dims
        and not dims.input_batching_dims
        and dims.update_window_dims == tuple(range(1, rank + 1))
    )


def _rewrite(scatter: Instruction) -> None:
    site, dims = Site(scatter), ScatterDims.of(scatter.attributes)
    starts = Starts.of_scatter(scatter, dims)
    rank = scatter.operands[0].array.rank
    operands = scatter.fold_inputs
    updates = tuple(
        _windows(site, update, dims, starts, rank) for update in scatter.scatter_updates
    )
    attributes = {
        name: value
        for name, value in scatter.attributes.items()
        if name in ("indices_are_sorted", "unique_indices", "backend_config", "to_apply")
    }
    if dims.input_batching_dims:
        attributes.pop("indices_are_sorted", None)
    indices = index_matrix(starts, site)
    attributes |= {
        "update_window_dims": tuple(range(1, rank + 1)),
        "inserted_window_dims": (),
        "scatter_dims_to_operand_dims": starts.moving,
        "index_vector_dim": 1,
    }
    site.replace(site.result("scatter", *operands, indices, *updates, **attributes))


def _windows(
    site: Site, update: Instruction, dims: ScatterDims, starts: Starts, rank: int
) -> Instruction:
    """[N, window...] with a dimension for each of the operand's."""
    batch = dims.batch_dims(update.array.rank)
    value = site.transpose(update, (*batch, *dims.update_window_dims))
    sizes = dims.window_sizes(rank, update.array.dims)
    return site.reshape(value, row_major(update.array, (prod(starts.batch), *sizes)))
