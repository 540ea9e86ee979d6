"""Ops that move elements: broadcast, reshape, transpose, reverse, concatenate, pad, bitcasts."""

from __future__ import annotations

from hloopt.ops.attributes import DIMENSIONS, DIMENSIONS_OPTIONAL
from hloopt.ops.opdef import MANY, InferArgs, Kind, family
from hloopt.ops.shapes import (
    S32,
    array_operand,
    array_operands,
    attribute,
    braces,
    check_dimensions,
    declared,
    declared_array,
    error,
    merged,
    require_same_dtype,
    result,
    size_agrees,
)
from hloopt.types import UNBOUNDED, ArrayShape, Shape

__all__ = ["ROWS"]


def _bitcast(args: InferArgs) -> Shape:
    """The declared shape; a dense array keeps its number of bytes."""
    shape = declared(args)
    source = args.operands[0]
    if (
        isinstance(source, ArrayShape)
        and isinstance(shape, ArrayShape)
        and _dense(source)
        and _dense(shape)
        and source.byte_size != shape.byte_size
    ):
        raise error(
            args,
            f"operand {source} has {source.byte_size} bytes, "
            f"result {shape} has {shape.byte_size}; they must be equal",
        )
    return shape


def _dense(shape: ArrayShape) -> bool:
    """Whether the bytes in memory follow from the dimensions: no tiles, no size known at run time."""
    return (
        not shape.dynamic
        and shape.dtype.bits % 8 == 0
        and not (shape.layout is not None and shape.layout.suffix)
    )


def _bitcast_convert(args: InferArgs) -> Shape:
    """Equal widths keep the dimensions; otherwise the last dimension holds the ratio of widths."""
    source = array_operand(args, 0)
    shape = declared_array(args)
    if source.dtype.is_complex != shape.dtype.is_complex:
        raise error(
            args, f"{source.dtype.name} and {shape.dtype.name}: only one of the types is complex"
        )
    wide, narrow = source, shape
    if source.dtype.bits < shape.dtype.bits:
        wide, narrow = shape, source
    if source.dtype.bits == shape.dtype.bits:
        expected = source.dims
    elif wide.dtype.bits % narrow.dtype.bits:
        raise error(
            args, f"widths of {source.dtype.name} and {shape.dtype.name} do not divide each other"
        )
    else:
        ratio = wide.dtype.bits // narrow.dtype.bits
        if wide is source:
            expected = (*source.dims, ratio)
        elif not source.dims or source.dims[-1] != ratio:
            raise error(
                args,
                f"the last dimension of {source} must be {ratio} to make {shape.dtype.name}",
            )
        else:
            expected = source.dims[:-1]
    return result(args, shape.dtype, expected)


def _broadcast(args: InferArgs) -> Shape:
    """Operand dimension ``i`` becomes result dimension ``dimensions[i]``; the others repeat."""
    source = array_operand(args, 0)
    shape = declared_array(args)
    dims = args.attributes.get("dimensions", ())
    if len(dims) != source.rank:
        raise error(
            args, f"dimensions={braces(dims)} must have one entry per dimension of operand {source}"
        )
    check_dimensions(args, "dimensions", dims, shape.rank)
    for index, dim in enumerate(dims):
        if not size_agrees(source.dims[index], shape.dims[dim]):
            raise error(
                args,
                f"operand dimension {index} has size {source.dims[index]}, "
                f"result dimension {dim} has size {shape.dims[dim]}; they must be equal",
            )
    return result(args, source.dtype, shape.dims)


def _concatenate(args: InferArgs) -> Shape:
    """The sizes along one dimension add up; all others are equal."""
    shapes = array_operands(args)
    first = shapes[0]
    dims = attribute(args, "dimensions")
    if len(dims) != 1:
        raise error(args, f"dimensions={braces(dims)} must name one dimension")
    check_dimensions(args, "dimensions", dims, first.rank)
    require_same_dtype(args, shapes)
    axis = dims[0]
    total = 0
    for index, shape in enumerate(shapes):
        if shape.rank != first.rank or any(
            dim != axis and not size_agrees(shape.dims[dim], first.dims[dim])
            for dim in range(first.rank)
        ):
            raise error(
                args,
                f"operand {index} has dimensions {list(shape.dims)}, operand 0 has "
                f"{list(first.dims)}; they may differ in dimension {axis} only",
            )
        size = shape.dims[axis]
        total = UNBOUNDED if UNBOUNDED in (size, total) else total + size
    common, dynamic = merged(shapes)
    sizes, marks = list(common), list(dynamic)
    sizes[axis] = total
    marks[axis] = any(shape.dynamic and shape.dynamic[axis] for shape in shapes)
    return result(args, first.dtype, sizes, marks)


def _dynamic_reshape(args: InferArgs) -> Shape:
    """The declared bounds; one ``s32[]`` per dimension gives the sizes."""
    source = array_operand(args, 0)
    shape = declared_array(args)
    sizes = array_operands(args, 1)
    if len(sizes) != shape.rank:
        raise error(args, f"{len(sizes)} sizes are given for rank {shape.rank}")
    for index, size in enumerate(sizes):
        if size.rank or size.dtype is not S32:
            raise error(args, f"size {index} has shape {size}, not s32[]")
    if UNBOUNDED not in (*source.dims, *shape.dims) and source.elements != shape.elements:
        raise error(
            args, f"operand {source} has {source.elements} elements, {shape} has {shape.elements}"
        )
    return result(args, source.dtype, shape.dims)


def _pad(args: InferArgs) -> Shape:
    """``low + high + size + interior * (size - 1)`` in each dimension."""
    source, value = array_operand(args, 0), array_operand(args, 1)
    padding = attribute(args, "padding")
    if len(padding) != source.rank:
        raise error(args, f"padding has {len(padding)} entries for rank {source.rank}")
    if value.rank:
        raise error(args, f"the padding value has shape {value}, not a scalar")
    require_same_dtype(args, (source, value))
    sizes = []
    for dim, (size, entry) in enumerate(zip(source.dims, padding, strict=True)):
        if entry.interior < 0:
            raise error(args, f"interior padding {entry.interior} of dimension {dim} is negative")
        if size == UNBOUNDED:
            sizes.append(size)
            continue
        padded = entry.low + entry.high + size + max(size - 1, 0) * entry.interior
        if padded < 0:
            raise error(args, f"padding makes dimension {dim} of size {size} negative: {padded}")
        sizes.append(padded)
    return result(args, source.dtype, sizes, source.dynamic)


def _reshape(args: InferArgs) -> Shape:
    """The declared dimensions; the number of elements stays."""
    source = array_operand(args, 0)
    shape = declared_array(args)
    unbounded = UNBOUNDED in source.dims or UNBOUNDED in shape.dims
    if not unbounded and source.elements != shape.elements:
        raise error(
            args,
            f"operand {source} has {source.elements} elements, result {shape} has "
            f"{shape.elements}; they must be equal",
        )
    return result(args, source.dtype, shape.dims)


def _reverse(args: InferArgs) -> Shape:
    """The operand's shape."""
    source = array_operand(args, 0)
    check_dimensions(args, "dimensions", attribute(args, "dimensions"), source.rank)
    return result(args, source.dtype, source.dims, source.dynamic)


def _transpose(args: InferArgs) -> Shape:
    """Result dimension ``i`` is operand dimension ``dimensions[i]``."""
    source = array_operand(args, 0)
    dims = attribute(args, "dimensions")
    if sorted(dims) != list(range(source.rank)):
        raise error(args, f"dimensions={braces(dims)} is not a permutation of rank {source.rank}")
    sizes = [source.dims[dim] for dim in dims]
    dynamic = [source.dynamic[dim] for dim in dims] if source.dynamic else ()
    return result(args, source.dtype, sizes, dynamic)


_row = family("movement")

ROWS = (
    _row(
        "bitcast",
        1,
        _bitcast,
        inferable=False,
        aliases=True,
        moves="permutes",
        cheap="always",
        elemental=True,
        doc="the same bytes in memory, read as another shape",
    ),
    _row(
        "bitcast-convert",
        1,
        _bitcast_convert,
        inferable=False,
        cheap="always",
        elemental=True,
        doc="the same bits, read as another element type",
    ),
    _row(
        "broadcast",
        1,
        _broadcast,
        DIMENSIONS_OPTIONAL,
        inferable=False,
        moves="selects",
        cheap="always",
        elemental=True,
        doc="repeat along the result dimensions that dimensions= does not name",
    ),
    _row(
        "concatenate",
        (1, MANY),
        _concatenate,
        DIMENSIONS,
        moves="joins",
        cheap="always",
        elemental=True,
        hero=True,
        doc="operands one after another along a dimension",
    ),
    _row(
        "dynamic-reshape",
        (1, MANY),
        _dynamic_reshape,
        inferable=False,
        cheap="always",
        doc="reshape to sizes known at run time",
    ),
    _row(
        "pad",
        2,
        _pad,
        Kind.PADDING("padding", required=True),
        moves="joins",
        cheap="always",
        elemental=True,
        doc="put a value around and between elements; negative padding crops",
    ),
    _row(
        "reshape",
        1,
        _reshape,
        Kind.INT("inferred_dimension"),
        inferable=False,
        moves="permutes",
        cheap="always",
        elemental=True,
        doc="the same elements in row-major order with other dimensions",
    ),
    _row(
        "reverse",
        1,
        _reverse,
        DIMENSIONS,
        moves="permutes",
        cheap="always",
        elemental=True,
        doc="turn dimensions back to front",
    ),
    _row(
        "transpose",
        1,
        _transpose,
        DIMENSIONS,
        moves="permutes",
        cheap="always",
        elemental=True,
        hero=True,
        doc="permute dimensions",
    ),
)
