"""Questions that rules ask about instructions and constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from hloopt.analysis.value_range import IEEE
from hloopt.ir import Instruction
from hloopt.rewrite import Match, splat_literal
from hloopt.types import ArrayShape, Layout, descending

__all__ = [
    "COMPLEX",
    "FLOAT",
    "INTEGER",
    "PRED",
    "SIGNED",
    "UNSIGNED",
    "exact_or_fast",
    "has_kind",
    "has_known_arithmetic",
    "is_all_ones",
    "is_exact",
    "is_highest",
    "is_lowest",
    "is_negatable",
    "is_negative_zero",
    "is_positive_zero",
    "is_signed_negatable",
    "never_negative_zero",
    "power_of_two",
    "real_or_fast",
    "resized",
    "scalar_value",
]

FLOAT, COMPLEX, PRED, SIGNED, UNSIGNED = "float", "complex", "pred", "signed", "unsigned"
INTEGER = (SIGNED, UNSIGNED)


def has_kind(*kinds: str) -> Callable[[Instruction], bool]:
    """A test for arrays of these kinds of element type."""

    def test(instruction: Instruction) -> bool:
        shape = instruction.shape
        return isinstance(shape, ArrayShape) and shape.dtype.kind in kinds

    return test


def exact_or_fast(match: Match) -> bool:
    """Whether the root is an integer or pred, where algebra is exact, or ``fast_math`` is on."""
    return match.fast_math or match.root.array.dtype.kind in (SIGNED, UNSIGNED, PRED)


def real_or_fast(match: Match) -> bool:
    """Whether the root is no complex number, or ``fast_math`` is on.

    (a+bi)*(1+0i) computes a*1 - b*0: wrong for infinite b, and it loses signs of zero.
    """
    return match.fast_math or match.root.array.dtype.kind != COMPLEX


def has_known_arithmetic(instruction: Instruction) -> bool:
    """Whether elements are integers, pred, or floats with infinities, NaN and both zeros."""
    shape = instruction.shape
    if not isinstance(shape, ArrayShape):
        return False
    return shape.dtype.kind in (SIGNED, UNSIGNED, PRED) or shape.dtype.name in IEEE


def is_exact(match: Match) -> bool:
    """Whether the root is of integers, pred or such floats: where IEEE's rules keep every bit."""
    return has_known_arithmetic(match.root)


def is_negatable(match: Match) -> bool:
    """Whether ``-x`` is a number: f8e8m0fnu has no sign, and NaN for all of them."""
    return match.root.array.dtype.name != "f8e8m0fnu"


def is_signed_negatable(match: Match) -> bool:
    """Whether abs is that of the negation too; an unsigned number's negation is another."""
    return is_negatable(match) and match.A.array.dtype.kind != UNSIGNED


def scalar_value(instruction: Instruction) -> np.ndarray[Any, Any] | None:
    """The 0-d array in every element of a splat, or None."""
    literal = splat_literal(instruction)
    return None if literal is None else literal.array


def is_positive_zero(instruction: Instruction) -> bool:
    """Whether all elements are +0, real and imaginary part."""
    value = scalar_value(instruction)
    return value is not None and not np.any(_parts(value)) and not np.any(np.signbit(_parts(value)))


def is_negative_zero(instruction: Instruction) -> bool:
    """Whether all elements are -0.0, real and imaginary part."""
    value = scalar_value(instruction)
    return (
        value is not None and not np.any(_parts(value)) and bool(np.all(np.signbit(_parts(value))))
    )


def _parts(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if value.dtype.kind == "c":
        return np.array([value.real, value.imag])
    return value.astype(np.float64)


def is_all_ones(instruction: Instruction) -> bool:
    """Whether all bits of all elements are set (``true`` for pred)."""
    value, dtype = scalar_value(instruction), instruction.array.dtype
    if value is None or dtype.kind not in (SIGNED, UNSIGNED, PRED):
        return False
    if dtype.kind == PRED:
        return bool(value)
    return int(value) == (-1 if dtype.kind == SIGNED else (1 << dtype.bits) - 1)


def is_lowest(instruction: Instruction) -> bool:
    """Whether all elements are the least value of the type: ``-inf`` for floats."""
    return _is_bound(instruction, upper=False)


def is_highest(instruction: Instruction) -> bool:
    """Whether all elements are the greatest value of the type: ``inf`` for floats."""
    return _is_bound(instruction, upper=True)


def _is_bound(instruction: Instruction, *, upper: bool) -> bool:
    value, dtype = scalar_value(instruction), instruction.array.dtype
    if value is None:
        return False
    if dtype.kind == FLOAT:
        return float(value) == (np.inf if upper else -np.inf)
    if dtype.kind == SIGNED:
        half = 1 << (dtype.bits - 1)
        return int(value) == (half - 1 if upper else -half)
    if dtype.kind == UNSIGNED:
        return int(value) == ((1 << dtype.bits) - 1 if upper else 0)
    return dtype.kind == PRED and bool(value) is upper


def power_of_two(instruction: Instruction) -> int | None:
    """The exponent k where all elements are the integer 2**k with k >= 0, else None."""
    value = scalar_value(instruction)
    if value is None or instruction.array.dtype.kind not in INTEGER:
        return None
    number = int(value)
    return number.bit_length() - 1 if number > 0 and number & (number - 1) == 0 else None


_MOVES = ("broadcast", "reshape", "transpose", "slice", "reverse", "copy", "dynamic-slice")


def never_negative_zero(instruction: Instruction, depth: int = 6) -> bool:
    """Whether no element can be -0.0.

    A sum is -0.0 only when both terms are; exp, abs and whatever comes out of integers never is.
    Looks at most ``depth`` instructions down.
    """
    dtype = instruction.array.dtype
    if dtype.kind != FLOAT:
        return dtype.kind in (SIGNED, UNSIGNED, PRED)
    opcode, operands = instruction.opcode, instruction.operands
    if opcode in ("exponential", "logistic", "abs", "iota"):
        return True
    if opcode == "constant":
        literal = instruction.literal
        return (
            literal is not None
            and literal.array is not None
            and not _has_negative_zero(literal.array)
        )
    if opcode == "multiply" and operands[0] is operands[1]:
        return True
    if depth == 0:
        return False
    if opcode == "convert":
        # A tiny negative number rounds to -0.0 in a narrower type.
        source = operands[0].array.dtype
        return source.kind != FLOAT
    if opcode in _MOVES:
        return never_negative_zero(operands[0], depth - 1)
    if opcode == "add":
        return any(never_negative_zero(operand, depth - 1) for operand in operands)
    if opcode == "select":
        return all(never_negative_zero(operand, depth - 1) for operand in operands[1:])
    return False


def _has_negative_zero(values: np.ndarray[Any, Any]) -> bool:
    wide = values.astype(np.float64)
    return bool(np.any((wide == 0) & np.signbit(wide)))


def resized(shape: ArrayShape, dims: tuple[int, ...]) -> ArrayShape:
    """The shape with other dimensions, row-major; without a layout where it has none."""
    if dims == shape.dims:
        return shape
    layout: Layout | None = None if shape.layout is None else descending(len(dims))
    return replace(shape, dims=dims, layout=layout, dynamic=())
