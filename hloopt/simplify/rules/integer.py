"""Rules for integer division, remainders and shifts."""

from __future__ import annotations

from collections.abc import Callable

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op, splat, var
from hloopt.simplify.predicates import (
    INTEGER,
    SIGNED,
    has_kind,
    is_exact,
    power_of_two,
    scalar_value,
)

__all__ = ["RULES"]

A, B, N = var("A"), var("B"), splat(name="N")
C, C1, C2 = splat(name="C"), splat(name="C1"), splat(name="C2")
WHOLE = has_kind(*INTEGER)

_SHIFTS = ("shift-left", "shift-right-logical", "shift-right-arithmetic")


def _number(instruction: Instruction) -> int | None:
    """The integer that a splat repeats."""
    value = scalar_value(instruction)
    if value is None or instruction.array.dtype.kind not in INTEGER:
        return None
    return int(value)


def _shift(match: Match) -> Instruction | None:
    exponent, shape = power_of_two(match.N), match.array
    if exponent is None or exponent == 0:
        return None
    if match.values.of(match.A).low < 0:
        return match.refuse("the dividend may be negative: its quotient is rounded towards zero")
    return match.make("shift-right-logical", match.A, match.splat(shape, exponent), shape=shape)


def _mask(match: Match) -> Instruction | None:
    exponent, shape = power_of_two(match.N), match.array
    if exponent is None:
        return None
    if match.values.of(match.A).low < 0:
        return match.refuse("the dividend may be negative, and so may its remainder")
    return match.make("and", match.A, match.splat(shape, (1 << exponent) - 1), shape=shape)


def _is_below(match: Match) -> bool:
    """Whether every dividend is below every divisor, and neither is negative."""
    dividend, divisor = match.values.of(match.A), match.values.of(match.B)
    return dividend.low >= 0 and dividend.high < divisor.low


def _zero(match: Match) -> Instruction:
    return match.splat(match.array, 0)


def _one(match: Match) -> Instruction | None:
    if match.values.of(match.A).has_zero:
        return match.refuse("the divisor may be 0")
    return match.splat(match.array, 1)


def _without_multiples(match: Match) -> Instruction | None:
    """``(A + C) % N`` where N divides C, and the sum is not negative and does not wrap."""
    n, c = _number(match.N), _number(match.C)
    known = match.values.of(match.A)
    if not n or c is None or n < 0 or c % n:
        return None
    if known.low < 0 or known.low + c < 0 or known.high + c > match.A.array.dtype.limits[1]:
        return match.refuse("the sum may be negative or wrap")
    return match.result("remainder", match.A, match.N)


def _fits_times(match: Match) -> int | None:
    """C where no product ``A * C`` wraps and C is not 0."""
    c, known = _number(match.C), match.values.of(match.A)
    low, high = match.array.dtype.limits
    if not c or not all(low <= bound * c <= high for bound in (known.low, known.high)):
        return None
    return c


def _product_over_factor(match: Match) -> Instruction | None:
    return match.A if _fits_times(match) is not None else None


def _product_rest(match: Match) -> Instruction | None:
    c, n = _fits_times(match), _number(match.N)
    if c is None or not n or c % n:
        return None
    return match.splat(match.array, 0)


def _divided_twice(match: Match) -> Instruction | None:
    """Truncated twice is truncated once; a product beyond the type is larger than any dividend."""
    c1, c2 = _number(match.C1), _number(match.C2)
    shape = match.array
    if c1 is None or c2 is None or c1 <= 0 or c2 <= 0:
        return None
    if c1 * c2 > shape.dtype.limits[1]:
        return match.splat(shape, 0) if shape.dtype.kind != SIGNED else None
    return match.make("divide", match.A, match.splat(shape, c1 * c2), shape=shape)


def _amount(instruction: Instruction) -> int | None:
    """A constant shift amount as the unsigned number it is."""
    number = _number(instruction)
    return None if number is None else number & ((1 << instruction.array.dtype.bits) - 1)


def _shifts_nothing(match: Match) -> bool:
    return _amount(match.C) == 0


def _beyond(match: Match) -> Instruction | None:
    amount = _amount(match.C)
    if amount is None or amount < match.array.dtype.bits:
        return None
    return match.splat(match.array, 0)


def _shifted_twice(match: Match) -> Instruction | None:
    """One shift by both amounts; zeros, or copies of the sign, where that is the width or more."""
    first, second = _amount(match.C1), _amount(match.C2)
    opcode, shape = match.root.opcode, match.array
    if first is None or second is None or match.inner.opcode != opcode:
        return None
    bits = shape.dtype.bits
    total = min(first, bits) + min(second, bits)
    if total >= bits and opcode == "shift-right-arithmetic":
        total = bits - 1
    if total >= bits:
        return match.splat(shape, 0)
    if total > shape.dtype.limits[1]:
        return None
    return match.make(opcode, match.A, match.splat(shape, total), shape=shape)


def _there_and_back(mask: Callable[[int, int], int]) -> Callable[[Match], Instruction | None]:
    """Equal shifts, one each way, clear the bits that were shifted out; ``mask`` is of amount and width."""

    def rewrite(match: Match) -> Instruction | None:
        first, second = _amount(match.C1), _amount(match.C2)
        shape = match.array
        bits = shape.dtype.bits
        if first is None or first != second or first >= bits:
            return None
        kept = mask(first, bits)
        if shape.dtype.kind == SIGNED and kept >= 1 << (bits - 1):
            kept -= 1 << bits
        return match.make("and", match.A, match.splat(shape, kept), shape=shape)

    return rewrite


def _is_not_negative(match: Match) -> bool:
    # The uppermost bit is a sign to an arithmetic shift of unsigned numbers too.
    known = match.values.of(match.A)
    return known.low >= 0 and known.high < 1 << (match.array.dtype.bits - 1)


RULES = (
    Rule("A % B => A where 0 <= A < B", op("remainder", A, B).where(WHOLE), A, when=_is_below),
    Rule(
        "A / B => 0 where 0 <= A < B",
        op("divide", A, B).where(WHOLE),
        lambda match: _zero(match) if _is_below(match) else None,
    ),
    Rule("A / 2^N => A >> N", op("divide", A, N).where(WHOLE), _shift),
    Rule("A % 2^N => A & (2^N - 1)", op("remainder", A, N).where(WHOLE), _mask),
    Rule(
        "(A % B) % B => A % B",
        op("remainder", op("remainder", A, B).bind("N"), B),
        var("N"),
        when=is_exact,
    ),
    Rule(
        "(A + C) % N => A % N where N divides C",
        op("remainder", A + C, N).where(WHOLE),
        _without_multiples,
    ),
    Rule("(A * C) / C => A", op("divide", A * C, C).where(WHOLE), _product_over_factor),
    Rule(
        "(A * C) % N => 0 where N divides C", op("remainder", A * C, N).where(WHOLE), _product_rest
    ),
    Rule("(A / C1) / C2 => A / (C1 * C2)", op("divide", A / C1, C2).where(WHOLE), _divided_twice),
    Rule("A / A => 1 where A is not 0", op("divide", A, A).where(WHOLE), _one),
    Rule("A % A => 0", op("remainder", A, A).where(WHOLE), _zero),
    Rule("A << 0 => A", op(_SHIFTS, A, C), A, when=_shifts_nothing),
    Rule("A << width => 0", op(("shift-left", "shift-right-logical"), A, C), _beyond),
    Rule("(A << C1) << C2 => A << (C1 + C2)", op(_SHIFTS, op(_SHIFTS, A, C1), C2), _shifted_twice),
    Rule(
        "(A << C) >> C => A & mask",
        op("shift-right-logical", op("shift-left", A, C1), C2),
        _there_and_back(lambda amount, bits: (1 << (bits - amount)) - 1),
    ),
    Rule(
        "(A >> C) << C => A & mask",
        op("shift-left", op(_SHIFTS[1:], A, C1), C2),
        _there_and_back(lambda amount, bits: ((1 << (bits - amount)) - 1) << amount),
    ),
    Rule(
        "arithmetic A >> B => logical A >> B where A >= 0",
        op("shift-right-arithmetic", A, B),
        op("shift-right-logical", A, B),
        when=_is_not_negative,
    ),
)
