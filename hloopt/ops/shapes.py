"""What the inference functions of all families share: checks with one wording, result shapes.

Inference gives the logical shape.  Where a layout has to be chosen it is that of the declared shape
when that fits, else the first operand's (elementwise ops) or row-major.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hloopt.errors import ShapeError
from hloopt.ops.opdef import InferArgs, Signature
from hloopt.types import (
    UNBOUNDED,
    ArrayShape,
    DType,
    Shape,
    TupleShape,
    Window,
    compatible,
    descending,
    dtype,
)

__all__ = [
    "PRED",
    "S32",
    "TOKEN",
    "U32",
    "array_operand",
    "array_operands",
    "attribute",
    "braces",
    "check_dimensions",
    "declared",
    "declared_array",
    "dims_agree",
    "error",
    "like",
    "merged",
    "require_one_precision",
    "require_same",
    "require_same_dtype",
    "result",
    "row_major",
    "scalar_of",
    "signature",
    "size_agrees",
    "tuple_of",
    "tuple_operand",
    "window_of",
    "windowed",
]

LARGEST_SIZE = (1 << 63) - 1
"""Sizes of dimensions are numbers of 64 bits in XLA."""

PRED = dtype("pred")
S32 = dtype("s32")
U32 = dtype("u32")
TOKEN = ArrayShape(dtype("token"), (), descending(0))


def error(args: InferArgs, message: str) -> ShapeError:
    """``opcode: message``."""
    return ShapeError(f"{args.opcode}: {message}")


def braces(values: Iterable[object]) -> str:
    """``{1,0}``."""
    return "{" + ",".join(map(str, values)) + "}"


def attribute(args: InferArgs, name: str) -> Any:
    """An attribute's value; raises ``ShapeError`` when it is not there."""
    value = args.attributes.get(name)
    if value is None:
        raise error(args, f"attribute {name}= is missing")
    return value


def array_operand(args: InferArgs, index: int) -> ArrayShape:
    """The shape of one operand, which must be an array."""
    if index >= len(args.operands):
        raise error(args, f"operand {index} is missing; there are {len(args.operands)}")
    shape = args.operands[index]
    if not isinstance(shape, ArrayShape) or not shape.dtype.is_array:
        raise error(args, f"operand {index} has shape {shape}, which is not an array")
    return shape


def array_operands(args: InferArgs, start: int = 0, stop: int | None = None) -> list[ArrayShape]:
    """The shapes of several operands, which must be arrays."""
    last = len(args.operands) if stop is None else stop
    return [array_operand(args, index) for index in range(start, last)]


def tuple_operand(args: InferArgs, index: int) -> TupleShape:
    """The shape of one operand, which must be a tuple."""
    if index >= len(args.operands):
        raise error(args, f"operand {index} is missing; there are {len(args.operands)}")
    shape = args.operands[index]
    if not isinstance(shape, TupleShape):
        raise error(args, f"operand {index} has shape {shape}, which is not a tuple")
    return shape


def signature(args: InferArgs, name: str) -> Signature:
    """Parameter and result shapes of the one computation that an attribute names."""
    found = args.calls.get(name, ())
    if len(found) != 1:
        raise error(args, f"attribute {name}= must name one computation, not {len(found)}")
    return found[0]


def declared(args: InferArgs) -> Shape:
    """The declared shape, for ops whose operands do not determine it."""
    if args.declared is None:
        raise error(args, "the result shape must be written, it cannot be inferred")
    return args.declared


def declared_array(args: InferArgs) -> ArrayShape:
    """The declared shape, which must be an array."""
    shape = declared(args)
    if not isinstance(shape, ArrayShape) or not shape.dtype.is_array:
        raise error(args, f"the result shape is {shape}, which is not an array")
    return shape


def size_agrees(left: int, right: int) -> bool:
    """Whether two dimension sizes are equal, or one of them is unbounded."""
    return left == right or UNBOUNDED in (left, right)


def dims_agree(left: Sequence[int], right: Sequence[int]) -> bool:
    """Whether two dimension lists are equal, unbounded ones aside."""
    return left == right or (len(left) == len(right) and all(map(size_agrees, left, right)))


def require_same(args: InferArgs, shapes: Sequence[ArrayShape], what: str = "operand") -> None:
    """All shapes have the dimensions of the first."""
    first = shapes[0]
    for index, shape in enumerate(shapes):
        if not dims_agree(shape.dims, first.dims):
            raise error(
                args,
                f"{what} {index} has dimensions {list(shape.dims)}, "
                f"{what} 0 has {list(first.dims)}; they must be equal",
            )


def require_same_dtype(
    args: InferArgs, shapes: Sequence[ArrayShape], what: str = "operand"
) -> None:
    """All shapes have the element type of the first."""
    first = shapes[0].dtype
    for index, shape in enumerate(shapes):
        if shape.dtype is not first:
            raise error(
                args,
                f"{what} {index} has element type {shape.dtype.name}, "
                f"{what} 0 has {first.name}; they must be equal",
            )


def require_one_precision(args: InferArgs) -> None:
    """All operands with a float type have the same one: HLO converts by ``convert`` only."""
    first: tuple[int, DType] | None = None
    for index, shape in enumerate(args.operands):
        if not isinstance(shape, ArrayShape) or not shape.dtype.is_float:
            continue
        if first is None:
            first = index, shape.dtype
        elif shape.dtype is not first[1]:
            raise error(
                args,
                f"operand {index} has element type {shape.dtype.name}, operand {first[0]} has "
                f"{first[1].name}; float types must not be mixed",
            )


def check_dimensions(args: InferArgs, name: str, dims: Sequence[int], rank: int) -> None:
    """Every dimension is one of ``rank`` and none occurs twice."""
    for dim in dims:
        if not 0 <= dim < rank:
            raise error(args, f"{name}={braces(dims)}: {dim} is not a dimension of rank {rank}")
    if len(set(dims)) != len(dims):
        raise error(args, f"{name}={braces(dims)} names a dimension twice")


def like(args: InferArgs, shape: Shape) -> Shape:
    """The declared shape where it is compatible with ``shape``, else ``shape``."""
    written = args.declared
    return written if written is not None and compatible(written, shape) else shape


def result(
    args: InferArgs, element: DType, dims: Sequence[int], dynamic: Sequence[bool] = ()
) -> Shape:
    """An array: the declared shape where it is compatible, else one in row-major layout."""
    written = args.declared
    sizes = tuple(dims)
    if (
        isinstance(written, ArrayShape)
        and written.dtype is element
        and dims_agree(written.dims, sizes)
    ):
        return written
    for size in sizes:
        if size > LARGEST_SIZE:
            raise error(args, f"the result has a dimension of {size}, more than {LARGEST_SIZE}")
    return row_major(element, sizes, dynamic)


def row_major(element: DType, sizes: Sequence[int], dynamic: Sequence[bool] = ()) -> ArrayShape:
    """An array in row-major layout.  Sizes that are unbounded are dynamic, whatever the marks say."""
    marks = tuple(dynamic) or (False,) * len(sizes)
    marks = tuple(mark or size == UNBOUNDED for mark, size in zip(marks, sizes, strict=True))
    return ArrayShape(element, tuple(sizes), descending(len(sizes)), marks if any(marks) else ())


def merged(shapes: Sequence[ArrayShape]) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Sizes and dynamic marks of what all shapes stand for: a known size goes before an unbounded one.

    Of the shapes that know a size all agree; the dimension is dynamic where any of them has it so.
    """
    sizes, marks = [], []
    for dim in range(shapes[0].rank):
        known = [shape for shape in shapes if shape.dims[dim] != UNBOUNDED]
        sizes.append(known[0].dims[dim] if known else UNBOUNDED)
        marks.append(not known or any(shape.dynamic and shape.dynamic[dim] for shape in known))
    return tuple(sizes), tuple(marks)


def tuple_of(args: InferArgs, shapes: Iterable[Shape]) -> Shape:
    """A tuple: the declared shape where it is compatible."""
    return like(args, TupleShape(tuple(shapes)))


def scalar_of(element: DType) -> ArrayShape:
    """A rank-0 array."""
    return ArrayShape(element, (), descending(0))


def window_of(args: InferArgs, rank: int) -> Window:
    """The window attribute; without one, a window of single elements."""
    window = Window.of(args.attributes, rank)
    if len(window.dims) != rank:
        raise error(args, f"window has {len(window.dims)} dimensions, not {rank}")
    return window


def windowed(args: InferArgs, dims: Sequence[int], window: Window) -> tuple[int, ...]:
    """The number of window positions in each dimension."""
    for index, dim in enumerate(window.dims):
        for name, value in (
            ("size", dim.size),
            ("stride", dim.stride),
            ("base dilation", dim.base_dilation),
            ("window dilation", dim.window_dilation),
        ):
            if value < 1:
                raise error(args, f"window dimension {index}: {name} {value} must be positive")
    return tuple(
        UNBOUNDED if size == UNBOUNDED else dim.positions(size)
        for size, dim in zip(dims, window.dims, strict=True)
    )
