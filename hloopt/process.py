"""What there is once in a process: notes that the command line shows in its end, and quiet threads.

Notes say such as why no cache is used.  Quiet threads do not keep a process from being copied (``os.fork``).
"""

from __future__ import annotations

import threading
from typing import Final

__all__ = ["AT_WORK", "QuietThread", "add_note", "is_alone", "notes"]

_NOTES: dict[str, None] = {}


def add_note(note: str) -> None:
    """Remember what the command line is to say, once."""
    _NOTES[note] = None


def notes() -> tuple[str, ...]:
    """What there is to say."""
    return tuple(_NOTES)


AT_WORK: Final = threading.Lock()
"""Held by a quiet thread while it does anything but wait, and by the thread that copies the process."""


class QuietThread(threading.Thread):
    """A thread that holds ``AT_WORK`` while it works: when the process is copied it has no lock of the copy.

    What it calls under that lock must not wait for the thread that copies.
    """


def is_alone() -> bool:
    """Whether all other threads of the process are quiet."""
    quiet = sum(isinstance(one, QuietThread) for one in threading.enumerate())
    return threading.active_count() - quiet == 1
