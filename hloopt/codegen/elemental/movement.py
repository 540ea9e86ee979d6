"""Ops that move elements: an element of the result is one of an operand's, or a pad value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hloopt.analysis.index import Index, Indices, Symbol, delinearize, linearize
from hloopt.codegen import inside
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import At, Emission, Emit
from hloopt.codegen.scalars import convert
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Expr, as_expr
from hloopt.kernel_ir.types import INT
from hloopt.ops.traits import ELEMENTAL, op_table
from hloopt.types import dtype

__all__ = ["EMITTERS"]


def _broadcast(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    operand = instruction.operands[0].array
    where = instruction.attributes.get("dimensions", ())
    position = tuple(
        Index(0) if operand.dims[at] == 1 else index[dimension]
        for at, dimension in enumerate(where)
    )
    return (yield At(instruction.operands[0], position))


def _reshape(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    source, result = instruction.operands[0].array, instruction.array
    if source.dims == result.dims:
        return (yield At(instruction.operands[0], index))
    linear = linearize(index, result.dims)
    return (yield At(instruction.operands[0], delinearize(linear, source.dims)))


def _transpose(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    position: list[Index] = [Index(0)] * len(index)
    for at, dimension in enumerate(instruction.attributes["dimensions"]):
        position[dimension] = index[at]
    return (yield At(instruction.operands[0], tuple(position)))


def _slice(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    position = tuple(
        at * part.stride + part.start
        for at, part in zip(index, instruction.attributes["slice"], strict=True)
    )
    return (yield At(instruction.operands[0], position))


def _reverse(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    reversed_dims = set(instruction.attributes["dimensions"])
    dims = instruction.array.dims
    position = tuple(
        Index(dims[dimension] - 1) - at if dimension in reversed_dims else at
        for dimension, at in enumerate(index)
    )
    return (yield At(instruction.operands[0], position))


def _pad(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    operand, value = instruction.operands
    dims = operand.array.dims
    tests: list[Expr] = []
    position = []
    for at, padding, size in zip(index, instruction.attributes["padding"], dims, strict=True):
        step = padding.interior + 1
        moved = at - padding.low
        end = (size - 1) * step
        if moved.high < 0 or moved.low > end:
            return (yield At(value))
        tests += inside(moved, end, step)
        position.append(moved // step if size > 1 else Index(0))
    if not operand.array.elements:
        return (yield At(value))
    if not tests:
        return (yield At(operand, tuple(position)))
    other = yield At(value)
    name = e.variable(instruction.array.dtype, instruction.name, other)
    with e.before(index), e.when(*tests):
        element = yield At(operand, tuple(position))
        e.scope.set(name, element)
    return name


def _concatenate(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    axis = instruction.attributes["dimensions"][0]
    at = index[axis]
    parts, start = [], 0
    for operand in instruction.operands:
        size = operand.array.dims[axis]
        if size and at.high >= start and at.low < start + size:
            parts.append((operand, start, start + size))
        start += size
    if len(parts) == 1:
        operand, start, limit = parts[0]
        return (yield At(operand, _part(index, axis, start, limit)))
    name = e.variable(instruction.array.dtype, instruction.name)
    outer = e.scope
    with e.before(index):
        blocks = outer.branches([as_expr(at) < limit for *_, limit in parts[:-1]])
        for block, (operand, start, limit) in zip(blocks, parts, strict=True):
            with e.within(block):
                element = yield At(operand, _part(index, axis, start, limit))
                e.scope.set(name, element)
    return name


def _part(index: Indices, axis: int, start: int, limit: int) -> Indices:
    """The index in a part of an array, where position ``axis`` is known to lie in it."""
    at = Index(0) if limit - start == 1 else _narrowed(index[axis], start, limit - 1) - start
    return (*index[:axis], at, *index[axis + 1 :])


def _narrowed(at: Index, low: int, high: int) -> Index:
    """The position where it is known to lie between two numbers."""
    if len(at.terms) != 1:
        return at
    ((symbol, count),) = at.terms
    if count != 1 or not isinstance(symbol, Symbol):
        return at
    least, most = max(symbol.low, low - at.constant), min(symbol.high, high - at.constant)
    return Symbol(symbol.name, least, most, symbol.multiple).index + at.constant


def _iota(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    kind = instruction.array.dtype
    at = index[instruction.attributes.get("iota_dimension", 0)]
    yield from ()
    source = dtype("s32" if e.loads.index_type == INT else "s64")
    value = convert(at, source, kind, e.uses)
    return e.declare(kind, value, instruction.name)


def _same(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    return (yield At(instruction.operands[0], index, leaf))


EMITTERS: Final[Mapping[str, Emit]] = op_table(
    {
        "broadcast": _broadcast,
        "reshape": _reshape,
        "transpose": _transpose,
        "slice": _slice,
        "reverse": _reverse,
        "pad": _pad,
        "concatenate": _concatenate,
        "iota": _iota,
        "opt-barrier": _same,
        "add-dependency": _same,
    },
    ELEMENTAL,
    "in another module of this folder",
)
