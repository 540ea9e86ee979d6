"""Loops that do not end, and how they are detected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloopt.backends.numpy.plan import Function

__all__ = ["UNWATCHED", "Stuck", "iterate", "watch"]

Stuck = Callable[[int], None]
"""Called with the number of an iteration that changed nothing: raises unless a later one may end the loop."""

# Iterations are watched at powers of two from here on: each hashes all of the state.
_FIRST_WATCHED = 256

UNWATCHED = f"{_FIRST_WATCHED - 1}, {_FIRST_WATCHED - 1}, None"
"""What ``watch`` says of a loop before its first iteration, in Python."""


def watch(
    stuck: Stuck, state: Sequence[Any], chunk: int, done: int, before: bytes | None
) -> tuple[int, int, bytes | None]:
    """Compare a loop's state before and after a watched iteration.

    Returns how many may follow before the next look, how often the body has run by then, and what the state
    is like now if the next iteration is watched.
    """
    if before is None:
        return 1, done + 1, _digest(state)
    if before == _digest(state):
        stuck(done)
    return done - 1, 2 * done - 1, None


def iterate(
    condition: Function, body: Function, kept: Function, state: tuple[Any, ...], stuck: Stuck
) -> tuple[tuple[Any, ...], int]:
    """The state after the last iteration, and how many there were."""
    done, watched = 0, _FIRST_WATCHED
    while condition(*state)[0]:
        done += 1
        if done != watched:
            state = kept(body(*state))
            continue
        watched *= 2
        before = _digest(state)
        state = kept(body(*state))
        if before == _digest(state):
            stuck(done)
    return state, done


def _digest(state: Sequence[Any]) -> bytes:
    """Equal for equal bits: a copy of a large state would cost as much memory again."""
    from hashlib import blake2b  # slower to load than most loops are to run

    digest = blake2b(digest_size=16)
    for value in state:
        array = np.ascontiguousarray(value).reshape(-1)
        digest.update(array.view(np.uint8).data)
    return digest.digest()
