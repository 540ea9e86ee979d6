"""Which dimensions of operands and results correspond, op by op, and which are mixed.

Two dimensions are tied where an element of the result at index ``i`` of one needs elements at index ``i`` of
the other alone.  A dimension of an operand is mixed where elements of the result need others than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from hloopt.analysis.layout import reshaped_groups
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops.traits import op_table
from hloopt.types import ConvNumbers, DotDims, GatherDims, ScatterDims

__all__ = ["DimensionRelation", "relations"]


@dataclass(frozen=True, slots=True)
class DimensionRelation:
    """Dimension ``dim`` of operand ``operand`` and ``result``, one of all results; None where it is mixed."""

    operand: int
    dim: int
    result: int | None = None


_Rule: TypeAlias = Callable[[Instruction], Iterator[DimensionRelation]]


def relations(instruction: Instruction) -> Iterator[DimensionRelation]:
    """All relations of an instruction that computes arrays; dimensions of one element are left out.

    An op without a rule mixes all dimensions of its operands.
    """
    rule = _RULES.get(instruction.opcode)
    if rule is None:
        rule = _elementwise if instruction.op.is_elementwise else _mixed
    for relation in rule(instruction):
        if instruction.operands[relation.operand].array.dims[relation.dim] != 1:
            yield relation


def _mixed(instruction: Instruction) -> Iterator[DimensionRelation]:
    for number, operand in enumerate(instruction.operands):
        for dim in range(operand.array.rank):
            yield DimensionRelation(number, dim)


def _elementwise(instruction: Instruction) -> Iterator[DimensionRelation]:
    for number, operand in enumerate(instruction.operands):
        for dim in range(operand.array.rank):
            yield DimensionRelation(number, dim, dim)


def _broadcast(instruction: Instruction) -> Iterator[DimensionRelation]:
    for dim, result in enumerate(instruction.attributes.get("dimensions", ())):
        yield DimensionRelation(0, dim, result)


def _transpose(instruction: Instruction) -> Iterator[DimensionRelation]:
    for result, dim in enumerate(instruction.attributes["dimensions"]):
        yield DimensionRelation(0, dim, result)


def _reshape(instruction: Instruction) -> Iterator[DimensionRelation]:
    before, after = instruction.operands[0].array.dims, instruction.array.dims
    if 0 in before:
        return
    for left, right in reshaped_groups(before, after):
        if len(left) == len(right) == 1:
            yield DimensionRelation(0, left[0], right[0])
        else:
            yield from (DimensionRelation(0, dim) for dim in left)


def _bitcast(instruction: Instruction) -> Iterator[DimensionRelation]:
    source, result = instruction.operands[0].array, instruction.array
    same = source.dtype.bits == result.dtype.bits and source.elements == result.elements
    plain = all(
        shape.layout is None or shape.layout.minor_to_major == tuple(range(shape.rank))[::-1]
        for shape in (source, result)
    )
    yield from _reshape(instruction) if same and plain else _mixed(instruction)


def _bitcast_convert(instruction: Instruction) -> Iterator[DimensionRelation]:
    rank = min(instruction.operands[0].array.rank, instruction.array.rank)
    for dim in range(instruction.operands[0].array.rank):
        yield DimensionRelation(0, dim, dim if dim < rank else None)


def _slice(instruction: Instruction) -> Iterator[DimensionRelation]:
    source, result = instruction.operands[0].array.dims, instruction.array.dims
    for dim, size in enumerate(source):
        yield DimensionRelation(0, dim, dim if result[dim] == size else None)


def _reverse(instruction: Instruction) -> Iterator[DimensionRelation]:
    turned = instruction.attributes["dimensions"]
    for dim in range(instruction.array.rank):
        yield DimensionRelation(0, dim, None if dim in turned else dim)


def _concatenate(instruction: Instruction) -> Iterator[DimensionRelation]:
    (along,) = instruction.attributes["dimensions"]
    for number, operand in enumerate(instruction.operands):
        for dim in range(operand.array.rank):
            yield DimensionRelation(number, dim, None if dim == along else dim)


def _pad(instruction: Instruction) -> Iterator[DimensionRelation]:
    source, result = instruction.operands[0].array.dims, instruction.array.dims
    for dim, (part, size) in enumerate(zip(instruction.attributes["padding"], source, strict=True)):
        plain = result[dim] == size and part.low == part.high == part.interior == 0
        yield DimensionRelation(0, dim, dim if plain else None)


def _dynamic_slice(instruction: Instruction) -> Iterator[DimensionRelation]:
    yield from _slice(instruction)


def _dynamic_update_slice(instruction: Instruction) -> Iterator[DimensionRelation]:
    update = instruction.operands[1].array.dims
    for dim, size in enumerate(instruction.array.dims):
        whole = update[dim] == size
        # A part at a time: work items cannot own what is written by number.
        yield DimensionRelation(0, dim, dim if whole else None)
        yield DimensionRelation(1, dim, dim if whole else None)


def _dot(instruction: Instruction) -> Iterator[DimensionRelation]:
    dims = DotDims.of(instruction.attributes)
    lhs, rhs = (operand.array.rank for operand in instruction.operands[:2])
    at = len(dims.lhs_batch)
    for result, (left, right) in enumerate(zip(dims.lhs_batch, dims.rhs_batch, strict=True)):
        yield DimensionRelation(0, left, result)
        yield DimensionRelation(1, right, result)
    for number, rank, batch, contracting in (
        (0, lhs, dims.lhs_batch, dims.lhs_contracting),
        (1, rhs, dims.rhs_batch, dims.rhs_contracting),
    ):
        for dim in range(rank):
            if dim in contracting:
                yield DimensionRelation(number, dim)
            elif dim not in batch:
                yield DimensionRelation(number, dim, at)
                at += 1


def _convolution(instruction: Instruction) -> Iterator[DimensionRelation]:
    numbers = ConvNumbers.of(instruction.attributes)
    labels = numbers.labels
    for number, operand in enumerate(instruction.operands[:2]):
        for dim in range(operand.array.rank):
            if number == 0 and dim == labels.input_batch and numbers.batch_groups == 1:
                yield DimensionRelation(0, dim, labels.output_batch)
            elif (
                number == 1 and dim == labels.kernel_output_feature and numbers.feature_groups == 1
            ):
                yield DimensionRelation(1, dim, labels.output_feature)
            else:
                yield DimensionRelation(number, dim)


def _reduce(instruction: Instruction) -> Iterator[DimensionRelation]:
    count = len(instruction.operands) // 2
    reduced = set(instruction.attributes["dimensions"])
    rank = instruction.operands[0].array.rank
    kept = [dim for dim in range(rank) if dim not in reduced]
    for number in range(count):
        for dim in range(rank):
            yield DimensionRelation(number, dim, None if dim in reduced else kept.index(dim))


def _reduce_window(instruction: Instruction) -> Iterator[DimensionRelation]:
    windows = instruction.window.dims
    for number in range(len(instruction.operands) // 2):
        for dim, window in enumerate(windows):
            plain = window.size == window.stride == 1 and not (window.pad_low or window.pad_high)
            plain = plain and window.base_dilation == 1
            yield DimensionRelation(number, dim, dim if plain else None)


def _sort(instruction: Instruction) -> Iterator[DimensionRelation]:
    along = set(instruction.attributes["dimensions"])
    for number, operand in enumerate(instruction.operands):
        for dim in range(operand.array.rank):
            yield DimensionRelation(number, dim, None if dim in along else dim)


def _gather(instruction: Instruction) -> Iterator[DimensionRelation]:
    dims = GatherDims.of(instruction.attributes)
    operand, indices = (one.array for one in instruction.operands)
    offsets = dict(zip(dims.window_dims(operand.rank), dims.offset_dims, strict=True))
    batch = dims.batch_dims(instruction.array.rank)
    rows, batching = dims.batch_of(range(indices.rank)), dict(dims.batching)
    for dim in range(operand.rank):
        if dim in batching:
            yield DimensionRelation(0, dim, batch[batching[dim]])
        else:
            whole = dims.slice_sizes[dim] == operand.dims[dim]
            yield DimensionRelation(0, dim, offsets.get(dim) if whole else None)
    for dim in range(indices.rank):
        mixed = dim == dims.index_vector_dim
        yield DimensionRelation(1, dim, None if mixed else batch[rows.index(dim)])


def _scatter(instruction: Instruction) -> Iterator[DimensionRelation]:
    dims = ScatterDims.of(instruction.attributes)
    count = (len(instruction.operands) - 1) // 2
    operand = instruction.operands[0].array
    updates = instruction.operands[count + 1].array
    indices = instruction.operands[count].array
    rows = dims.batch_of(range(indices.rank))
    batches = {rows[place]: dim for dim, place in dims.batching}
    together = {
        at: dim
        for dim, at in dims.windows(operand.rank).items()
        if updates.dims[at] == operand.dims[dim]
    }
    for at, row in zip(dims.batch_dims(updates.rank), rows, strict=True):
        if row in batches:
            together[at] = batches[row]
    whole = set(together.values())
    for number in range(count):
        for dim in range(operand.rank):
            yield DimensionRelation(number, dim, dim if dim in whole else None)
        for at in range(updates.rank):
            yield DimensionRelation(count + 1 + number, at, together.get(at))
    for dim in range(indices.rank):
        yield DimensionRelation(count, dim, batches.get(dim))


def _leading(kept_from_end: int) -> _Rule:
    def rule(instruction: Instruction) -> Iterator[DimensionRelation]:
        for number, operand in enumerate(instruction.operands):
            rank = operand.array.rank
            for dim in range(rank):
                yield DimensionRelation(number, dim, dim if dim < rank - kept_from_end else None)

    return rule


_RULES: Final[Mapping[str, _Rule]] = op_table(
    {
        "bitcast": _bitcast,
        "bitcast-convert": _bitcast_convert,
        "broadcast": _broadcast,
        "cholesky": _leading(2),
        "concatenate": _concatenate,
        "convolution": _convolution,
        "dot": _dot,
        "dynamic-slice": _dynamic_slice,
        "dynamic-update-slice": _dynamic_update_slice,
        "gather": _gather,
        "map": _elementwise,
        "pad": _pad,
        "reduce": _reduce,
        "reduce-window": _reduce_window,
        "reshape": _reshape,
        "reverse": _reverse,
        "scatter": _scatter,
        "slice": _slice,
        "sort": _sort,
        "transpose": _transpose,
        "triangular-solve": _leading(2),
    },
    otherwise="each dimension depends on all",
)
