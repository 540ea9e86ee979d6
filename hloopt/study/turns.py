"""Whose turn it is to measure: while one process of a study takes times, the others on its machine wait."""

from __future__ import annotations

import fcntl
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

from hloopt.cache_folder import own_folder
from hloopt.workers.serving import paused

__all__ = ["Turns"]


class Turns:
    """Processes of one study, named alike, work together, or one works alone, in the order they asked.

    By two bytes of a file in the cache folder, locked by the system: a process that dies gives its turn back.
    Without such a folder none waits.
    """

    def __init__(self, name: str) -> None:
        self._file: int | None = None
        folder = own_folder("turns", make=True)
        if folder is not None:
            # A home may be shared by machines, whose turns are their own.
            path = folder / (platform.node() or "here")
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        place = int.from_bytes(blake2b(name.encode(), digest_size=7).digest())
        self._at, self._entry = 2 * place, 2 * place + 1

    @contextmanager
    def shared(self) -> Iterator[None]:
        """A context in which no other process works alone."""
        self._enter(fcntl.LOCK_SH)
        try:
            yield
        finally:
            self._lock(fcntl.LOCK_UN, self._at)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within ``shared``: a context in which no other process works."""
        self._enter(fcntl.LOCK_EX)
        try:
            yield
        finally:
            self._enter(fcntl.LOCK_SH)

    def _enter(self, way: int) -> None:
        """Wait for a turn; who waits to be alone lets none in who comes later."""
        with paused():
            self._lock(fcntl.LOCK_UN, self._at)
            self._lock(fcntl.LOCK_EX, self._entry)
            try:
                self._lock(way, self._at)
            finally:
                self._lock(fcntl.LOCK_UN, self._entry)

    def _lock(self, way: int, place: int) -> None:
        if self._file is not None:
            fcntl.lockf(self._file, way, 1, place)
