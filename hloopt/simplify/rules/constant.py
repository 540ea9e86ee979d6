"""Rules for constants, iotas, arrays without elements, and sizes of dimensions."""

from __future__ import annotations

import numpy as np

from hloopt.ir import Instruction
from hloopt.ops import OPS
from hloopt.rewrite import Match, Rule, op, same_layout, variables
from hloopt.simplify.data_movement import dimensions, is_scalar, progression
from hloopt.simplify.predicates import scalar_value
from hloopt.types import ArrayShape, Literal, TupleShape, array

__all__ = ["EMPTY_OPCODES", "RULES"]

_FAMILIES = ("elementwise", "movement", "indexing", "linear", "reduction")
EMPTY_OPCODES = tuple(
    name for name, row in OPS.items() if row.family in _FAMILIES and not row.side_effect
)
"""Ops that do nothing but make their result."""


def _splat_constant(match: Match) -> Instruction | None:
    literal, shape = match.root.literal, match.root.shape
    if literal is None or not isinstance(shape, ArrayShape):
        return None
    if not shape.dims or literal.splat is None:
        return None
    return match.splat_of(shape, Literal(array(shape.dtype), literal.splat))


_FEW = 64


def _progression(match: Match) -> Instruction | None:
    """``first + step * iota`` in the type's own arithmetic, modulo its range.

    Up to 64 elements only the plain iota: ``constant-folding`` recognises it, and a few numbers cost nothing.
    """
    literal, shape = match.root.literal, match.root.shape
    if literal is None or literal.array is None or not isinstance(shape, ArrayShape):
        return None
    if shape.rank != 1 or shape.elements < 2 or not shape.dtype.is_integer or shape.dtype.bits < 8:
        return None
    values = literal.array
    first, step = int(values[0]), int(values[1]) - int(values[0])
    if step == 0 or int(values[-1]) != first + step * (shape.elements - 1):
        return None
    # Equal modulo the range: with the last value in its place, none has wrapped around.
    differences = np.diff(values.view(f"u{values.itemsize}"))
    if (differences != differences[0]).any():
        return None
    if shape.dtype.kind == "unsigned" and step < 0:
        return None
    if shape.elements <= _FEW and (first, step) != (0, 1):
        return None
    return progression(match, 0, first, step)


def _tuple_constant(match: Match) -> Instruction | None:
    literal, shape = match.root.literal, match.root.shape
    if literal is None or literal.elided or not isinstance(shape, TupleShape):
        return None
    elements = tuple(match.constant(element) for element in literal.elements)
    return match.make("tuple", *elements, shape=shape)


def _iota_of_one(match: Match) -> Instruction | None:
    shape = match.array
    if shape.elements == 0 or shape.dims[match.root.iota_dimension] != 1:
        return None
    return match.full(0)


def _is_empty(instruction: Instruction) -> bool:
    return instruction.is_array and not instruction.array.elements


def _without_elements(match: Match) -> Instruction | None:
    root = match.root
    if root.opcode == "broadcast" and is_scalar(root.operands[0]):
        return None
    return match.splat(root.array, 0)


A, N = variables("A N")


def _known_size(match: Match) -> Instruction:
    return match.scalar("s32", _size(match))


def _size(match: Match) -> int:
    (dimension,) = dimensions(match.root)
    return match.A.array.dims[dimension]


def _is_the_size(match: Match) -> bool:
    value = scalar_value(match.N)
    return (
        value is not None
        and int(value) == _size(match)
        and same_layout(match.A.shape, match.root.shape)
    )


RULES = (
    Rule(
        "f(A) without elements => broadcast(0)",
        op(EMPTY_OPCODES).where(_is_empty),
        _without_elements,
    ),
    Rule("constant(C, C, ...) => broadcast(C)", op("constant"), _splat_constant),
    Rule("constant(C, C + D, C + 2 * D, ...) => C + D * iota", op("constant"), _progression),
    Rule("constant((C, D)) => tuple(constant(C), constant(D))", op("constant"), _tuple_constant),
    Rule("iota of one => 0", op("iota"), _iota_of_one),
    Rule(
        "get-dimension-size(A) => n of a static dimension", op("get-dimension-size", A), _known_size
    ),
    Rule(
        "set-dimension-size(A, n) => A of a static dimension",
        op("set-dimension-size", A, N),
        A,
        when=_is_the_size,
    ),
)
