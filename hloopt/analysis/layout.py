"""Physical order of dimensions: which reshapes, transposes and copies move no data."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.types import ArrayShape, Shape

__all__ = [
    "is_descending",
    "is_effective_scalar",
    "major_to_minor",
    "moves_minor_dimension",
    "physical_dims",
    "reshape_is_bitcast",
    "same_layout",
    "transpose_is_bitcast",
    "true_rank",
]


def major_to_minor(shape: ArrayShape) -> tuple[int, ...]:
    """Dimension numbers from the slowest to the fastest; row-major where the text has no layout."""
    if shape.layout is None:
        return tuple(range(shape.rank))
    return shape.layout.minor_to_major[::-1]


def physical_dims(shape: ArrayShape) -> tuple[int, ...]:
    """Dimension sizes from the slowest to the fastest."""
    return tuple(shape.dims[dimension] for dimension in major_to_minor(shape))


def same_layout(left: Shape, right: Shape) -> bool:
    """Whether two arrays order their dimensions alike; dimensions of size 1 do not count."""
    if not isinstance(left, ArrayShape) or not isinstance(right, ArrayShape):
        return left == right
    return left.dims == right.dims and _order(left) == _order(right)


def transpose_is_bitcast(transpose: Instruction) -> bool:
    """Whether the layouts make a transpose a reading of the same bytes under other dimensions."""
    permutation = transpose.dimensions
    source, result = transpose.operands[0].array, transpose.array
    return [permutation[dimension] for dimension in _order(result)] == _order(source)


def reshape_is_bitcast(reshape: Instruction) -> bool:
    """Whether both sides of a reshape are row-major: then the bytes stay where they are."""
    return is_descending(reshape.operands[0].array) and is_descending(reshape.array)


def moves_minor_dimension(instruction: Instruction) -> bool:
    """Whether a copy or transpose physically reorders data (it is not a bitcast)."""
    if instruction.opcode == "transpose":
        return not transpose_is_bitcast(instruction)
    if instruction.opcode == "copy":
        return not same_layout(instruction.operands[0].shape, instruction.shape)
    return False


def is_effective_scalar(shape: Shape) -> bool:
    """Whether this is an array of exactly one element."""
    return isinstance(shape, ArrayShape) and all(size == 1 for size in shape.dims)


def true_rank(shape: Shape) -> int:
    """The number of dimensions with more than one element; 0 for anything but an array."""
    return sum(size > 1 for size in shape.dims) if isinstance(shape, ArrayShape) else 0


def _order(shape: ArrayShape) -> list[int]:
    return [dimension for dimension in major_to_minor(shape) if shape.dims[dimension] != 1]


def is_descending(shape: ArrayShape) -> bool:
    """Whether an array is row-major; dimensions of size 1 do not count."""
    order = _order(shape)
    return order == sorted(order)
