"""The progress line of long work: on stderr, removed in the end, nothing where that is not a terminal."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias, TypeVar

from hloopt.cli.streams import STATUS
from hloopt.source import columns
from hloopt.visible_text import visible

__all__ = ["patience", "progress"]

_PATIENCE = float(
    os.environ.get("_HLOOPT_PATIENCE", "2")
)  # seconds before the first line; for tests
_SHORTEST: Final = 16  # columns that are left of a name, however narrow a terminal is

Item = TypeVar("Item")
_Status: TypeAlias = Callable[[], tuple[str, str, str]]
"""What is being done, to what, and how far it is."""


@contextmanager
def progress(items: Sequence[Item], called: Callable[[Item], str]) -> Iterator[Iterable[Item]]:
    """The items; the current one is shown when there are several.  ``called`` names one."""
    at = 0

    def each() -> Iterator[Item]:
        nonlocal at
        for number, item in enumerate(items):
            at = number
            yield item

    with _shown_while(
        lambda: (f"{at + 1} of {len(items)}:", called(items[at]), ""), wanted=len(items) > 1
    ):
        yield each()


@contextmanager
def patience(
    doing: str, name: str = "", stage: Callable[[], str] = str, *, alone: bool = True
) -> Iterator[None]:
    """What is being done to what, and for how many seconds, when it takes more than two of them.

    ``stage`` is polled each second for the progress, in another thread.  Nothing unless ``alone``: ``progress``
    shows one among several.
    """
    with _shown_while(lambda: (doing, name, stage()), wanted=alone and bool(doing)):
        yield


@contextmanager
def _shown_while(status: _Status, *, wanted: bool) -> Iterator[None]:
    if not wanted or not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    display = threading.Thread(target=_show, args=(status, done), daemon=True)
    display.start()
    try:
        yield
    finally:
        done.set()
        display.join()
        STATUS.clear()


def _show(status: _Status, done: threading.Event) -> None:
    seconds = _PATIENCE
    if done.wait(seconds):
        return
    from shutil import get_terminal_size  # it loads three formats of archives

    while True:
        doing, name, stage = map(visible, status())
        rest = f"{': ' if stage else ''}{stage}: {seconds:.0f} s"
        STATUS.show(_line(doing, name, rest, get_terminal_size().columns - 1))
        if done.wait(1.0):
            return
        seconds += 1


def _line(doing: str, name: str, rest: str, room: int) -> str:
    """A line no wider than ``room``: the progress is at its end, so names are cut first."""
    if name:
        left = room - columns(doing) - 1 - columns(rest)
        doing = f"{doing} {_end(name, max(left, _SHORTEST))}"
    return _end(doing + rest, room)


def _end(text: str, room: int) -> str:
    """A text, or as much of its end as there is room for."""
    if columns(text) <= room:
        return text
    text = text[-room:]
    while columns(text) > max(room - 3, 0):
        text = text[1:]
    return f"...{text}"[:room]
