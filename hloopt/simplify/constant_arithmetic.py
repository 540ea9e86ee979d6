"""Arithmetic on scalar constants, so that a rule can put two of them together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hloopt.ir import Instruction
from hloopt.ops import OPS, ScalarArgs
from hloopt.ops.elementwise import keeps_bits
from hloopt.rewrite import Match, Rewrite, splat_literal
from hloopt.simplify.predicates import exact_or_fast
from hloopt.types import Array, ArrayShape, DType, Literal, array, rounded

__all__ = ["computed", "computed_array", "folded", "holds", "merged"]


def computed_array(
    opcode: str,
    dtype: DType,
    operands: tuple[tuple[Array, DType], ...],
    attributes: Mapping[str, Any] | None = None,
) -> Array:
    """An elementwise op on stored arrays: widened before and rounded after, as everywhere."""
    function, kind = OPS[opcode].numpy, operands[-1][1]
    assert function is not None
    given = {} if attributes is None else attributes
    stored = keeps_bits(opcode, given, kind)
    arrays = [
        values if stored else values.astype(element.compute, copy=False)
        for values, element in operands
    ]
    result = rounded(np.asarray(function(ScalarArgs(kind, dtype, given), *arrays)), dtype.numpy)
    return result.astype(dtype.numpy, copy=False)


def computed(
    opcode: str,
    dtype: DType,
    *operands: Instruction,
    attributes: Mapping[str, Any] | None = None,
) -> Literal | None:
    """An op on what repeats one constant each; None where the value of one is not known."""
    values: list[tuple[Array, DType]] = []
    for operand in operands:
        literal = splat_literal(operand)
        if literal is None or literal.array is None:
            return None
        values.append((literal.array, operand.array.dtype))
    return Literal(array(dtype), computed_array(opcode, dtype, tuple(values), attributes))


def folded(
    match: Match, opcode: str, shape: ArrayShape, *operands: Instruction
) -> Instruction | None:
    """``opcode`` of splats as a new splat of ``shape``."""
    literal = computed(opcode, shape.dtype, *operands)
    return None if literal is None else match.splat_of(shape, literal)


def merged(inner: str, outer: str = "") -> Rewrite:
    """``C1`` and ``C2`` as one: ``A inner (C1 inner C2)``, or ``(C1 inner C2) outer A``."""

    def merge(match: Match) -> Instruction | None:
        if not exact_or_fast(match):
            return None
        constant = folded(match, inner, match.array, match.C1, match.C2)
        if constant is None:
            return None
        operands = (constant, match.A) if outer else (match.A, constant)
        return match.result(outer or inner, *operands)

    return merge


def holds(direction: str, left: Instruction, right: Instruction) -> bool | None:
    """Whether two splats compare so; None where their values are not known or have no order."""
    if left.array.dtype.is_complex and direction not in ("EQ", "NE"):
        return None
    found = computed("compare", _PRED, left, right, attributes={"direction": direction})
    return None if found is None or found.array is None else bool(found.array)


_PRED = array("pred").dtype
