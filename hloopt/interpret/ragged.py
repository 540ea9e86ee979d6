"""ragged-dot and scaled-dot: products with groups of rows, and with a scale for each block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from hloopt.interpret.context import Check, Context, Evaluator, Value, array_of, arrays_of
from hloopt.interpret.linear import Product, check_precision, dot
from hloopt.interpret.movement import broadcast
from hloopt.ir import Instruction
from hloopt.types import Array, DotDims

__all__ = ["CHECKS", "EVALUATORS", "ragged_dot", "rescaled"]


def ragged_dot(
    lhs: Array, rhs: Array, group_sizes: Array, dims: DotDims, ragged: int, group_dim: int | None
) -> Array:
    """A dot in which ``lhs`` is cut along ``ragged`` into consecutive groups.

    A free ragged dimension: each row meets ``rhs`` at its group's index of ``group_dim``.  A
    contracting one: one product for each group, in a new first dimension.  A batch one: a plain
    dot.  Positions past the last group give 0.  ``group_sizes`` [..., groups] may differ for
    each index of the batch dimensions and of the dimensions before ``ragged`` that play the same
    part; a negative one is 0.
    """
    if ragged in dims.lhs_contracting:
        return _contracting(lhs, rhs, group_sizes, dims, ragged)
    order = [*dims.lhs_batch, *dims.lhs_free(lhs.ndim)]
    groups = list(_groups(lhs, group_sizes, dims, ragged))
    if ragged in dims.lhs_batch:
        total = dot(lhs, rhs, dims)
        inside = np.logical_or.reduce([mask for _, mask in groups])
        places = [order.index(d) for d in groups[0][0]]
        return np.where(broadcast(inside, places, total.shape), total, total.dtype.type(0))
    assert group_dim is not None

    def shifted(axes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(axis - (axis > group_dim) for axis in axes)

    inner = DotDims(
        dims.lhs_contracting, shifted(dims.rhs_contracting), dims.lhs_batch, shifted(dims.rhs_batch)
    )
    result: Array | None = None
    for number, (axes, mask) in enumerate(groups):
        total = dot(lhs, rhs.take(number, axis=group_dim), inner)
        if result is None:
            result = np.zeros_like(total)
        places = [order.index(d) for d in axes]
        result = np.where(broadcast(mask, places, total.shape), total, result)
    assert result is not None
    return result


def _contracting(lhs: Array, rhs: Array, group_sizes: Array, dims: DotDims, ragged: int) -> Array:
    partner = dict(zip(dims.lhs_contracting, dims.rhs_contracting, strict=True))
    partner.update(zip(dims.lhs_batch, dims.rhs_batch, strict=True))
    parts = []
    for axes, mask in _groups(lhs, group_sizes, dims, ragged):
        # Both sides are cleared, so that an infinity of another group meets no zero.
        left = np.where(broadcast(mask, axes, lhs.shape), lhs, lhs.dtype.type(0))
        places = [partner[d] for d in axes]
        right = np.where(broadcast(mask, places, rhs.shape), rhs, rhs.dtype.type(0))
        parts.append(dot(left, right, dims))
    return np.stack(parts)


def _groups(
    lhs: Array, group_sizes: Array, dims: DotDims, ragged: int
) -> Iterator[tuple[list[int], Array]]:
    """For each group the dimensions of ``lhs`` that its mask has, and the mask."""
    if ragged in dims.lhs_contracting:
        before = [*dims.lhs_batch, *dims.lhs_contracting[: dims.lhs_contracting.index(ragged)]]
    elif ragged in dims.lhs_batch:
        before = [*dims.lhs_batch[: dims.lhs_batch.index(ragged)]]
    else:
        before = [*dims.lhs_batch, *dims.lhs_free(ragged)]
    if group_sizes.ndim == 1:
        before = []
    sizes = np.clip(group_sizes.astype(np.int64), 0, lhs.shape[ragged])
    ends = np.minimum(np.cumsum(sizes, axis=-1), lhs.shape[ragged])
    starts = np.concatenate([np.zeros_like(ends[..., :1]), ends[..., :-1]], axis=-1)
    position = np.arange(lhs.shape[ragged])
    for number in range(group_sizes.shape[-1]):
        start, end = starts[..., number, np.newaxis], ends[..., number, np.newaxis]
        yield [*before, ragged], (position >= start) & (position < end)


def rescaled(array: Array, scale: Array) -> Array:
    """Each element times the scale of its block; a scale of rank 0 stands for 1."""
    if not scale.ndim:
        return array
    for axis, (size, blocks) in enumerate(zip(array.shape, scale.shape, strict=True)):
        if size != blocks:
            scale = scale.repeat(size // blocks, axis=axis)
    return np.asarray(array * scale)


def _ragged_dot(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    product = Product.of(instruction, values, context)
    (ragged,) = instruction.attributes["lhs_ragged_dims"]
    group_dims = instruction.attributes.get("rhs_group_dims", ())
    total = ragged_dot(
        product.lhs,
        product.rhs,
        array_of(values[2]),
        DotDims.of(instruction.attributes),
        ragged,
        group_dims[0] if group_dims else None,
    )
    return product.result(total, instruction, context)


def _scaled_dot(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    arrays = [array.astype(np.float32) for array in arrays_of(values)]
    lhs = rescaled(arrays[0], arrays[2])
    rhs = rescaled(arrays[1], arrays[3]) if len(arrays) > 3 else arrays[1]
    total = dot(lhs, rhs, DotDims.of(instruction.attributes))
    return context.round(total, instruction.array.dtype)


CHECKS: Mapping[str, Check] = dict.fromkeys(("ragged-dot", "scaled-dot"), check_precision)
EVALUATORS: Mapping[str, Evaluator] = {"ragged-dot": _ragged_dot, "scaled-dot": _scaled_dot}
