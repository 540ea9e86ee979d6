"""Compiled while loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from hloopt.runtime.numpy.plan import Function

__all__ = ["Stuck", "loop", "trips"]

Stuck = Callable[[int], None]
"""Told the number of a trip that has changed nothing: raises unless a further trip may end the loop."""

# At powers of two from here on a trip is watched: that costs a look at all of the state.
_FIRST_WATCHED = 256


def loop(
    condition: Function, body: Function, kept: Function, copied: Sequence[int], stuck: Stuck
) -> Function:
    """A loop over flat state; ``kept`` is what buffers keep of it.

    The body writes over parts of the state; those at the places ``copied`` are somebody else's and are copied
    before the first trip.
    """

    def run(*state: Any) -> tuple[Any, ...]:
        if copied:
            private = list(state)
            for at in copied:
                private[at] = np.array(private[at])
            state = tuple(private)
        return trips(condition, body, kept, kept(state), stuck)[0]

    return run


def trips(
    condition: Function, body: Function, kept: Function, state: tuple[Any, ...], stuck: Stuck
) -> tuple[tuple[Any, ...], int]:
    """The state after the last trip, and how many there were."""
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
    digest = blake2b(digest_size=16)
    for value in state:
        array = np.ascontiguousarray(value).reshape(-1)
        digest.update(array.view(np.uint8).data)
    return digest.digest()
