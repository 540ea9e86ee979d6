"""What a terminal shows while somebody waits: on stderr, gone in the end, nothing where that is no terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["patience", "progress"]

_PATIENCE = 2.0  # seconds without a word
_CLEAR = "\r\x1b[K"

Item = TypeVar("Item")


@contextmanager
def progress(items: Sequence[Item], called: Callable[[Item], str]) -> Iterator[Iterable[Item]]:
    """The items, with a bar when there are several; ``called`` names one."""
    if len(items) < 2 or not sys.stderr.isatty():
        yield items
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("modules", total=len(items))

        def each() -> Iterator[Item]:
            for item in items:
                bar.update(task, description=called(item)[:40])
                yield item
                bar.advance(task)

        yield each()


@contextmanager
def patience(what: str | Callable[[], str], *, alone: bool = True) -> Iterator[None]:
    """What is being done and for how many seconds, when it takes more than two of them.

    A function is asked anew each second, in another thread.  Nothing unless ``alone``: ``progress`` tells
    of one among several.
    """
    if not alone or not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    teller = threading.Thread(target=_tell, args=(what, done), daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _tell(what: str | Callable[[], str], done: threading.Event) -> None:
    seconds = _PATIENCE
    if done.wait(seconds):
        return
    from shutil import get_terminal_size

    while True:
        width = get_terminal_size().columns
        told = what if isinstance(what, str) else what()
        sys.stderr.write(_CLEAR + f"{told}: {seconds:.0f} s"[: width - 1])
        sys.stderr.flush()
        if done.wait(1.0):
            break
        seconds += 1
    sys.stderr.write(_CLEAR)
    sys.stderr.flush()
