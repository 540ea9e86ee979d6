"""How many threads share large work."""

from __future__ import annotations

import os

from hloopt.errors import UsageError

__all__ = ["thread_count"]

_VARIABLE = "HLOOPT_THREADS"


def thread_count(given: int | None = None) -> int:
    """``given``, or else ``$HLOOPT_THREADS``, or else the cores this process may use.

    Raises ``UsageError`` for what is no positive number.
    """
    if given is not None:
        if given < 1:
            raise UsageError(f"{given} threads; at least 1 is needed")
        return given
    text = os.environ.get(_VARIABLE, "").strip()
    if text:
        if not (text.isascii() and text.isdigit() and int(text) > 0):
            raise UsageError(f"{_VARIABLE}={text!r} is not a positive number of threads")
        return int(text)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
