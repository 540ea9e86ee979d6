"""Shapes of gather and scatter."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.ops._regions import check_combiner
from hloopt.ops.opdef import InferArgs
from hloopt.ops.shapes import (
    array_operand,
    array_operands,
    attribute,
    braces,
    check_dimensions,
    dims_agree,
    error,
    like,
    require_one_precision,
    require_same,
    result,
    size_agrees,
    tuple_of,
)
from hloopt.types import UNBOUNDED, ArrayShape, GatherDims, ScatterDims, Shape

__all__ = ["infer_gather", "infer_scatter"]


def infer_gather(args: InferArgs) -> Shape:
    """Batch dimensions of the indices, with the slice's dimensions put in at ``offset_dims``."""
    operand, indices = array_operand(args, 0), array_operand(args, 1)
    attribute(args, "index_vector_dim")
    attribute(args, "slice_sizes")
    dims = GatherDims.of(args.attributes)
    _check_index_array(
        args, indices, dims.index_vector_dim, "start_index_map", dims.start_index_map
    )
    check_dimensions(args, "start_index_map", dims.start_index_map, operand.rank)
    _check_batching(
        args,
        operand,
        indices,
        dims.index_vector_dim,
        ("operand_batching_dims", dims.operand_batching_dims),
        ("start_indices_batching_dims", dims.start_indices_batching_dims),
        ("start_index_map", dims.start_index_map),
    )
    _check_slice_sizes(args, operand, dims)
    window = dims.kept_sizes
    if len(dims.offset_dims) != len(window):
        raise error(
            args,
            f"offset_dims={braces(dims.offset_dims)} must have {len(window)} entries, one for each "
            "dimension that is neither collapsed nor batching",
        )
    batch = dims.batch_of(indices.dims)
    rank = len(batch) + len(window)
    check_dimensions(args, "offset_dims", dims.offset_dims, rank)
    _check_sorted(args, "offset_dims", dims.offset_dims)
    offsets = set(dims.offset_dims)
    marks = indices.dynamic or (False,) * indices.rank
    of_batch = zip(batch, dims.batch_of(marks), strict=True)
    of_window = zip(window, _window_marks(operand, dims), strict=True)
    placed = [next(of_window if dim in offsets else of_batch) for dim in range(rank)]
    return result(
        args, operand.dtype, [size for size, _ in placed], tuple(mark for _, mark in placed)
    )


def _window_marks(operand: ArrayShape, dims: GatherDims) -> list[bool]:
    """Which offset dimensions are dynamic: whole slices of dynamic dimensions."""
    marks = operand.dynamic or (False,) * operand.rank
    return [
        marks[dim] and dims.slice_sizes[dim] == operand.dims[dim]
        for dim in dims.window_dims(operand.rank)
    ]


def _check_slice_sizes(args: InferArgs, operand: ArrayShape, dims: GatherDims) -> None:
    if len(dims.slice_sizes) != operand.rank:
        raise error(
            args, f"slice_sizes={braces(dims.slice_sizes)} must have {operand.rank} entries"
        )
    check_dimensions(args, "collapsed_slice_dims", dims.collapsed_slice_dims, operand.rank)
    _check_sorted(args, "collapsed_slice_dims", dims.collapsed_slice_dims)
    for dim, (size, whole) in enumerate(zip(dims.slice_sizes, operand.dims, strict=True)):
        if size < 0 or (whole != UNBOUNDED and size > whole):
            raise error(args, f"slice size {size} of dimension {dim} is not in [0, {whole}]")
    for name, listed in (
        ("collapsed_slice_dims", dims.collapsed_slice_dims),
        ("operand_batching_dims", dims.operand_batching_dims),
    ):
        for dim in listed:
            if dims.slice_sizes[dim] > 1:
                raise error(
                    args,
                    f"{name}={braces(listed)}: dimension {dim} has slice size "
                    f"{dims.slice_sizes[dim]}, not 1",
                )
    both = set(dims.collapsed_slice_dims) & set(dims.operand_batching_dims)
    if both:
        raise error(args, f"dimensions {braces(sorted(both))} are both collapsed and batching")


def infer_scatter(args: InferArgs) -> Shape:
    """The operands' shapes; ``2n + 1`` operands: n inputs, the indices, n updates."""
    count, rest = divmod(len(args.operands) - 1, 2)
    if rest or count < 1:
        raise error(args, f"{len(args.operands)} operands are not n inputs, indices, n updates")
    inputs = array_operands(args, 0, count)
    indices = array_operand(args, count)
    updates = array_operands(args, count + 1)
    attribute(args, "index_vector_dim")
    dims = ScatterDims.of(args.attributes)
    require_same(args, inputs, "input")
    require_same(args, updates, "update")
    require_one_precision(args)
    for index, (source, update) in enumerate(zip(inputs, updates, strict=True)):
        if source.dtype is not update.dtype:
            raise error(
                args,
                f"update {index} has element type {update.dtype.name}, its input has "
                f"{source.dtype.name}; they must be equal",
            )
    _check_scatter_dims(args, inputs[0], indices, updates[0], dims)
    check_combiner(args, "to_apply", inputs, updates, any_precision=True)
    if count == 1:
        return like(args, inputs[0])
    return tuple_of(args, inputs)


def _check_scatter_dims(
    args: InferArgs,
    source: ArrayShape,
    indices: ArrayShape,
    update: ArrayShape,
    dims: ScatterDims,
) -> None:
    mapped = dims.scatter_dims_to_operand_dims
    vector = dims.index_vector_dim
    _check_index_array(args, indices, vector, "scatter_dims_to_operand_dims", mapped)
    check_dimensions(args, "scatter_dims_to_operand_dims", mapped, source.rank)
    _check_batching(
        args,
        source,
        indices,
        vector,
        ("input_batching_dims", dims.input_batching_dims),
        ("scatter_indices_batching_dims", dims.scatter_indices_batching_dims),
        ("scatter_dims_to_operand_dims", mapped),
    )
    check_dimensions(args, "inserted_window_dims", dims.inserted_window_dims, source.rank)
    _check_sorted(args, "inserted_window_dims", dims.inserted_window_dims)
    check_dimensions(args, "update_window_dims", dims.update_window_dims, update.rank)
    _check_sorted(args, "update_window_dims", dims.update_window_dims)
    kept = dims.window_dims(source.rank)
    if len(kept) != len(dims.update_window_dims):
        raise error(
            args,
            f"update_window_dims={braces(dims.update_window_dims)} must have {len(kept)} entries, "
            "one for each input dimension that is neither inserted nor batching",
        )
    for dim, window in zip(kept, dims.update_window_dims, strict=True):
        size, whole = update.dims[window], source.dims[dim]
        if UNBOUNDED not in (size, whole) and size > whole:
            raise error(
                args,
                f"update dimension {window} has size {size}, input dimension {dim} only {whole}",
            )
    scattered = [update.dims[dim] for dim in dims.batch_dims(update.rank)]
    batch = list(dims.batch_of(indices.dims))
    if not dims_agree(scattered, batch):
        raise error(
            args,
            f"the update's scatter dimensions have sizes {scattered}, the indices give {batch}",
        )


def _check_index_array(
    args: InferArgs, indices: ArrayShape, vector: int, name: str, mapped: Sequence[int]
) -> None:
    if not indices.dtype.is_integer:
        raise error(args, f"indices have type {indices.dtype.name}, not an integer")
    if not 0 <= vector <= indices.rank:
        raise error(args, f"index_vector_dim={vector} is not in [0, {indices.rank}]")
    length = indices.dims[vector] if vector < indices.rank else 1
    if not size_agrees(length, len(mapped)):
        raise error(
            args,
            f"{name}={braces(mapped)} must have {length} entries, the size of the indices' "
            f"dimension {vector}",
        )


def _check_batching(
    args: InferArgs,
    operand: ArrayShape,
    indices: ArrayShape,
    vector: int,
    operand_side: tuple[str, tuple[int, ...]],
    index_side: tuple[str, tuple[int, ...]],
    mapped: tuple[str, tuple[int, ...]],
) -> None:
    name, dims = operand_side
    index_name, index_dims = index_side
    check_dimensions(args, name, dims, operand.rank)
    _check_sorted(args, name, dims)
    check_dimensions(args, index_name, index_dims, indices.rank)
    if len(dims) != len(index_dims):
        raise error(
            args,
            f"{name}={braces(dims)} and {index_name}={braces(index_dims)} must be of equal length",
        )
    if vector in index_dims:
        raise error(args, f"{index_name}={braces(index_dims)} names index_vector_dim={vector}")
    both = set(dims) & set(mapped[1])
    if both:
        raise error(args, f"dimensions {braces(sorted(both))} are both in {name} and {mapped[0]}")


def _check_sorted(args: InferArgs, name: str, dims: Sequence[int]) -> None:
    if list(dims) != sorted(dims):
        raise error(args, f"{name}={braces(dims)} must be in increasing order")
