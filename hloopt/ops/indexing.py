"""Ops that read or write a part of an array: slices, gather, scatter, dimension sizes."""

from __future__ import annotations

from hloopt.ops._gather import infer_gather, infer_scatter
from hloopt.ops.attributes import DIMENSIONS, TO_APPLY, integers
from hloopt.ops.opdef import MANY, InferArgs, Kind, family
from hloopt.ops.shapes import (
    S32,
    array_operand,
    attribute,
    braces,
    check_dimensions,
    error,
    like,
    require_same_dtype,
    result,
)
from hloopt.types import UNBOUNDED, ArrayShape, Shape

__all__ = ["ROWS"]

_LARGEST_SIZE = 2**31 - 1


def _slice(args: InferArgs) -> Shape:
    """The number of elements taken in each dimension."""
    source = array_operand(args, 0)
    ranges = attribute(args, "slice")
    if len(ranges) != source.rank:
        raise error(args, f"slice has {len(ranges)} entries for rank {source.rank}")
    for dim, (size, entry) in enumerate(zip(source.dims, ranges, strict=True)):
        text = f"[{entry.start}:{entry.limit}:{entry.stride}] of dimension {dim}"
        if entry.stride < 1:
            raise error(args, f"{text}: the stride must be positive")
        if not 0 <= entry.start <= entry.limit:
            raise error(args, f"{text}: the start must be in [0, {entry.limit}]")
        if size != UNBOUNDED and entry.limit > size:
            raise error(args, f"{text}: the limit is above the size {size}")
    sizes = [entry.size for entry in ranges]
    # One element of a dynamic dimension is always there.
    marks = (
        mark and size != 1 and whole != UNBOUNDED
        for mark, size, whole in zip(source.dynamic, sizes, source.dims, strict=False)
    )
    return result(args, source.dtype, sizes, tuple(marks))


def _check_starts(args: InferArgs, rank: int, first: int) -> None:
    """One integer scalar per dimension, or a single vector with one element per dimension."""
    starts = [array_operand(args, index) for index in range(first, len(args.operands))]
    for index, start in enumerate(starts):
        if not start.dtype.is_integer:
            raise error(args, f"start index {index} has type {start.dtype.name}, not an integer")
    if len(starts) == 1 and starts[0].rank == 1:
        count = starts[0].dims[0]
    else:
        count = len(starts)
        for index, start in enumerate(starts):
            if start.rank:
                raise error(args, f"start index {index} has shape {start}, not a scalar")
    if count != rank:
        raise error(args, f"{count} start indices are given for rank {rank}")
    require_same_dtype(args, starts or [array_operand(args, 0)], "start index")


def _dynamic_slice(args: InferArgs) -> Shape:
    """``dynamic_slice_sizes`` elements in each dimension."""
    source = array_operand(args, 0)
    sizes = attribute(args, "dynamic_slice_sizes")
    if len(sizes) != source.rank:
        raise error(args, f"dynamic_slice_sizes={braces(sizes)} must have {source.rank} entries")
    for dim, (size, whole) in enumerate(zip(sizes, source.dims, strict=True)):
        if size < 0 or (whole != UNBOUNDED and size > whole):
            raise error(
                args,
                f"dynamic_slice_sizes={braces(sizes)}: {size} is not in [0, {whole}], "
                f"the size of dimension {dim}",
            )
    _check_starts(args, source.rank, 1)
    marks = tuple(
        mark and size == whole and size > 1
        for mark, size, whole in zip(source.dynamic, sizes, source.dims, strict=False)
    )
    return result(args, source.dtype, sizes, marks)


def _dynamic_update_slice(args: InferArgs) -> Shape:
    """The operand's shape; the update fits into it."""
    source, update = array_operand(args, 0), array_operand(args, 1)
    require_same_dtype(args, (source, update))
    if update.rank != source.rank:
        raise error(args, f"update {update} must have the rank of operand {source}")
    for dim, (size, whole) in enumerate(zip(update.dims, source.dims, strict=True)):
        if UNBOUNDED not in (size, whole) and size > whole:
            raise error(
                args, f"dimension {dim} of the update has size {size}, the operand only {whole}"
            )
    _check_starts(args, source.rank, 2)
    marks = list(source.dynamic or (False,) * source.rank)
    for dim, mark in enumerate(update.dynamic):
        marks[dim] |= mark and update.dims[dim] == source.dims[dim]
    return result(args, source.dtype, source.dims, marks)


def _one_dimension(args: InferArgs) -> tuple[ArrayShape, int]:
    source = array_operand(args, 0)
    dims = attribute(args, "dimensions")
    if len(dims) != 1:
        raise error(args, f"dimensions={braces(dims)} must name one dimension")
    check_dimensions(args, "dimensions", dims, source.rank)
    if source.dims[dims[0]] > _LARGEST_SIZE:
        raise error(
            args,
            f"dimension {dims[0]} of {source} has a size above {_LARGEST_SIZE}, which s32 lacks",
        )
    return source, dims[0]


def _get_dimension_size(args: InferArgs) -> Shape:
    """An s32 scalar."""
    _one_dimension(args)
    return result(args, S32, ())


def _set_dimension_size(args: InferArgs) -> Shape:
    """The operand's shape with one dimension bounded."""
    source, dim = _one_dimension(args)
    size = array_operand(args, 1)
    if size.rank or size.dtype is not S32:
        raise error(args, f"the size has shape {size}, not s32[]")
    marks = source.dynamic or (False,) * source.rank
    dynamic = tuple(mark or index == dim for index, mark in enumerate(marks))
    return like(args, ArrayShape(source.dtype, source.dims, source.layout, dynamic))


_row = family("indexing")
_SORTED = Kind.BOOL("indices_are_sorted")
_VECTOR_DIM = Kind.INT("index_vector_dim", required=True)

ROWS = (
    _row(
        "dynamic-slice",
        (1, MANY),
        _dynamic_slice,
        *integers("dynamic_slice_sizes"),
        moves="indexes",
        cheap="always",
        elemental=True,
        doc="a slice whose start is an operand; the start is clamped so that the slice fits",
    ),
    _row(
        "dynamic-update-slice",
        (2, MANY),
        _dynamic_update_slice,
        moves="indexes",
        cheap="always",
        elemental=True,
        hero=True,
        doc="the operand with a slice replaced; the start is clamped so that the slice fits",
    ),
    _row(
        "gather",
        2,
        infer_gather,
        *integers("offset_dims", "collapsed_slice_dims", "start_index_map"),
        Kind.INTS("operand_batching_dims"),
        Kind.INTS("start_indices_batching_dims"),
        _VECTOR_DIM,
        *integers("slice_sizes"),
        _SORTED,
        moves="indexes",
        elemental=True,
        doc="slices of the operand at the places an index array names",
    ),
    _row(
        "get-dimension-size",
        1,
        _get_dimension_size,
        DIMENSIONS,
        elemental=True,
        doc="the size of a dimension, at run time where it is bounded",
    ),
    _row(
        "scatter",
        (3, MANY),
        infer_scatter,
        *integers("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims"),
        Kind.INTS("input_batching_dims"),
        Kind.INTS("scatter_indices_batching_dims"),
        _VECTOR_DIM,
        _SORTED,
        Kind.BOOL("unique_indices"),
        TO_APPLY,
        calls="elements",
        hero=True,
        doc="updates combined into the operand at the places an index array names",
    ),
    _row(
        "set-dimension-size",
        2,
        _set_dimension_size,
        DIMENSIONS,
        doc="say how much of a dimension counts",
    ),
    _row(
        "slice",
        1,
        _slice,
        Kind.SLICES("slice", required=True),
        inferable=False,
        moves="selects",
        cheap="always",
        elemental=True,
        doc="every stride-th element from start to limit in each dimension",
    ),
)
