"""Shapes of dot, ragged-dot and scaled-dot."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.ops.opdef import InferArgs
from hloopt.ops.shapes import (
    array_operand,
    attribute,
    braces,
    check_dimensions,
    dims_agree,
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
        *(lhs.dims[dim] for dim in dims.lhs_free(lhs.rank)),
        *(rhs.dims[dim] for dim in dims.rhs_free(rhs.rank)),
    )
    return result(args, product_type(args, lhs, rhs), sizes, _marks(lhs, rhs, dims))


def _marks(
    lhs: ArrayShape, rhs: ArrayShape, dims: DotDims, grouped: Sequence[int] = ()
) -> tuple[bool, ...]:
    """Which result dimensions are dynamic: those that are in their operand."""
    left = lhs.dynamic or (False,) * lhs.rank
    right = rhs.dynamic or (False,) * rhs.rank
    return (
        *(left[dim] for dim in dims.lhs_batch),
        *(left[dim] for dim in dims.lhs_free(lhs.rank)),
        *(right[dim] for dim in dims.rhs_free(rhs.rank) if dim not in grouped),
    )


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
    taken = set(grouped) & {*dims.rhs_batch, *dims.rhs_contracting}
    if taken:
        raise error(
            args,
            f"rhs_group_dims={braces(grouped)}: dimension {min(taken)} is batch or contracting",
        )
    count = groups.dims[-1]
    _check_group_sizes(args, groups, [lhs.dims[dim] for dim in _grouping(lhs, dims, ragged[0])])
    if grouped and not size_agrees(rhs.dims[grouped[0]], count):
        raise error(
            args,
            f"rhs dimension {grouped[0]} has size {rhs.dims[grouped[0]]}, there are {count} groups",
        )
    stacked = ragged[0] in dims.lhs_contracting
    front = (count,) if stacked else ()
    marks = ((any(groups.dynamic),) if stacked else ()) + _marks(lhs, rhs, dims, grouped)
    sizes = (
        *front,
        *(lhs.dims[dim] for dim in dims.lhs_batch),
        *(lhs.dims[dim] for dim in dims.lhs_free(lhs.rank)),
        *(rhs.dims[dim] for dim in dims.rhs_free(rhs.rank) if dim not in grouped),
    )
    return result(args, product_type(args, lhs, rhs), sizes, marks)


def _grouping(lhs: ArrayShape, dims: DotDims, ragged: int) -> list[int]:
    """The dimensions of lhs for whose indices the groups may differ."""
    if ragged in dims.lhs_batch:
        return list(dims.lhs_batch[: dims.lhs_batch.index(ragged)])
    if ragged in dims.lhs_contracting:
        before = list(dims.lhs_contracting[: dims.lhs_contracting.index(ragged)])
    else:
        free = dims.lhs_free(lhs.rank)
        before = [dim for dim in free if dim < ragged]
    return [*dims.lhs_batch, *before]


def _check_group_sizes(args: InferArgs, groups: ArrayShape, outer: list[int]) -> None:
    """One list of sizes for all, or one for each index of the outer dimensions."""
    if groups.rank > 1 and not dims_agree(groups.dims[:-1], tuple(outer)):
        raise error(
            args,
            f"the group sizes have shape {groups}, their leading dimensions must be none or {outer}",
        )


def infer_scaled_dot(args: InferArgs) -> Shape:
    """As a dot; a scale has the rank of its operand with sizes that divide its sizes.

    A bf16 operand may go unscaled: its scale is bf16 with sizes of 1.  One of the two has to be scaled,
    and then along one contracting dimension.
    """
    lhs, rhs = array_operand(args, 0), array_operand(args, 1)
    dims = DotDims.of(args.attributes)
    scales = (array_operand(args, 2), array_operand(args, 3))
    for side, scale, contracting in zip(
        (lhs, rhs), scales, (dims.lhs_contracting, dims.rhs_contracting), strict=True
    ):
        if _is_no_scale(side, scale):
            continue
        fits = scale.rank == side.rank and all(
            part and whole % part == 0 for whole, part in zip(side.dims, scale.dims, strict=True)
        )
        if not fits:
            raise error(args, f"scale {scale} does not divide {side} into blocks")
        if len(contracting) != 1:
            raise error(
                args, f"operand {side} is scaled and has {len(contracting)} contracting dimensions"
            )
    if not scales[0].rank and not scales[1].rank:
        raise error(args, f"both scales are scalars: {scales[0]} and {scales[1]}")
    return infer_dot(args)


def _is_no_scale(side: ArrayShape, scale: ArrayShape) -> bool:
    return (
        side.dtype.name == scale.dtype.name == "bf16"
        and all(size == 1 for size in scale.dims)
        and any(size != 1 for size in side.dims)
    )
