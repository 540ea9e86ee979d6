"""Bitcasts: the same bytes under another shape or element type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final

from hloopt.analysis.index import Index, Indices
from hloopt.codegen import index_at, position_of
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import At, Emission, Emit, each
from hloopt.codegen.scalars import reinterpret
from hloopt.codegen.scalars.forms import unsigned
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Expr
from hloopt.kernels.kernel import unsupported
from hloopt.types import DTYPES, DType

__all__ = ["EMITTERS"]


def _bitcast(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    operand = instruction.operands[0]
    source, result = operand.array, instruction.array
    linear = position_of(index, result)
    if source.dtype is result.dtype:
        return (yield At(operand, index_at(linear, source)))
    if source.dtype.bits == result.dtype.bits:
        element = yield At(operand, index_at(linear, source))
        value = reinterpret(element, source.dtype, result.dtype, e.uses)
        return _declared(e, instruction, value)
    ratio, rest = divmod(source.dtype.bits, result.dtype.bits)
    if ratio and not rest:
        element = yield At(operand, index_at(linear // ratio, source))
        return _part(e, instruction, element, linear % ratio)
    ratio = result.dtype.bits // source.dtype.bits
    parts = yield from each(
        At(operand, index_at(linear * ratio + number, source)) for number in range(ratio)
    )
    return _together(e, instruction, parts)


def _bitcast_convert(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    operand = instruction.operands[0]
    source, result = operand.array.dtype, instruction.array.dtype
    if source.bits == result.bits:
        element = yield At(operand, index)
        return _declared(e, instruction, reinterpret(element, source, result, e.uses))
    if source.bits > result.bits:
        element = yield At(operand, index[:-1])
        return _part(e, instruction, element, index[-1])
    ratio = result.bits // source.bits
    parts = yield from each(At(operand, (*index, Index(number))) for number in range(ratio))
    return _together(e, instruction, parts)


def _part(e: Elements, instruction: Instruction, element: Expr, number: Index) -> Expr:
    """Part ``number`` of an element's bits, the lowest first."""
    source, result = instruction.operands[0].array.dtype, instruction.array.dtype
    whole, piece = _unsigned(instruction, source), _unsigned(instruction, result)
    bits = reinterpret(element, source, whole, e.uses).cast(e.uses.type(whole))
    lowest = bits >> number * result.bits & unsigned((1 << result.bits) - 1, piece)
    name = e.declare(piece, lowest.cast(e.uses.type(piece)), "bits")
    return _declared(e, instruction, reinterpret(name, piece, result, e.uses))


def _together(e: Elements, instruction: Instruction, parts: Sequence[Expr]) -> Expr:
    """The bits of some elements, the first the lowest, as one."""
    source, result = instruction.operands[0].array.dtype, instruction.array.dtype
    piece, whole = _unsigned(instruction, source), _unsigned(instruction, result)
    kind = e.uses.type(whole)
    bits = [
        reinterpret(part, source, piece, e.uses).cast(kind) << number * source.bits
        for number, part in enumerate(parts)
    ]
    name = e.scope.declare(kind, reduce(or_, bits).cast(kind), "bits")
    return _declared(e, instruction, reinterpret(name, whole, result, e.uses))


def _declared(e: Elements, instruction: Instruction, value: Expr) -> Expr:
    return e.declare(instruction.array.dtype, value, instruction.name)


def _unsigned(instruction: Instruction, kind: DType) -> DType:
    found = DTYPES.get(f"u{8 if kind.is_pred else kind.bits}")
    if found is None:
        raise unsupported(
            instruction, f"takes {kind.name} apart, of which no integer has the width"
        )
    return found


EMITTERS: Final[Mapping[str, Emit]] = {
    "bitcast": _bitcast,
    "bitcast-convert": _bitcast_convert,
}
