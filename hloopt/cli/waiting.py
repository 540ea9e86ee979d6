"""The progress line of long work: on stderr, removed in the end, nothing where that is not a terminal."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias, TypeVar

import click

from hloopt.cli.streams import STATUS
from hloopt.process import AT_WORK, QuietThread
from hloopt.source import columns
from hloopt.visible_text import visible

__all__ = ["INTERRUPTED", "interrupted", "patience", "progress"]

_PATIENCE = float(
    os.environ.get("_HLOOPT_PATIENCE", "2")
)  # seconds before the first line; for tests
_SOONEST: Final = 3.0  # seconds of work before its end is estimated
_LEAST: Final = 0.005  # the part of it that has to be done by then
INTERRUPTED: Final = 130
"""The exit code after Ctrl-C."""
_SHORTEST: Final = 16  # columns that are left of a name, however narrow a terminal is

Item = TypeVar("Item")
_Status: TypeAlias = Callable[[], tuple[str, str, str, float | None]]
"""What is being done, to what, how far it is, and that as a part of the whole, from 0 to 1, if known."""


def interrupted(done: int, wanted: int, what: str = "modules") -> int:
    """Say after Ctrl-C how much of the work is done, and so is printed; the exit code."""
    click.echo(f"\ninterrupted: {done} of {wanted} {what} are done", err=True)
    return INTERRUPTED


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
        lambda: (f"{at + 1} of {len(items)}:", called(items[at]), "", at / len(items)),
        wanted=len(items) > 1,
    ):
        yield each()


@contextmanager
def patience(
    doing: str,
    name: str = "",
    stage: Callable[[], str] = str,
    *,
    part: Callable[[], float | None] = lambda: None,
    alone: bool = True,
) -> Iterator[None]:
    """What is being done to what, and for how many seconds, when it takes more than two of them.

    ``stage`` is polled each second for the progress, in another thread, and so is ``part``: how much of
    the work is done, from 0 to 1, which gives the estimate of the end.  Nothing unless ``alone``: ``progress``
    shows one among several.
    """
    with _shown_while(lambda: (doing, name, stage(), part()), wanted=alone and bool(doing)):
        yield


class _Remaining:
    """An estimate of the time left: what remains, at the speed since the work, or a stage of it, began."""

    def __init__(self) -> None:
        self._restart(0.0)

    def _restart(self, part: float) -> None:
        self._began, self._first, self._last = time.monotonic(), part, part

    def text(self, part: float | None) -> str:
        """``", about 40 s left"``; empty while too little is done to tell."""
        if part is None or part < self._last:  # another stage
            self._restart(part or 0.0)
            return ""
        self._last = part
        passed, done = time.monotonic() - self._began, part - self._first
        if passed < _SOONEST or done < _LEAST:
            return ""
        left = passed * (1 - part) / done
        return f", about {_rounded(left)} left"


def _rounded(seconds: float) -> str:
    """A time to about two digits: an estimate has no more."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.0f} h"


@contextmanager
def _shown_while(status: _Status, *, wanted: bool) -> Iterator[None]:
    if not wanted or not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    display = QuietThread(target=_show, args=(status, done), daemon=True)
    display.start()
    try:
        yield
    finally:
        done.set()
        display.join()
        STATUS.clear()


def _show(status: _Status, done: threading.Event) -> None:
    seconds, remaining = _PATIENCE, _Remaining()
    if done.wait(seconds):
        return
    with AT_WORK:
        from shutil import get_terminal_size  # it loads three formats of archives

    while True:
        with AT_WORK:
            *words, part = status()
            doing, name, stage = map(visible, words)
            rest = f"{': ' if stage else ''}{stage}: {seconds:.0f} s{remaining.text(part)}"
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
