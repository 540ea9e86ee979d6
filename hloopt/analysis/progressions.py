"""Arithmetic of numbers that go round: when does ``start + t * step`` modulo a power of two get somewhere?"""

from __future__ import annotations

from collections.abc import Iterable

from hloopt.types import DType

__all__ = ["first_within", "first_within_any", "wrapped"]


def wrapped(value: int, kind: DType) -> int:
    """The value of an integer type that is congruent to ``value`` modulo 2 to the power of its bits."""
    value &= (1 << kind.bits) - 1
    if kind.kind == "signed" and value >> (kind.bits - 1):
        value -= 1 << kind.bits
    return value


def first_within(start: int, step: int, modulus: int, low: int, high: int) -> int | None:
    """The least t >= 0 for which ``start + t * step`` is congruent to one of low, low + 1 ... high.

    None where there is no such t, or no number from ``low`` to ``high``.  Takes a number of steps that is
    logarithmic in the modulus, as Euclid's algorithm does.
    """
    if high < low:
        return None
    if high - low + 1 >= modulus:
        return 0
    left = (low - start) % modulus
    right = left + high - low
    if left == 0 or right >= modulus:
        return 0
    return _first_multiple(step % modulus, modulus, left, right)


def first_within_any(
    start: int, step: int, modulus: int, ranges: Iterable[tuple[int, int]]
) -> int | None:
    """As ``first_within``, for several ranges (low, high)."""
    found = (first_within(start, step, modulus, low, high) for low, high in ranges)
    return min((one for one in found if one is not None), default=None)


def _first_multiple(step: int, modulus: int, low: int, high: int) -> int | None:
    """The least t >= 0 with ``low <= t * step % modulus <= high``, where 0 <= low <= high < modulus.

    Without a multiple of the step in the range, the last one below it is short by a remainder; the number
    of rounds through the modulus is the solution of the same question modulo the step.
    """
    if low == 0:
        return 0
    if step == 0:
        return None
    if 2 * step > modulus:
        return _first_multiple(modulus - step, modulus, modulus - high, modulus - low)
    direct = -(-low // step)
    if direct * step <= high:
        return direct
    rounds = _first_multiple(modulus % step, step, -high % step, -low % step)
    return None if rounds is None else -(-(low + rounds * modulus) // step)
