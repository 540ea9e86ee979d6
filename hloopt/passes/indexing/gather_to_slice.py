"""Gathers whose windows lie in a row replaced by slices."""

from __future__ import annotations

from math import prod
from typing import ClassVar

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Instruction, Module
from hloopt.passes.indexing.known import KnownArrays
from hloopt.passes.indexing.windows import AffineStarts, Starts, affine
from hloopt.rewrite import Pass, PassLog
from hloopt.rewrite.site import Site, row_major, sites
from hloopt.types import Array, ArrayShape, Dims, GatherDims, SliceRange, inverse_permutation

__all__ = ["GatherToSlice"]


@dataclass(frozen=True)
class GatherToSlice(Pass):
    """Replace gathers of one window, or of windows at regular places, by slices.

    1. One window (``x[i]``): a dynamic-slice, which clamps its start as gather does.
    2. Start indices that come out of iotas and constants alone are computed and clamped.  Where each is
       ``offset + stride * b`` of at most one batch index b, and no batch index moves more than one
       dimension, the windows are a strided slice, reversed where the stride is negative, then transposed
       and broadcast over the batch dimensions that move nothing.
    3. Two neighbouring dimensions that one batch index moves (a diagonal) are merged into one before.
    4. One list of places that is a few such rows one after the other: slices, concatenated.

    Indices that depend on parameters, windows larger than one element in a dimension that moves, and
    gathers with control edges or dynamic shapes are left alone.

    pieces   the most slices that one gather becomes
    limit    the most elements of index arrays that are computed
    """

    example: ClassVar[str] = """HloModule every_second_row

ENTRY main {
  x = f32[8,3]{1,0} parameter(0)
  i = s32[4,1]{1,0} iota(), iota_dimension=0
  two = s32[] constant(2)
  twos = s32[4,1]{1,0} broadcast(two), dimensions={}
  rows = s32[4,1]{1,0} multiply(i, twos)
  ROOT r = f32[4,3]{1,0} gather(x, rows), offset_dims={1}, collapsed_slice_dims={0},
      start_index_map={0}, index_vector_dim=1, slice_sizes={1,3}
}
"""

    pieces: int = 4
    limit: int = 1 << 16

    def __post_init__(self) -> None:
        if self.pieces < 1 or self.limit < 1:
            raise UsageError(f"{self.name}: pieces and limit must be at least 1")

    def run(self, module: Module, log: PassLog) -> bool:
        """Look at each gather once."""
        arrays = KnownArrays(module, self.limit)
        changed = False
        for instruction in sites(module, "gather"):
            if not log.allows():
                return changed
            changed |= self.rewrite(instruction, arrays, log)
        return changed

    def rewrite(self, gather: Instruction, arrays: KnownArrays, log: PassLog) -> bool:
        """Replace one gather, if it can be."""
        dims = GatherDims.of(gather.attributes)
        starts = Starts.of_gather(gather, dims)
        shape = gather.operands[0].array
        if not gather.array.elements or not shape.elements or not starts.indices.array.rank:
            return False
        if prod(starts.batch) > self.limit:
            return False
        found = _clamped(starts, shape.dims, dims.slice_sizes, arrays)
        if starts.is_single:
            log.hit("one window => slice", gather)
            _single(gather, dims, starts, found)
            return True
        windows = {dim: values for dim, values in enumerate(found) if values is not None}
        if len(windows) < len(found):
            return False
        rows = {dim: affine(values) for dim, values in windows.items()}
        if None not in rows.values():
            plan = _Plan.of(dims, {dim: row for dim, row in rows.items() if row}, starts.batch)
            if plan is not None and plan.fits(shape.dims):
                log.hit("regular windows => slice", gather)
                site = Site(gather)
                site.replace(_regular(site, gather, dims, plan))
                return True
        return self.rows(gather, dims, starts, windows, log)

    def rows(
        self,
        gather: Instruction,
        dims: GatherDims,
        starts: Starts,
        windows: dict[int, Array],
        log: PassLog,
    ) -> bool:
        """A list of places as a few slices one after the other."""
        moving = [dim for dim, values in windows.items() if np.ptp(values)]
        if len(starts.batch) != 1 or len(moving) != 1 or dims.operand_batching_dims:
            return False
        (dim,) = moving
        if dims.slice_sizes[dim] != 1:
            return False
        cuts = _progressions(windows[dim])
        if len(cuts) > self.pieces:
            log.miss(
                "windows in rows => slices",
                gather,
                f"{len(cuts)} rows are more than pieces={self.pieces}",
            )
            return False
        log.hit("windows in rows => slices", gather)
        site = Site(gather)
        axis = dims.batch_dims(gather.array.rank)[0]
        parts = []
        for begin, end in cuts:
            rows = {
                other: affine(values[begin:end]) or AffineStarts(int(values[0]), (0,))
                for other, values in windows.items()
            }
            plan = _Plan.of(dims, rows, (end - begin,))
            assert plan is not None
            parts.append(_regular(site, gather, dims, plan))
        site.replace(site.result("concatenate", *parts, dimensions=(axis,)))
        return True


def _clamped(starts: Starts, dims: Dims, sizes: Dims, arrays: KnownArrays) -> list[Array | None]:
    """For each operand dimension its clamped starts over the batch, where they are known."""
    found: list[Array | None] = [np.zeros(starts.batch, np.int64) for _ in dims]
    for column, dim in enumerate(starts.columns):
        if dims[dim] == sizes[dim]:
            continue
        values = starts.known(column, arrays)
        found[dim] = None if values is None else np.clip(values, 0, dims[dim] - sizes[dim])
    for dim, values in starts.counted():
        found[dim] = values
    return found


def _single(
    gather: Instruction, dims: GatherDims, starts: Starts, found: list[Array | None]
) -> None:
    site, operand = Site(gather), gather.operands[0]
    sizes = dims.slice_sizes
    shape = row_major(operand.array, sizes)
    if all(values is not None for values in found):
        ranges = tuple(
            SliceRange(int(values.reshape(-1)[0]), int(values.reshape(-1)[0]) + size)
            for values, size in zip(found, sizes, strict=True)
            if values is not None
        )
        window = operand
        if sizes != operand.array.dims:
            window = site.make("slice", operand, shape=shape, slice=ranges)
    else:
        element = starts.indices.array.dtype.name
        zero = site.scalar(element, 0)
        places = [zero] * operand.array.rank
        for column, dim in enumerate(starts.columns):
            places[dim] = starts.scalar(column, site)
        window = site.make(
            "dynamic-slice", operand, *places, shape=shape, dynamic_slice_sizes=sizes
        )
        if zero not in places:
            site.discard(zero)
    inner = site.reshape(window, row_major(window.array, dims.kept_sizes))
    site.replace(_spread(site, inner, dims.offset_dims, gather.array))


def _spread(site: Site, inner: Instruction, places: Dims, shape: ArrayShape) -> Instruction:
    """Put dimensions at their places in the result; the rest of the result repeats them."""
    if places == tuple(range(shape.rank)):
        return inner
    if shape.elements == inner.array.elements and list(places) == sorted(places):
        return site.reshape(inner, shape)
    return site.make("broadcast", inner, shape=shape, dimensions=places)


@dataclass(frozen=True)
class _Axis:
    """A dimension of the (merged) operand: what is taken, and which batch dimension moves it, or None."""

    dims: Dims
    offset: int
    stride: int
    count: int
    moved_by: int | None


@dataclass(frozen=True)
class _Plan:
    """A strided slice, an axis an operand dimension or a pair of merged ones."""

    axes: tuple[_Axis, ...]
    batch: Dims

    @classmethod
    def of(cls, dims: GatherDims, rows: dict[int, AffineStarts], batch: Dims) -> _Plan | None:
        """None where a dimension moves with several batch indices, or moves windows of several elements."""
        axes: list[_Axis] = []
        for dim, size in enumerate(dims.slice_sizes):
            row = rows[dim]
            movers = [axis for axis, stride in enumerate(row.strides) if stride]
            if len(movers) > 1 or (movers and size != 1):
                return None
            if movers:
                (mover,) = movers
                stride = row.strides[mover]
                axes.append(_Axis((dim,), row.offset, stride, batch[mover], mover))
            else:
                axes.append(_Axis((dim,), row.offset, 1, size, None))
        return cls(tuple(axes), batch)

    def fits(self, dims: Dims) -> bool:
        """Whether each batch dimension moves one axis; a pair of neighbours counts as one."""
        seen: set[int] = set()
        for axis in self.merged(dims):
            if axis.moved_by is None:
                continue
            if axis.moved_by in seen or not axis.stride:
                return False
            seen.add(axis.moved_by)
        return True

    def merged(self, dims: Dims) -> tuple[_Axis, ...]:
        """Neighbours moved by one batch dimension as one axis of their product."""
        result: list[_Axis] = []
        for axis in self.axes:
            last = result[-1] if result else None
            if (
                last is not None
                and last.moved_by is not None
                and last.moved_by == axis.moved_by
                and len(last.dims) == 1
            ):
                size = dims[axis.dims[0]]
                offset = last.offset * size + axis.offset
                stride = last.stride * size + axis.stride
                pair = (*last.dims, *axis.dims)
                result[-1] = _Axis(pair, offset, stride, axis.count, axis.moved_by)
            else:
                result.append(axis)
        return tuple(result)


def _regular(site: Site, gather: Instruction, dims: GatherDims, plan: _Plan) -> Instruction:
    """Merge, slice, reverse, drop, transpose, broadcast: each only where it does something."""
    operand = gather.operands[0]
    source = operand.array.dims
    axes = plan.merged(source)
    sizes = tuple(int(np.prod([source[dim] for dim in axis.dims])) for axis in axes)
    value = site.reshape(operand, row_major(operand.array, sizes))
    value = _sliced(site, value, axes)
    backwards = tuple(k for k, axis in enumerate(axes) if axis.stride < 0)
    if backwards:
        value = site.make("reverse", value, shape=value.shape, dimensions=backwards)
    places = _places(gather, dims, axes)
    kept = tuple(k for k, place in enumerate(places) if place is not None)
    shape = row_major(value.array, tuple(value.array.dims[k] for k in kept))
    value = site.reshape(value, shape)
    target = [place for place in places if place is not None]
    order = inverse_permutation(target)
    value = site.transpose(value, order)
    target = sorted(target)
    dimensions = tuple(
        plan.batch[_batch_number(k, dims)] if k not in dims.offset_dims else gather.array.dims[k]
        for k in range(gather.array.rank)
    )
    shape = gather.array
    if dimensions != shape.dims:
        shape = row_major(shape, dimensions)
    return _spread(site, value, tuple(target), shape)


def _sliced(site: Site, value: Instruction, axes: tuple[_Axis, ...]) -> Instruction:
    ranges: list[SliceRange] = []
    for axis in axes:
        last = axis.offset + (axis.count - 1) * axis.stride
        low, high = min(axis.offset, last), max(axis.offset, last)
        ranges.append(SliceRange(low, high + 1, abs(axis.stride) if axis.count > 1 else 1))
    counts = tuple(axis.count for axis in axes)
    if counts == value.array.dims:
        return value
    shape = row_major(value.array, counts)
    return site.make("slice", value, shape=shape, slice=tuple(ranges))


def _places(gather: Instruction, dims: GatherDims, axes: tuple[_Axis, ...]) -> list[int | None]:
    """The result dimension of each axis; None for one that is not in the result by itself."""
    offsets = dict(zip(dims.window_dims(len(dims.slice_sizes)), dims.offset_dims, strict=True))
    batch = dims.batch_dims(gather.array.rank)
    places: list[int | None] = []
    for axis in axes:
        if axis.moved_by is not None:
            places.append(batch[axis.moved_by])
        else:
            places.append(offsets.get(axis.dims[0]))
    return places


def _batch_number(place: int, dims: GatherDims) -> int:
    return place - sum(offset < place for offset in dims.offset_dims)


def _progressions(values: Array) -> list[tuple[int, int]]:
    """Cut a list into arithmetic progressions, each as long as it can be; pairs of begin and end."""
    cuts: list[tuple[int, int]] = []
    begin, count = 0, len(values)
    while begin < count:
        end = begin + 1
        if end < count:
            step = values[end] - values[begin]
            while step and end < count and values[end] - values[end - 1] == step:
                end += 1
        cuts.append((begin, end))
        begin = end
    return cuts
