"""Times as XLA keeps them: whole ticks of a quarter of a nanosecond (``absl::Duration``)."""

from __future__ import annotations

from math import floor, isinf

__all__ = ["whole_ticks"]


def whole_ticks(time: float) -> float:
    """Nanoseconds to the next tick, up where two are equally near; infinity stays."""
    return time if isinf(time) else floor(time * 4 + 0.5) / 4
