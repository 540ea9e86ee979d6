"""Ops whose positions are data: dynamic slices, gather."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Final

from hloopt.analysis.index import Index, Indices
from hloopt.codegen import inside
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import At, Emission, Emit
from hloopt.codegen.scalars import literal
from hloopt.codegen.scalars.forms import unsigned
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Expr, Number, Select, as_expr, both
from hloopt.types import DType, GatherDims

__all__ = ["EMITTERS", "clamped_start", "starts"]


def clamped_start(e: Elements, value: Expr, kind: DType, high: int, hint: str) -> Index:
    """An index operand of any integer type, limited to ``0 <= start <= high``."""
    if high <= 0:
        return Index(0)
    if isinstance(value, Number) and isinstance(value.value, int):
        return Index(max(0, min(value.value, high)))
    known = e.ranges.get(value)
    if known is not None and known.low >= 0 and known.high <= high:
        return known
    is_unsigned = kind.kind == "unsigned"
    limit = unsigned(high, kind) if is_unsigned else as_expr(high)
    start = Select.of(value > limit, high, value.cast(e.loads.index_type))
    return e.symbol(start if is_unsigned else Select.of(value < 0, 0, start), hint, 0, high)


def starts(
    e: Elements, operands: Sequence[Instruction], dims: Sequence[int], sizes: Sequence[int]
) -> Generator[At, Expr, list[Index]]:
    """The start of a dynamic slice in each dimension, from one scalar each or a vector of them."""
    found = []
    several = len(operands) == len(dims) and all(not part.array.rank for part in operands)
    for at, (dim, size) in enumerate(zip(dims, sizes, strict=True)):
        if dim == size:
            found.append(Index(0))
            continue
        operand = operands[at] if several else operands[0]
        value = yield At(operand, () if several else (Index(at),))
        found.append(clamped_start(e, value, operand.array.dtype, dim - size, f"start_{at}"))
    return found


def _dynamic_slice(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    operand, *places = instruction.operands
    first = yield from starts(e, places, operand.array.dims, instruction.array.dims)
    return (yield At(operand, tuple(a + b for a, b in zip(first, index, strict=True))))


def _dynamic_update_slice(
    e: Elements, instruction: Instruction, index: Indices, leaf: int
) -> Emission:
    operand, update, *places = instruction.operands
    dims, sizes = operand.array.dims, update.array.dims
    if not update.array.elements:
        return (yield At(operand, index))
    first = yield from starts(e, places, dims, sizes)
    tests: list[Expr] = []
    position = []
    for at, start, size, dim in zip(index, first, sizes, dims, strict=True):
        moved = at - start
        if moved.high < 0 or moved.low >= size:
            return (yield At(operand, index))
        if size < dim and (moved.low < 0 or moved.high >= size):
            moved = e.symbol(moved, "offset", moved.low, moved.high)
            tests += inside(moved, size - 1)
        position.append(moved if size > 1 else Index(0))
    if not tests:
        return (yield At(update, tuple(position)))
    name = e.variable(instruction.array.dtype, instruction.name)
    wanted = (At(update, tuple(position)), At(operand, index))
    with e.before(index):
        for block, one in zip(e.scope.branches([both(tests)]), wanted, strict=True):
            with e.within(block):
                element = yield one
                e.scope.set(name, element)
    return name


def _gather(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    operand, indices = instruction.operands
    dims = GatherDims.of(instruction.attributes)
    if 0 in dims.slice_sizes:
        # What a dimension of none is dropped from: there is nothing to be read.
        return literal(0, operand.array.dtype)
    batch = [index[at] for at in dims.batch_dims(len(index))]
    position = dims.offsets_in(index, operand.array.rank, Index(0))
    for number, dimension in enumerate(dims.start_index_map):
        high = operand.array.dims[dimension] - dims.slice_sizes[dimension]
        if high <= 0:
            continue
        where = dims.vector_place(batch, Index(number), indices.array.rank)
        value = yield At(indices, where)
        start = clamped_start(e, value, indices.array.dtype, high, f"start_{dimension}")
        position[dimension] += start
    for dimension, place in dims.batching:
        at, last = batch[place], operand.array.dims[dimension] - 1
        if at.high > last:
            # More batches than the operand has: the last one again and again, as all starts are clamped.
            at = e.symbol(Select.of(as_expr(at) > last, last, at), f"start_{dimension}", 0, last)
        position[dimension] += at
    return (yield At(operand, tuple(position)))


EMITTERS: Final[Mapping[str, Emit]] = {
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
}
