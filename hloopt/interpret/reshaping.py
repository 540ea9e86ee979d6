"""Sizes of a reshape with dynamic dimensions: which dimension of the result takes up what the operand has.

Dimensions fall into groups: the shortest runs of operand and result dimensions whose bounds have one product,
as in ``[<=6,4] -> [2,<=3,4]`` the groups ``<=6 -> 2,<=3`` and ``4 -> 4``.  A group has the elements of its
operand dimensions, and one dynamic dimension of its result takes what the others leave.  The elements within
the sizes stay in row-major order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from hloopt.dataclass import dataclass
from hloopt.interpret.failures import failure
from hloopt.interpret.sizes import drops_marks, marks
from hloopt.ir import Instruction

__all__ = ["ReshapeGroup", "ambiguous", "groups", "result_sizes"]


@dataclass(frozen=True, slots=True)
class ReshapeGroup:
    """Operand and result dimensions of one product of bounds; ``free`` is the dimension that adapts."""

    source: range
    target: range
    free: int | None = None


def groups(source: Sequence[int], target: Sequence[int]) -> Iterator[ReshapeGroup]:
    """The groups of two lists of bounds with one product; ones at the end belong to the last."""
    if 0 in source or not source or not target:
        yield ReshapeGroup(range(len(source)), range(len(target)))
        return
    i = j = 0
    while i < len(source) and j < len(target):
        begin = i, j
        left, right = source[i], target[j]
        i, j = i + 1, j + 1
        while left != right:
            if left < right:
                left, i = left * source[i], i + 1
            else:
                right, j = right * target[j], j + 1
        if i == len(source) or j == len(target):
            i, j = len(source), len(target)
        yield ReshapeGroup(range(begin[0], i), range(begin[1], j))


def _solved(instruction: Instruction) -> Iterator[ReshapeGroup]:
    """The groups with their free dimensions; raises ``LookupError`` where that is ambiguous."""
    source, target = instruction.operands[0].array, instruction.array
    inferred = instruction.attributes.get("inferred_dimension", -1)
    found = groups(source.dims, target.dims)
    if source.dims == target.dims and not drops_marks(source, target):
        found = (
            ReshapeGroup(range(dim, dim + 1), range(dim, dim + 1)) for dim in range(source.rank)
        )
    elif sum(marks(target)) == 1:
        # All else is static: it adapts to the whole, also to a size of 0 that another dimension of 1 has.
        found = iter([ReshapeGroup(range(source.rank), range(target.rank))])
    for group in found:
        dynamic = [dim for dim in group.target if marks(target)[dim]]
        if inferred in group.target:
            dynamic = [inferred]
        elif len(dynamic) > 1:
            raise LookupError
        if dynamic and not prod(target.dims[dim] for dim in group.target if dim != dynamic[0]):
            raise LookupError  # no elements, however many there are of this dimension
        yield ReshapeGroup(group.source, group.target, dynamic[0] if dynamic else None)


def ambiguous(instruction: Instruction) -> str | None:
    """Why a reshape leaves open which of its dimensions adapts, or None."""
    try:
        list(_solved(instruction))
    except LookupError:
        source = instruction.operands[0].shape
        return f"reshape of {source} to {instruction.shape} leaves open which dimension adapts"
    return None


def result_sizes(instruction: Instruction, sizes: Sequence[int]) -> list[int]:
    """The sizes of a reshape's result for an operand of ``sizes``.

    Raises ``EvaluationError`` where the elements do not fill the result.
    """
    result = list(instruction.array.dims)
    for group in _solved(instruction):
        count = prod(sizes[dim] for dim in group.source)
        others = prod(result[dim] for dim in group.target if dim != group.free)
        if group.free is not None:
            result[group.free] = count // others
        if prod(result[dim] for dim in group.target) != count:
            raise failure(
                instruction, f"sizes {list(sizes)} cannot be reshaped to {instruction.shape}"
            )
    return result
