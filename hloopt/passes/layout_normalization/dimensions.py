"""Dimension numbers of arrays whose dimensions stand in another order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from hloopt.analysis.reshapes import factors
from hloopt.passes.layout_normalization.rewriter import Order, positions
from hloopt.types import ConvDims, Dims, GatherDims, ScatterDims

__all__ = ["conv_labels", "gather_order", "regrouped", "scatter_order"]


def conv_labels(labels: ConvDims, lhs: Order, rhs: Order, result: Order) -> ConvDims:
    """The labels of a convolution of arrays in these orders."""
    moved = replace(
        labels,
        input_batch=lhs.index(labels.input_batch),
        input_feature=lhs.index(labels.input_feature),
        input_spatial=positions(lhs, labels.input_spatial),
        kernel_input_feature=rhs.index(labels.kernel_input_feature),
        kernel_output_feature=rhs.index(labels.kernel_output_feature),
        kernel_spatial=positions(rhs, labels.kernel_spatial),
        output_batch=result.index(labels.output_batch),
        output_feature=result.index(labels.output_feature),
        output_spatial=positions(result, labels.output_spatial),
    )
    text = "{}_{}->{}".format(
        _labels("bf", moved.input_batch, moved.input_feature, moved.input_spatial),
        _labels(
            "io", moved.kernel_input_feature, moved.kernel_output_feature, moved.kernel_spatial
        ),
        _labels("bf", moved.output_batch, moved.output_feature, moved.output_spatial),
    )
    return replace(moved, text=text)


def _labels(letters: str, first: int, second: int, spatial: Dims) -> str:
    places = {first: letters[0], second: letters[1]}
    places.update({dimension: str(axis) for axis, dimension in enumerate(spatial)})
    return "".join(places[dimension] for dimension in range(len(places)))


def gather_order(
    dims: GatherDims, order: Order, indices: Order, declared: Order
) -> tuple[dict[str, object], Order]:
    """The attributes of a gather of operands in these orders, and the order of its result.

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
    attributes: dict[str, object] = {
        "offset_dims": tuple(at for at, window in enumerate(pattern) if window),
        "collapsed_slice_dims": tuple(sorted(positions(order, dims.collapsed_slice_dims))),
        "start_index_map": positions(order, dims.start_index_map),
        "operand_batching_dims": left,
        "start_indices_batching_dims": right,
        "index_vector_dim": _vector_dim(dims.index_vector_dim, indices),
        "slice_sizes": tuple(dims.slice_sizes[dimension] for dimension in order),
    }
    return attributes, result


def _paired(lefts: Dims, rights: Dims) -> tuple[Dims, Dims]:
    """Pairs of numbers in ascending order, as two lists."""
    pairs = sorted(zip(lefts, rights, strict=True))
    return tuple(left for left, _ in pairs), tuple(right for _, right in pairs)


def scatter_order(
    dims: ScatterDims, order: Order, updates: Order
) -> tuple[dict[str, object], Order]:
    """The attributes of a scatter into operands in this order, and the order its updates need.

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
    attributes: dict[str, object] = {
        "update_window_dims": tuple(at for at, window in enumerate(pattern) if window),
        "inserted_window_dims": tuple(sorted(positions(order, dims.inserted_window_dims))),
        "scatter_dims_to_operand_dims": positions(order, dims.scatter_dims_to_operand_dims),
        "input_batching_dims": left,
        "scatter_indices_batching_dims": right,
    }
    return attributes, turned


def _woven(
    pattern: Sequence[bool],
    windows: Dims,
    order: Order,
    dropped: frozenset[int],
    indices: Order,
    vector: int,
) -> Order:
    """Window dimensions in the operand's order and batch dimensions in that of the indices."""
    kept = [dimension for dimension in order if dimension not in dropped]
    numbers = {dimension: at for at, dimension in enumerate(sorted(kept))}
    of_window = iter([windows[numbers[dimension]] for dimension in kept])
    batches = [dimension for dimension in range(len(pattern)) if dimension not in windows]
    axes = [dimension for dimension in indices if dimension != vector]
    ranks = {dimension: at for at, dimension in enumerate(sorted(axes))}
    of_batch = iter([batches[ranks[dimension]] for dimension in axes])
    return tuple(next(of_window) if window else next(of_batch) for window in pattern)


def _vector_dim(vector: int, indices: Order) -> int:
    return indices.index(vector) if vector < len(indices) else vector


def regrouped(before: Order, after: Order, order: Order, declared: Order) -> Order | None:
    """The order of a reshape's result such that the bytes of its operand stay where they are.

    ``before`` and ``after`` are sizes, ``order`` is that of the operand; ``declared`` where it is one such.
    None where the operand's order tears dimensions apart that the reshape takes together.
    """
    if 0 in before or prod(before) != prod(after):
        return None
    groups = factors(before, after)
    home = {dimension: number for number, (left, _) in enumerate(groups) for dimension in left}
    sequence = [dimension for dimension in order if before[dimension] != 1]
    found: list[int] = []
    at = 0
    while at < len(sequence):
        left, right = groups[home[sequence[at]]]
        if sequence[at : at + len(left)] != left:
            return None
        found += right
        at += len(left)
    if [dimension for dimension in declared if after[dimension] != 1] == found:
        return declared
    return tuple(_with_ones(found, after))


def _with_ones(found: list[int], sizes: Order) -> Iterator[int]:
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
