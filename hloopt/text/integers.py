"""Integers of a text: 64 bits wide, whatever their number of digits."""

from __future__ import annotations

from hloopt.text.problem import Problem, shortened
from hloopt.text.token import Token

__all__ = ["integer", "integers"]

_MOST_DIGITS = 20
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1


def integer(text: str, offset: int = 0) -> int:
    """The value of ``-?[0-9]+``; as in XLA, what 63 bits do not hold is read as negative.

    ``offset`` is where ``text`` stands, unless it is a token.  Raises ``Problem`` beyond 64 bits.
    """
    # Python refuses to read very long numbers, zeros in front included.
    digits = text if len(text) <= _MOST_DIGITS else _without_zeros(text)
    value = int(digits) if len(digits) <= _MOST_DIGITS else _MOST + 1
    if _LEAST <= value < 1 << 63:
        return value
    if value > _MOST or value < _LEAST:
        at = text.begin if isinstance(text, Token) else offset
        raise Problem(at, f"{shortened(text)} does not fit into 64 bits", text)
    return value - (1 << 64)


def integers(tokens: list[Token]) -> tuple[int, ...]:
    """The values of several tokens."""
    return tuple(map(integer, tokens))


def _without_zeros(text: str) -> str:
    sign = "-" if text[0] == "-" else ""
    return sign + (text.lstrip("-").lstrip("0") or "0")
