"""Reshapes and bitcasts: other dimensions over the same elements, or over the same bytes."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.passes.layout_normalization.dimensions import regrouped
from hloopt.passes.layout_normalization.rewriter import Rewriter
from hloopt.passes.layout_normalization.values import orders_of, physical
from hloopt.types import ArrayShape, Dims, DType, array

__all__ = ["bitcast", "reshape"]


def reshape(rewriter: Rewriter, instruction: Instruction) -> None:
    """The bytes stay where they are, if the order of the operand allows it; else it becomes descending."""
    source = instruction.operands[0]
    own = rewriter.order(source)
    declared: Dims = orders_of(rewriter.shape(instruction))  # type: ignore[assignment]
    before = rewriter.shape(source)
    assert isinstance(before, ArrayShape)
    order = regrouped(before.dims, instruction.array.dims, own, declared)
    if order is None:
        own, order = tuple(range(len(own))), tuple(range(len(declared)))
    rewriter.update(instruction, (rewriter.operand(source, own),), order)


def bitcast(rewriter: Rewriter, instruction: Instruction) -> None:
    """A reshape of the descending arrays, with a bitcast-convert where the element type changes.

    What these cannot say (tiles, sizes known at run time only, another number of bits) stays a bitcast, of
    descending arrays as well.
    """
    source = instruction.operands[0]
    declared: Dims = orders_of(rewriter.shape(source))  # type: ignore[assignment]
    order: Dims = orders_of(rewriter.shape(instruction))  # type: ignore[assignment]
    operand = rewriter.operand(source, declared)
    target = physical(instruction.shape, order)
    assert isinstance(target, ArrayShape)
    if not _is_plain(operand.array, target):
        rewriter.update(instruction, (operand,), order)
        return
    value = _converted(rewriter, operand, target.dtype)
    if value.array.dims != target.dims or value is operand:
        if value.array == target and rewriter.may_drop(instruction):
            rewriter.drop(instruction, value, order)
            return
        value = rewriter.make("reshape", value, shape=target)
    rewriter.replace(instruction, value, order)


def _is_plain(source: ArrayShape, target: ArrayShape) -> bool:
    """Whether both are dense arrays of the same bits whose types a bitcast-convert takes."""
    for shape in (source, target):
        if shape.is_dynamic or (shape.layout is not None and shape.layout.suffix):
            return False
    if source.dtype is target.dtype:
        return source.elements == target.elements
    if "pred" in (source.dtype.kind, target.dtype.kind):
        return False
    if source.dtype.is_complex or target.dtype.is_complex:
        return False
    wide, narrow = (
        max(source.dtype.bits, target.dtype.bits),
        min(source.dtype.bits, target.dtype.bits),
    )
    return wide % narrow == 0 and (
        source.elements * source.dtype.bits == target.elements * target.dtype.bits
    )


def _converted(rewriter: Rewriter, operand: Instruction, element: DType) -> Instruction:
    """The same bytes as elements of another type, in dimensions that follow from it."""
    source = operand.array
    if source.dtype is element:
        return operand
    if source.dtype.bits < element.bits:
        ratio = element.bits // source.dtype.bits
        pairs = array(source.dtype, (source.elements // ratio, ratio))
        operand = rewriter.make("reshape", operand, shape=pairs)
        target = array(element, pairs.dims[:1])
    elif source.dtype.bits > element.bits:
        target = array(element, (*source.dims, source.dtype.bits // element.bits))
    else:
        target = array(element, source.dims)
    return rewriter.make("bitcast-convert", operand, shape=target)
