"""Physical order of dimensions: which reshapes, transposes and copies move no data, and what becomes what."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.ir import Instruction
from hloopt.types import ArrayShape, Shape

__all__ = [
    "carried",
    "is_descending",
    "is_effective_scalar",
    "is_row_major",
    "major_to_minor",
    "moves_minor_dimension",
    "moves_nothing",
    "physical_dims",
    "reshape_is_bitcast",
    "reshaped_groups",
    "same_layout",
    "transpose_is_bitcast",
    "true_rank",
]


def major_to_minor(shape: ArrayShape) -> tuple[int, ...]:
    """Dimension numbers from the slowest to the fastest; row-major where the text has no layout."""
    if shape.layout is None:
        return tuple(range(shape.rank))
    return shape.layout.minor_to_major[::-1]


def is_row_major(shape: Shape) -> bool:
    """Whether elements lie in the order of their indices, as they do where nothing is said; true of tuples."""
    if not isinstance(shape, ArrayShape) or shape.layout is None:
        return True
    return major_to_minor(shape) == tuple(range(shape.rank))


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


def moves_nothing(instruction: Instruction) -> bool:
    """Whether the result is the operand's bytes under another shape."""
    if instruction.opcode == "bitcast":
        return True
    if instruction.opcode == "transpose":
        return transpose_is_bitcast(instruction)
    if instruction.opcode != "reshape":
        return False
    shapes = (instruction.shape, instruction.operands[0].shape)
    return all(
        isinstance(shape, ArrayShape) and (shape.layout is None or shape.layout.is_descending)
        for shape in shapes
    )


def reshaped_groups(
    before: Sequence[int], after: Sequence[int]
) -> list[tuple[list[int], list[int]]]:
    """The finest groups of dimensions that a reshape turns into each other; sizes of 1 are in none.

    No size is 0.
    """
    left = [dimension for dimension, size in enumerate(before) if size != 1]
    right = [dimension for dimension, size in enumerate(after) if size != 1]
    groups: list[tuple[list[int], list[int]]] = []
    at_left = at_right = 0
    while at_left < len(left):
        start_left, start_right = at_left, at_right
        product_left = product_right = 1
        while product_left != product_right or product_left == 1:
            if product_left <= product_right:
                product_left *= before[left[at_left]]
                at_left += 1
            else:
                product_right *= after[right[at_right]]
                at_right += 1
        groups.append((left[start_left:at_left], right[start_right:at_right]))
    return groups


def carried(before: Sequence[int], after: Sequence[int], order: Sequence[int]) -> list[int] | None:
    """The order of a reshape's result such that the bytes of an operand in ``order`` stay; without sizes of 1.

    None where that order tears dimensions apart that the reshape takes together.  No size is 0.
    """
    groups = {left[0]: (left, right) for left, right in reshaped_groups(before, after)}
    sequence = [dimension for dimension in order if before[dimension] != 1]
    found: list[int] = []
    while sequence:
        left, right = groups.get(sequence[0], ([], []))
        if not left or sequence[: len(left)] != left:
            return None
        found += right
        sequence = sequence[len(left) :]
    return found
