"""Sizes of bounded dynamic dimensions: an array has its actual sizes, a shape only the bounds.

An instruction is dynamic when a dimension of its result or of an operand is marked so (``<=8``).  Operands of
such instructions may differ in size where their shapes agree; ``ties`` names the dimensions that have to be one
size, ``aligned`` makes them so as XLA does, and ``checked`` holds a result against its shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.interpret.context import Value, array_of
from hloopt.interpret.failures import failure
from hloopt.ir import Instruction
from hloopt.types import (
    ArrayShape,
    ConvNumbers,
    DotDims,
    GatherDims,
    ScatterDims,
    Shape,
    TupleShape,
    leaves,
)

__all__ = ["Tie", "aligned", "checked", "drops_marks", "is_dynamic", "marks", "ties"]


def marks(shape: Shape) -> tuple[bool, ...]:
    """Which dimensions of an array are dynamic; of anything else there are none."""
    if not isinstance(shape, ArrayShape):
        return ()
    return shape.dynamic or (False,) * shape.rank


def is_dynamic(instruction: Instruction) -> bool:
    """Whether a dimension of the result or of an operand is dynamic."""
    return instruction.shape.is_dynamic or any(
        operand.shape.is_dynamic for operand in instruction.operands
    )


def drops_marks(source: Shape, target: Shape) -> bool:
    """Whether a dimension that is dynamic in ``source`` is static in ``target``, of the same structure."""
    return any(
        mark and not kept
        for before, after in zip(leaves(source), leaves(target), strict=True)
        for mark, kept in zip(marks(before), marks(after), strict=False)
    )


@dataclass(frozen=True, slots=True)
class Tie:
    """Dimensions of operands, as (operand, dimension), that have one size.

    The size is that of the places that are dynamic, which must agree; static ones are cut to it.
    ``stretch``: a dynamic size of 1 stands for any other one, and is broadcast.
    ``leads``: the first place has the size, dynamic or not; the others are cut to it.
    """

    places: tuple[tuple[int, int], ...]
    stretch: bool = False
    leads: bool = False


def ties(instruction: Instruction) -> list[Tie]:
    """The ties of an instruction in which a dynamic dimension takes part."""
    return [
        tie
        for tie in _ties(instruction)
        if len(tie.places) > 1
        and any(marks(instruction.operands[at].shape)[dim] for at, dim in tie.places)
    ]


_SAME_INPUTS = frozenset({"reduce", "reduce-window", "sort"})
_FEATURES = frozenset({"batch-norm-grad", "batch-norm-inference", "batch-norm-training"})


def _ties(instruction: Instruction) -> Iterator[Tie]:
    opcode, operands = instruction.opcode, instruction.operands
    if instruction.op.is_elementwise or opcode == "map":
        yield from _elementwise(instruction)
    elif opcode in _SAME_INPUTS:
        count = len(operands) if opcode == "sort" else len(operands) // 2
        yield from _same(range(count), range(operands[0].array.rank))
    elif opcode == "concatenate":
        (axis,) = instruction.attributes["dimensions"]
        kept = [dim for dim in range(instruction.array.rank) if dim != axis]
        yield from _same(range(len(operands)), kept)
    elif opcode == "dot":
        dims = DotDims.of(instruction.attributes)
        yield from _pairs(dims.lhs_batch, dims.rhs_batch)
        yield from _pairs(dims.lhs_contracting, dims.rhs_contracting)
    elif opcode == "convolution":
        numbers = ConvNumbers.of(instruction.attributes)
        labels = numbers.labels
        if numbers.feature_groups == 1:
            yield from _pairs([labels.input_feature], [labels.kernel_input_feature])
    elif opcode == "gather":
        slices = GatherDims.of(instruction.attributes)
        yield from _pairs(slices.operand_batching_dims, slices.start_indices_batching_dims)
    elif opcode == "scatter":
        yield from _scatter(instruction)
    elif opcode in _FEATURES:
        feature = instruction.attributes["feature_index"]
        vectors = [at for at, operand in enumerate(operands) if operand.array.rank == 1 and at]
        yield Tie(((0, feature), *((at, 0) for at in vectors)))
        if opcode == "batch-norm-grad":
            yield from _same((0, 4), range(operands[0].array.rank))
    elif opcode == "cholesky":
        rank = operands[0].array.rank
        yield Tie(((0, rank - 2), (0, rank - 1)))
    elif opcode == "triangular-solve":
        rank = operands[0].array.rank
        yield from _same((0, 1), range(rank - 2))
        side = rank - (2 if instruction.attributes.get("left_side", False) else 1)
        yield Tie(((0, rank - 2), (0, rank - 1), (1, side)))


def _elementwise(instruction: Instruction) -> Iterator[Tie]:
    """The middle operand of a clamp has the sizes; of two operands, a size of 1 is broadcast."""
    operands = instruction.operands
    rank = instruction.array.rank
    order = (1, 0, 2) if instruction.opcode == "clamp" else range(len(operands))
    whole = [at for at in order if operands[at].array.rank == rank]
    for dim in range(rank):
        yield Tie(
            tuple((at, dim) for at in whole),
            stretch=len(operands) == 2,
            leads=instruction.opcode == "clamp",
        )


def _scatter(instruction: Instruction) -> Iterator[Tie]:
    operands, dims = instruction.operands, ScatterDims.of(instruction.attributes)
    count = len(operands) // 2
    target, indices, updates = operands[0].array, operands[count].array, operands[count + 1].array
    every = range(count + 1, len(operands))
    yield from _same(range(count), range(target.rank))
    for dim, axis in dims.windows(target.rank).items():
        if target.dims[dim] == updates.dims[axis]:
            yield Tie(((0, dim), *((at, axis) for at in every)))
    batch = dims.batch_of(range(indices.rank))
    for dim, axis in zip(batch, dims.batch_dims(updates.rank), strict=True):
        # XLA gives indices past the size a place outside; it ignores those of the updates.
        yield Tie(((count, dim), *((at, axis) for at in every)), leads=True)
    for dim, axis in zip(dims.input_batching_dims, dims.scatter_indices_batching_dims, strict=True):
        yield Tie(((0, dim), (count, axis)))


def _same(operands: Sequence[int], dims: Sequence[int]) -> Iterator[Tie]:
    for dim in dims:
        yield Tie(tuple((at, dim) for at in operands))


def _pairs(left: Sequence[int], right: Sequence[int]) -> Iterator[Tie]:
    for pair in zip(left, right, strict=True):
        yield Tie(((0, pair[0]), (1, pair[1])))


def aligned(instruction: Instruction, found: Sequence[Tie], values: Sequence[Value]) -> list[Value]:
    """The operands' values with tied dimensions cut to one size.

    Raises ``EvaluationError`` naming the instruction and both sizes where they do not agree.
    """
    results = list(values)
    for tie in found:
        size = _common(instruction, tie, results)
        for at, dim in tie.places:
            array = array_of(results[at])
            if array.shape[dim] > size:
                results[at] = array[(slice(None),) * dim + (slice(size),)]
    return results


def _common(instruction: Instruction, tie: Tie, values: Sequence[Value]) -> int:
    """The size of a tie's dimensions."""
    operands = instruction.operands
    sizes = {place: array_of(values[place[0]]).shape[place[1]] for place in tie.places}
    decide = [place for place in tie.places if marks(operands[place[0]].shape)[place[1]]]
    if tie.leads:
        decide = list(tie.places[:1])
    first = decide[0]
    for other in decide[1:]:
        if sizes[other] == sizes[first] or (tie.stretch and sizes[other] == 1):
            continue
        if not (tie.stretch and sizes[first] == 1):
            raise _differ(instruction, first, other, sizes)
        first = other
    size: int = sizes[first]
    for place in tie.places:
        if sizes[place] < size and not (tie.stretch and place in decide):
            raise _differ(instruction, first, place, sizes)
    return size


def _differ(
    instruction: Instruction,
    first: tuple[int, int],
    other: tuple[int, int],
    sizes: dict[tuple[int, int], int],
) -> Exception:
    sides = [
        f"dimension {place[1]} of operand {place[0]} ({instruction.operands[place[0]].name}) "
        f"has size {sizes[place]}"
        for place in (first, other)
    ]
    return failure(instruction, f"{sides[0]}, {sides[1]}; they must be equal")


def checked(instruction: Instruction, shape: Shape, value: Value) -> Value:
    """The value, whose arrays must fit the shape; raises ``EvaluationError``."""
    if isinstance(shape, TupleShape):
        assert isinstance(value, tuple)
        for element, part in zip(shape.elements, value, strict=True):
            checked(instruction, element, part)
    elif isinstance(shape, ArrayShape) and shape.dtype.is_array:
        sizes = np.shape(array_of(value))
        if not shape.holds(sizes):
            raise failure(instruction, f"sizes {list(sizes)} do not fit the shape {shape}")
    return value
