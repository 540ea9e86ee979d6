"""Times as XLA keeps them: whole ticks of a quarter of a nanosecond.

``absl::Duration`` rounds what it makes of a number of seconds, and each product of a time and a number, halves
away from zero; the steps in between are rounded as doubles are, which decides about halves.
"""

from __future__ import annotations

from math import floor, isinf
from typing import Final

__all__ = ["of_seconds", "scaled"]

_SECOND: Final = 4e9


def of_seconds(seconds: float) -> float:
    """Nanoseconds of a number of seconds; infinity stays."""
    return seconds if isinf(seconds) else floor(seconds * _SECOND + 0.5) / 4


def scaled(nanoseconds: float, factor: float) -> float:
    """Nanoseconds of a time in whole ticks times a number; infinity stays."""
    return of_seconds(nanoseconds * 4 * factor / _SECOND)
