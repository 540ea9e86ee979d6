"""Numbers as people read them."""

from __future__ import annotations

import math

__all__ = ["amount", "byte_size", "error", "seconds"]


def seconds(value: float) -> str:
    """``1.23 ms``: three digits and the unit that suits them."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= scale:
            return f"{_three(value / scale)} {unit}"
    return f"{_three(value / 1e-9)} ns"


def byte_size(value: int) -> str:
    """``12.3 MiB``."""
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{value} B" if unit == "B" else f"{_three(size)} {unit}"
        size /= 1024
    raise AssertionError("unreachable: the last unit returns")


def amount(value: int) -> str:
    """``12.3 M``: counts of flops and elements."""
    size = float(value)
    for unit in ("", "k", "M", "G", "T", "P"):
        if size < 1000 or unit == "P":
            return str(value) if not unit else f"{_three(size)} {unit}"
        size /= 1000
    raise AssertionError("unreachable: the last unit returns")


def error(value: float) -> str:
    """``1.2e-07``; an exact result is ``0``."""
    return "0" if value == 0 else f"{value:.1e}"


def _three(value: float) -> str:
    if value >= 999.5 or not math.isfinite(value):
        return f"{value:.0f}"
    return f"{value:.3g}"
