"""Scatters of one element a row into one value, as a comparison."""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.passes.indexing.known import KnownArrays
from hloopt.passes.indexing.windows import Starts, affine
from hloopt.rewrite import PassLog
from hloopt.rewrite.regions import is_liftable, lifted
from hloopt.rewrite.site import Site, SitePass, row_major
from hloopt.types import DTYPES, ArrayShape, Dims, ScatterDims, SliceRange

__all__ = ["ScatterToSelect"]


@dataclass(frozen=True)
class ScatterToSelect(SitePass):
    """Replace a scatter of one element a row into an array of one value by elementwise ops.

        scatter(zeros, (r, i[r]), u[r])    =>    select(iota == i, 0 + u, 0)

    As gradients of ``x[r, label[r]]`` have it: the scatter needs a kernel that writes the zeros, one that adds
    to places in no order, and a third that reads all of it; the comparison is fused with what reads it.  Each
    row has one index at most, along one dimension; an index outside equals no place: a scatter leaves it out.
    The combiner is applied once, so that every bit is the same.

    limit   the most elements of index arrays that are computed, to see that rows are counted one by one
    whole   whether arrays of more than one value are taken, too: all of such an array is then read and written
    """

    opcode: ClassVar[str] = "scatter"
    example: ClassVar[str] = """HloModule example

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  zero = f32[] constant(0)
  zeros = f32[8,100]{1,0} broadcast(zero), dimensions={}
  labels = s32[8,1]{1,0} parameter(0)
  updates = f32[8]{0} parameter(1)
  ROOT g = f32[8,100]{1,0} scatter(zeros, labels, updates), update_window_dims={}, inserted_window_dims={1},
      scatter_dims_to_operand_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={0},
      index_vector_dim=1, to_apply=add
}
"""

    limit: int = 1 << 20
    whole: bool = False

    def fits(self, scatter: Instruction) -> bool:
        """Whether a scatter is of one array, and of one that is taken."""
        return len(scatter.fold_inputs) == 1 and (self.whole or _is_one_value(scatter.operands[0]))

    def rewrite(self, instruction: Instruction, log: PassLog) -> bool:
        """Replace one scatter, if it can be."""
        scatter = instruction
        if not self.fits(scatter):
            return False
        rows = _rows(scatter, KnownArrays(scatter.module, self.limit))
        if rows is None:
            return False
        operands = (scatter.operands[0], scatter.scatter_updates[0])
        if not is_liftable(scatter.to_apply, operands):
            log.miss(
                "one element a row", scatter, "its computation is not of elementwise ops alone"
            )
            return False
        log.hit("one element a row", scatter, f"along dimension {rows.along}")
        _replace(scatter, rows)
        return True


@dataclass(frozen=True)
class _Rows:
    """Where the windows of a scatter lie.

    axes     of the batch dimensions that operand dimensions follow one by one, in order
    dims     those dimensions of the operand, in the same order
    along    the one dimension along which they are placed by an index
    column   of the start indices, which is for it
    """

    axes: Dims
    dims: Dims
    along: int
    column: int


def _is_one_value(operand: Instruction) -> bool:
    if operand.opcode == "broadcast":
        return operand.operands[0].array.elements == 1
    return operand.literal is not None and operand.literal.splat is not None


def _rows(scatter: Instruction, arrays: KnownArrays) -> _Rows | None:
    """None where a row may get several elements, or a window has several."""
    operand, updates = scatter.operands[0].array, scatter.scatter_updates[0].array
    dims = ScatterDims.of(scatter.attributes)
    if not operand.elements or set(dims.window_sizes(operand.rank, updates.dims)) - {1}:
        return None
    starts = Starts.of_scatter(scatter, dims)
    if not starts.indices.array.rank:
        return None
    follows = dict(starts.batching)
    free = []
    for column, dim in enumerate(starts.columns):
        axis = _counted(starts, column, operand.dims[dim], arrays)
        if axis is None:
            free.append((dim, column))
        else:
            follows[dim] = axis
    axes = sorted(follows.values())
    wide = {axis for axis, size in enumerate(starts.batch) if size > 1}
    if len(free) != 1 or len(follows) + 1 != operand.rank or len(set(axes)) < len(axes):
        return None
    if not wide <= set(axes):
        return None
    by_axis = {axis: dim for dim, axis in follows.items()}
    ordered = tuple(by_axis[axis] for axis in axes)
    if tuple(sorted(ordered)) != ordered:
        return None
    along, column = free[0]
    return _Rows(tuple(axes), ordered, along, column)


def _counted(starts: Starts, column: int, size: int, arrays: KnownArrays) -> int | None:
    """The batch dimension that a column counts from 0 on, as long as the operand's; None where it does not."""
    values = starts.known(column, arrays)
    found = affine(values) if values is not None else None
    if found is None or found.offset:
        return None
    moving = [axis for axis, stride in enumerate(found.strides) if stride]
    if len(moving) != 1 or found.strides[moving[0]] != 1 or starts.batch[moving[0]] != size:
        return None
    return moving[0]


def _replace(scatter: Instruction, rows: _Rows) -> None:
    site = Site(scatter)
    operand, updates = scatter.operands[0], scatter.scatter_updates[0]
    starts = Starts.of_scatter(scatter, ScatterDims.of(scatter.attributes))
    sizes = tuple(starts.batch[axis] for axis in rows.axes)

    def spread(value: Instruction) -> Instruction:
        flat = site.reshape(value, row_major(value.array, sizes))
        shape = row_major(value.array, operand.array.dims)
        return site.make("broadcast", flat, shape=shape, dimensions=rows.dims)

    indices = spread(_wide(site, _column(site, starts, rows.column)))
    places = site.make("iota", shape=indices.array, iota_dimension=rows.along)
    mask_shape = row_major(operand.array, operand.array.dims)
    mask = site.make(
        "compare",
        places,
        indices,
        shape=ArrayShape(DTYPES["pred"], mask_shape.dims, mask_shape.layout),
        direction="EQ",
    )
    (combined,) = lifted(scatter.to_apply, (operand, spread(updates)), operand.array, site)
    site.replace(site.make("select", mask, combined, operand, shape=operand.array))


def _column(site: Site, starts: Starts, column: int) -> Instruction:
    source, number = starts.piece(column)
    dims = source.array.dims
    if len(dims) > starts.vector_dim and dims[starts.vector_dim] > 1:
        ranges = [SliceRange(0, size) for size in dims]
        ranges[starts.vector_dim] = SliceRange(number, number + 1)
        shape = row_major(source.array, tuple(entry.size for entry in ranges))
        source = site.make("slice", source, shape=shape, slice=tuple(ranges))
    return source


def _wide(site: Site, indices: Instruction) -> Instruction:
    """Indices of a type that counts as far as any array has places."""
    kind = indices.array.dtype
    if kind.bits >= 32:
        return indices
    wide = ArrayShape(DTYPES["s32"], indices.array.dims, indices.array.layout)
    return site.make("convert", indices, shape=wide)
