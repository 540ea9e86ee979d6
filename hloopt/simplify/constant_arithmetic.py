"""Arithmetic on scalar constants, so that a rule can put two of them together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hloopt.ir import Instruction
from hloopt.ops import OPS, ScalarArgs
from hloopt.ops.elementwise import keeps_bits
from hloopt.rewrite import Match, Pattern, built, splat_literal
from hloopt.rewrite.rule import instantiate
from hloopt.types import Array, ArrayShape, DType, Literal, array, rounded

__all__ = ["computed", "computed_array", "fold_splats", "folded", "holds"]


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
    with np.errstate(all="ignore"):  # a result may overflow, as it does where the program runs
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


def fold_splats(
    match: Match, opcode: str, shape: ArrayShape, *operands: Instruction
) -> Instruction:
    """``opcode`` of splats whose values are known, as a new splat of ``shape``."""
    literal = computed(opcode, shape.dtype, *operands)
    assert literal is not None
    return match.splat_of(shape, literal)


def folded(expression: Pattern) -> Pattern:
    """On the right side of a rule: an op of splats, computed."""

    def build(match: Match) -> Instruction:
        operands = [instantiate(operand, match) for operand in expression.operands or ()]
        (opcode,) = expression.opcodes or (match.root.opcode,)
        return fold_splats(match, opcode, match.array, *operands)

    return built(build)


def holds(direction: str, left: Instruction, right: Instruction) -> bool | None:
    """Whether two splats compare so; None where their values are not known or have no order."""
    if left.array.dtype.is_complex and direction not in ("EQ", "NE"):
        return None
    found = computed("compare", _PRED, left, right, attributes={"direction": direction})
    return None if found is None or found.array is None else bool(found.array)


_PRED = array("pred").dtype
