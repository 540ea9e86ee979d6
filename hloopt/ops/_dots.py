"""Shapes of dot, ragged-dot and scaled-dot."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.ops.opdef import InferArgs
from hloopt.ops.shapes import (
    array_operand,
    attribute,
    braces,
    check_dimensions,
    error,
    result,
    size_agrees,
)
from hloopt.types import ArrayShape, DotDims, DType, Shape

__all__ = ["infer_dot", "infer_ragged_dot", "infer_scaled_dot", "product_type"]


def product_type(args: InferArgs, lhs: ArrayShape, rhs: ArrayShape) -> DType:
    """The declared element type (the preferred one of the op), else the wider of the operands'."""
    if isinstance(args.declared, ArrayShape) and args.declared.dtype.is_array:
        return args.declared.dtype
    if lhs.dtype is rhs.dtype:
        return lhs.dtype
    if lhs.dtype.kind != rhs.dtype.kind or lhs.dtype.bits == rhs.dtype.bits:
        raise error(
            args,
            f"operands {lhs} and {rhs} have no common element type; the result shape must be "
            "written",
        )
    return lhs.dtype if lhs.dtype.bits > rhs.dtype.bits else rhs.dtype


def _free(rank: int, *taken: Sequence[int]) -> list[int]:
    used = {dim for dims in taken for dim in dims}
    return [dim for dim in range(rank) if dim not in used]


def _check_pairs(
    args: InferArgs, lhs: ArrayShape, rhs: ArrayShape, dims: DotDims, *, sizes: bool = True
) -> None:
    """Batch and contracting dimensions exist, are distinct and agree pairwise in size."""
    for name, batch, contracting, shape in (
        ("lhs", dims.lhs_batch, dims.lhs_contracting, lhs),
        ("rhs", dims.rhs_batch, dims.rhs_contracting, rhs),
    ):
        check_dimensions(args, f"{name}_batch_dims", batch, shape.rank)
        check_dimensions(args, f"{name}_contracting_dims", contracting, shape.rank)
        both = set(batch) & set(contracting)
        if both:
            raise error(
                args, f"{name} dimensions {braces(sorted(both))} are both batch and contracting"
            )
    for name, left, right in (
        ("batch", dims.lhs_batch, dims.rhs_batch),
        ("contracting", dims.lhs_contracting, dims.rhs_contracting),
    ):
        if len(left) != len(right):
            raise error(
                args,
                f"lhs_{name}_dims={braces(left)} and rhs_{name}_dims={braces(right)} must be of "
                "equal length",
            )
        for i, j in zip(left, right, strict=True):
            if sizes and not size_agrees(lhs.dims[i], rhs.dims[j]):
                raise error(
                    args,
                    f"{name} dimensions lhs {i} and rhs {j} have sizes {lhs.dims[i]} and "
                    f"{rhs.dims[j]}; they must be equal",
                )


def infer_dot(args: InferArgs) -> Shape:
    """Batch dimensions, then the free ones of lhs, then of rhs."""
    lhs, rhs = array_operand(args, 0), array_operand(args, 1)
    dims = DotDims.of(args.attributes)
    _check_pairs(args, lhs, rhs, dims)
    sizes = (
        *(lhs.dims[dim] for dim in dims.lhs_batch),
        *(lhs.dims[dim] for dim in _free(lhs.rank, dims.lhs_batch, dims.lhs_contracting)),
        *(rhs.dims[dim] for dim in _free(rhs.rank, dims.rhs_batch, dims.rhs_contracting)),
    )
    return result(args, product_type(args, lhs, rhs), sizes)


def infer_ragged_dot(args: InferArgs) -> Shape:
    """As a dot; a ragged free dimension takes the group dimension of rhs away, a ragged contracting
    one puts the number of groups in front.
    """
    lhs, rhs, groups = (array_operand(args, index) for index in range(3))
    dims = DotDims.of(args.attributes)
    ragged = attribute(args, "lhs_ragged_dims")
    grouped = args.attributes.get("rhs_group_dims", ())
    if len(ragged) != 1:
        raise error(args, f"lhs_ragged_dims={braces(ragged)} must name one dimension")
    check_dimensions(args, "lhs_ragged_dims", ragged, lhs.rank)
    check_dimensions(args, "rhs_group_dims", grouped, rhs.rank)
    if not groups.dtype.is_integer or not groups.rank:
        raise error(args, f"the group sizes have shape {groups}, not an array of integers")
    _check_pairs(args, lhs, rhs, dims)
    free_ragged = ragged[0] not in (*dims.lhs_batch, *dims.lhs_contracting)
    if len(grouped) != int(free_ragged):
        raise error(
            args,
            f"rhs_group_dims={braces(grouped)} must have {int(free_ragged)} entries for ragged "
            f"dimension {ragged[0]}",
        )
    count = groups.dims[-1]
    if grouped and not size_agrees(rhs.dims[grouped[0]], count):
        raise error(
            args,
            f"rhs dimension {grouped[0]} has size {rhs.dims[grouped[0]]}, there are {count} groups",
        )
    front = (count,) if ragged[0] in dims.lhs_contracting else ()
    sizes = (
        *front,
        *(lhs.dims[dim] for dim in dims.lhs_batch),
        *(lhs.dims[dim] for dim in _free(lhs.rank, dims.lhs_batch, dims.lhs_contracting)),
        *(rhs.dims[dim] for dim in _free(rhs.rank, dims.rhs_batch, dims.rhs_contracting, grouped)),
    )
    return result(args, product_type(args, lhs, rhs), sizes)


def infer_scaled_dot(args: InferArgs) -> Shape:
    """As a dot; a scale has the rank of its operand with sizes that divide its sizes, or rank 0."""
    lhs, rhs = array_operand(args, 0), array_operand(args, 1)
    for side, scale_index in ((lhs, 2), (rhs, 3)):
        if scale_index >= len(args.operands):
            continue
        scale = array_operand(args, scale_index)
        fits = scale.rank == side.rank and all(
            part and whole % part == 0 for whole, part in zip(side.dims, scale.dims, strict=True)
        )
        if scale.rank and not fits:
            raise error(args, f"scale {scale} does not divide {side} into blocks")
    return infer_dot(args)
