"""Dimension numbers of arrays whose dimensions stand in another order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from hloopt.analysis.layout import carried
from hloopt.passes.layout_normalization.rewriter import positions
from hloopt.rewrite.dimension_numbers import moved_labels
from hloopt.types import ConvDims, Dims, GatherDims, ScatterDims, inverse_permutation

__all__ = ["conv_labels", "gather_order", "ranks", "regrouped", "scatter_order"]


def conv_labels(labels: ConvDims, lhs: Dims, rhs: Dims, result: Dims) -> ConvDims:
    """The labels of a convolution of arrays in these orders."""
    for side, order in (("input", lhs), ("kernel", rhs), ("output", result)):
        labels = moved_labels(labels, side, inverse_permutation(order))
    return labels


def gather_order(
    dims: GatherDims, order: Dims, indices: Dims, declared: Dims
) -> tuple[GatherDims, Dims]:
    """The dimensions of a gather of operands in these orders, and the order of its result.

    Batch and offset dimensions alternate as they do in the result's layout; each kind comes in the order
    in which its operand has it.
    """
    pattern = [dimension in dims.offset_dims for dimension in declared]
    result = _woven(
        pattern, dims.offset_dims, order, dims.dropped_dims, indices, dims.index_vector_dim
    )
    left, right = _paired(
        positions(order, dims.operand_batching_dims),
        positions(indices, dims.start_indices_batching_dims),
    )
    turned = GatherDims(
        tuple(at for at, window in enumerate(pattern) if window),
        tuple(sorted(positions(order, dims.collapsed_slice_dims))),
        positions(order, dims.start_index_map),
        left,
        right,
        _vector_dim(dims.index_vector_dim, indices),
        tuple(dims.slice_sizes[dimension] for dimension in order),
    )
    return turned, result


def _paired(lefts: Dims, rights: Dims) -> tuple[Dims, Dims]:
    """Pairs of numbers in ascending order, as two lists."""
    pairs = sorted(zip(lefts, rights, strict=True))
    return tuple(left for left, _ in pairs), tuple(right for _, right in pairs)


def scatter_order(dims: ScatterDims, order: Dims, updates: Dims) -> tuple[ScatterDims, Dims]:
    """The dimensions of a scatter into operands in this order, and the order its updates need.

    The indices are descending; scatter and window dimensions alternate as they do in ``updates``.
    """
    pattern = [dimension in dims.update_window_dims for dimension in updates]
    count = len(updates) - len(dims.update_window_dims) + 1
    turned = _woven(
        pattern, dims.update_window_dims, order, dims.dropped_dims, tuple(range(count)), count - 1
    )
    left, right = _paired(
        positions(order, dims.input_batching_dims), dims.scatter_indices_batching_dims
    )
    changed = ScatterDims(
        tuple(at for at, window in enumerate(pattern) if window),
        tuple(sorted(positions(order, dims.inserted_window_dims))),
        positions(order, dims.scatter_dims_to_operand_dims),
        left,
        right,
        dims.index_vector_dim,
    )
    return changed, turned


def ranks(dimensions: Sequence[int]) -> Dims:
    """The place of each of some dimensions among them in ascending order."""
    number = {dimension: at for at, dimension in enumerate(sorted(dimensions))}
    return tuple(number[dimension] for dimension in dimensions)


def _woven(
    pattern: Sequence[bool],
    windows: Dims,
    order: Dims,
    dropped: frozenset[int],
    indices: Dims,
    vector: int,
) -> Dims:
    """Window dimensions in the operand's order and batch dimensions in that of the indices."""
    kept = [dimension for dimension in order if dimension not in dropped]
    of_window = iter([windows[rank] for rank in ranks(kept)])
    batches = [dimension for dimension in range(len(pattern)) if dimension not in windows]
    axes = [dimension for dimension in indices if dimension != vector]
    of_batch = iter([batches[rank] for rank in ranks(axes)])
    return tuple(next(of_window) if window else next(of_batch) for window in pattern)


def _vector_dim(vector: int, indices: Dims) -> int:
    return indices.index(vector) if vector < len(indices) else vector


def regrouped(before: Dims, after: Dims, order: Dims, declared: Dims) -> Dims | None:
    """The order of a reshape's result such that the bytes of its operand stay where they are.

    ``before`` and ``after`` are sizes, ``order`` is that of the operand; ``declared`` where it is one such.
    None where the operand's order tears dimensions apart that the reshape takes together.
    """
    if 0 in before or prod(before) != prod(after):
        return None
    found = carried(before, after, order)
    if [dimension for dimension in declared if after[dimension] != 1] == found:
        return declared
    return None if found is None else tuple(_with_ones(found, after))


def _with_ones(found: list[int], sizes: Dims) -> Iterator[int]:
    """Put dimensions of size 1 behind the ones they follow in the array."""
    following: dict[int, list[int]] = {}
    last = -1
    for dimension, size in enumerate(sizes):
        if size == 1:
            following.setdefault(last, []).append(dimension)
        else:
            last = dimension
    yield from following.get(-1, ())
    for dimension in found:
        yield dimension
        yield from following.get(dimension, ())
