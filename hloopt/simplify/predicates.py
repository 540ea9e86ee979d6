"""Questions that rules ask about instructions and constants."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hloopt.analysis.value_range import IEEE
from hloopt.ir import Instruction
from hloopt.rewrite import Match, splat_literal
from hloopt.rewrite.site import row_major
from hloopt.types import Array, ArrayShape

__all__ = [
    "COMPLEX",
    "FLOAT",
    "INTEGER",
    "PRED",
    "SIGNED",
    "UNSIGNED",
    "compared",
    "exact_or_fast",
    "exact_or_real",
    "has_kind",
    "has_known_arithmetic",
    "is_all_ones",
    "is_exact",
    "is_highest",
    "is_lowest",
    "is_negatable",
    "is_negative_zero",
    "is_plain",
    "is_positive_zero",
    "is_signed_negatable",
    "is_used_here",
    "known_value",
    "power_of_two",
    "real_or_fast",
    "repeats_root",
    "resized",
    "same_dims",
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
    return match.fast_math or match.array.dtype.kind in (SIGNED, UNSIGNED, PRED)


def exact_or_real(match: Match) -> bool:
    """Whether the root is an integer or pred, or floats are to be real numbers: never infinite or NaN."""
    return match.floats_are_real or match.array.dtype.kind in (SIGNED, UNSIGNED, PRED)


def real_or_fast(match: Match) -> bool:
    """Whether the root is not complex, or ``fast_math`` is on.

    (a+bi)*(1+0i) computes a*1 - b*0: wrong for infinite b, and it loses signs of zero.
    """
    return match.fast_math or match.array.dtype.kind != COMPLEX


def has_known_arithmetic(instruction: Instruction) -> bool:
    """Whether elements are integers, pred, or floats with infinities, NaN and both zeros."""
    shape = instruction.shape
    if not isinstance(shape, ArrayShape):
        return False
    return shape.dtype.kind in (SIGNED, UNSIGNED, PRED) or shape.dtype.name in IEEE


def is_exact(match: Match) -> bool:
    """Whether the root is of integers, pred or such floats: where IEEE's rules keep every bit."""
    return has_known_arithmetic(match.root)


def is_plain(compare: Instruction) -> bool:
    """Whether a comparison is of integers or numbers, not of the total order of floats."""
    order, kind = compare.attributes.get("type"), compare.operands[0].array.dtype
    return order != "TOTALORDER" or not kind.is_float


def compared(match: Match, left: Instruction, right: Instruction, direction: str) -> Instruction:
    """A comparison in place of the one at the root.

    A type that is written out says what the operands are; other operands get their own default.
    """
    attributes = {"direction": direction}
    kept = match.root.attributes.get("type")
    if kept is not None and left.array.dtype is match.inner.array.dtype:
        attributes["type"] = kept
    return match.result("compare", left, right, **attributes)


def same_dims(match: Match) -> bool:
    """Whether A has the sizes of the root."""
    return match.A.array.dims == match.array.dims


def is_used_here(instruction: Instruction) -> bool:
    """Whether only one instruction uses it."""
    return len(instruction.users) == 1 and not instruction.is_root


def is_negatable(match: Match) -> bool:
    """Whether ``-x`` is a number: f8e8m0fnu has no sign, and NaN for all of them."""
    return match.array.dtype.name != "f8e8m0fnu"


def is_signed_negatable(match: Match) -> bool:
    """Whether abs is that of the negation too; an unsigned number's negation is another."""
    return is_negatable(match) and match.A.array.dtype.kind != UNSIGNED


def scalar_value(instruction: Instruction) -> Array | None:
    """The 0-d array in every element of a splat, or None."""
    literal = splat_literal(instruction)
    return None if literal is None else literal.array


def is_positive_zero(instruction: Instruction) -> bool:
    """Whether all elements are +0, real and imaginary part."""
    return _is_zero(instruction, negative=False)


def is_negative_zero(instruction: Instruction) -> bool:
    """Whether all elements are -0.0, real and imaginary part."""
    return _is_zero(instruction, negative=True)


def _is_zero(instruction: Instruction, *, negative: bool) -> bool:
    value = scalar_value(instruction)
    if value is None:
        return False
    parts = np.array([value.real, value.imag] if value.dtype.kind == "c" else [value], np.float64)
    return not parts.any() and bool((np.signbit(parts) == negative).all())


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


def repeats_root(match: Match) -> bool:
    """Whether what the pattern calls ``P`` is of the root's opcode."""
    return match.P.opcode == match.root.opcode


def known_value(splat: Instruction) -> Array:
    """The 0-d array in every element of what a pattern ``splat()`` matched."""
    value = scalar_value(splat)
    assert value is not None, "a pattern matched it"
    return value


def resized(shape: ArrayShape, dims: tuple[int, ...]) -> ArrayShape:
    """The shape with other dimensions, row-major; without a layout where it has none."""
    return shape if dims == shape.dims else row_major(shape, dims)
