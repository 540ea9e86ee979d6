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
    known_value,
    power_of_two,
    repeats_root,
)

__all__ = ["RULES"]

A, B, N = var("A"), var("B"), splat(name="N")
C, C1, C2 = splat(name="C"), splat(name="C1"), splat(name="C2")
WHOLE = has_kind(*INTEGER)

_SHIFTS = ("shift-left", "shift-right-logical", "shift-right-arithmetic")


def _number(instruction: Instruction) -> int:
    """The integer that a splat repeats."""
    return int(known_value(instruction))


def _shift(match: Match) -> Instruction | None:
    exponent = power_of_two(match.N)
    if not exponent:
        return None
    if match.range_of(match.A).low < 0:
        return match.refuse("the dividend may be negative: its quotient is rounded towards zero")
    return match.result("shift-right-logical", match.A, match.full(exponent))


def _mask(match: Match) -> Instruction | None:
    exponent = power_of_two(match.N)
    if exponent is None:
        return None
    if match.range_of(match.A).low < 0:
        return match.refuse("the dividend may be negative, and so may its remainder")
    return match.result("and", match.A, match.full((1 << exponent) - 1))


def _is_below(match: Match) -> bool:
    """Whether every dividend is below every divisor, and neither is negative."""
    dividend, divisor = match.range_of(match.A), match.range_of(match.B)
    return dividend.low >= 0 and dividend.high < divisor.low


def _is_not_zero(match: Match) -> bool | None:
    return not match.range_of(match.A).has_zero or match.refuse("the divisor may be 0")


def _without_multiples(match: Match) -> Instruction | None:
    """``(A + C) % N`` where N divides C, and the sum is not negative and does not wrap."""
    n, c = _number(match.N), _number(match.C)
    known = match.range_of(match.A)
    if n <= 0 or c % n:
        return None
    if known.low < 0 or known.low + c < 0 or known.high + c > match.A.array.dtype.limits[1]:
        return match.refuse("the sum may be negative or wrap")
    return match.result("remainder", match.A, match.N)


def _fits_times(match: Match) -> bool:
    """Whether no product ``A * C`` wraps and C is not 0."""
    c, known = _number(match.C), match.range_of(match.A)
    low, high = match.array.dtype.limits
    return c != 0 and all(low <= bound * c <= high for bound in (known.low, known.high))


def _divides(match: Match) -> bool:
    n = _number(match.N)
    return _fits_times(match) and n != 0 and _number(match.C) % n == 0


def _divided_twice(match: Match) -> Instruction | None:
    """Truncated twice is truncated once; a product that overflows the type is larger than any dividend."""
    c1, c2 = _number(match.C1), _number(match.C2)
    dtype = match.array.dtype
    if c1 <= 0 or c2 <= 0:
        return None
    if c1 * c2 > dtype.limits[1]:
        return match.full(0) if dtype.kind != SIGNED else None
    return match.result("divide", match.A, match.full(c1 * c2))


def _amount(instruction: Instruction) -> int:
    """A constant shift amount as the unsigned number it is."""
    return _number(instruction) & ((1 << instruction.array.dtype.bits) - 1)


def _shifted_twice(match: Match) -> Instruction | None:
    """One shift by both amounts; zeros, or copies of the sign, where that is the width or more."""
    first, second = _amount(match.C1), _amount(match.C2)
    opcode, dtype = match.root.opcode, match.array.dtype
    bits = dtype.bits
    total = min(first, bits) + min(second, bits)
    if total >= bits and opcode == "shift-right-arithmetic":
        total = bits - 1
    if total >= bits:
        return match.full(0)
    return match.result(opcode, match.A, match.full(total)) if total <= dtype.limits[1] else None


def _there_and_back(mask: Callable[[int, int], int]) -> Callable[[Match], Instruction | None]:
    """Equal shifts, one each way, clear the bits that were shifted out; ``mask`` is of amount and width."""

    def rewrite(match: Match) -> Instruction | None:
        amount, dtype = _amount(match.C1), match.array.dtype
        bits = dtype.bits
        if amount != _amount(match.C2) or amount >= bits:
            return None
        kept = mask(amount, bits)
        if dtype.kind == SIGNED and kept >= 1 << (bits - 1):
            kept -= 1 << bits
        return match.result("and", match.A, match.full(kept))

    return rewrite


def _is_not_negative(match: Match) -> bool:
    # The uppermost bit is a sign to an arithmetic shift of unsigned numbers too.
    known = match.range_of(match.A)
    return known.low >= 0 and known.high < 1 << (match.array.dtype.bits - 1)


RULES = (
    Rule("A % B => A where 0 <= A < B", (A % B).where(WHOLE), A, when=_is_below),
    Rule(
        "A / B => 0 where 0 <= A < B",
        (A / B).where(WHOLE),
        splat(0),
        when=_is_below,
    ),
    Rule("A / 2^N => A >> N", (A / N).where(WHOLE), _shift),
    Rule("A % 2^N => A & (2^N - 1)", (A % N).where(WHOLE), _mask),
    Rule(
        "(A % B) % B => A % B",
        op("remainder", op("remainder", A, B).bind("N"), B),
        var("N"),
        when=is_exact,
    ),
    Rule(
        "(A + C) % N => A % N where N divides C",
        ((A + C) % N).where(WHOLE),
        _without_multiples,
    ),
    Rule("(A * C) / C => A", ((A * C) / C).where(WHOLE), A, when=_fits_times),
    Rule("(A * C) % N => 0 where N divides C", ((A * C) % N).where(WHOLE), splat(0), when=_divides),
    Rule("(A / C1) / C2 => A / (C1 * C2)", ((A / C1) / C2).where(WHOLE), _divided_twice),
    Rule("A / A => 1 where A is not 0", (A / A).where(WHOLE), splat(1), when=_is_not_zero),
    Rule("A % A => 0", (A % A).where(WHOLE), splat(0)),
    Rule("A << 0 => A", op(_SHIFTS, A, C), A, when=lambda match: _amount(match.C) == 0),
    Rule(
        "A << width => 0",
        op(("shift-left", "shift-right-logical"), A, C),
        splat(0),
        when=lambda match: _amount(match.C) >= match.array.dtype.bits,
    ),
    Rule(
        "(A << C1) << C2 => A << (C1 + C2)",
        op(_SHIFTS, op(_SHIFTS, A, C1).bind("P"), C2),
        _shifted_twice,
        when=repeats_root,
    ),
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
