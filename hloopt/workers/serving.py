"""The worker's side: tasks in, answers out, a JSON line each, within limits."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Final, NoReturn

from hloopt.errors import HlooptError
from hloopt.lazy_table import attributes
from hloopt.workers.records import (
    DEFECT,
    NOT_BEGUN,
    OUT_OF_MEMORY,
    PAUSE,
    RESUME,
    UNLIMITED,
    WorkerLimits,
)

__all__ = ["FUNCTIONS", "Channel", "main", "paused", "serve"]

FUNCTIONS: Final[Mapping[str, Callable[[Any], Callable[[Any], Any]]]] = attributes(
    "hloopt", {"study": "cli.study_worker.prepared"}
)
"""All that workers of hloopt can do: what makes, of JSON values that all tasks share, the function that answers
one task."""

_LATER: Final = 10.0
"""Seconds after its time that a worker ends itself: it is ended before, unless those who asked are gone."""


class Channel:
    """The standard streams of this process, which only answers go through from now on.

    What else is printed goes to standard error; nothing else can be read.
    """

    current: ClassVar[Channel | None] = None

    def __init__(self) -> None:
        self._lines = os.fdopen(os.dup(0), "rb")
        self._answers = os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        sys.stdout.flush()
        os.dup2(2, 1)
        Channel.current = self

    def questions(self) -> Iterator[Any]:
        """What is asked, until those who ask are gone."""
        while line := self._lines.readline():
            if not line.endswith(b"\n"):
                return  # those who asked are gone
            yield json.loads(line)

    def say(self, line: bytes) -> None:
        """Write a line; ends this process where those who asked are gone."""
        content = line + b"\n"
        try:
            while content:
                content = content[os.write(self._answers, content) :]
        except BrokenPipeError:
            os._exit(0)


def main() -> None:
    """What ``worker_of`` starts: serve until those who ask are gone.

    The first line is the greeting: what all tasks share, and the limits.
    """
    channel = Channel()
    (name,) = sys.argv[1:]
    greeting = next(channel.questions(), None)
    if greeting is None:
        return
    try:
        with paused():  # what a worker needs to begin is no part of its first task
            function = FUNCTIONS[name](greeting["setup"])
    except HlooptError as error:
        _end(NOT_BEGUN, " ".join(str(error).split()))
    serve(function, WorkerLimits(**greeting["limits"]), channel)


def serve(
    answer: Callable[[Any], Any], limits: WorkerLimits = UNLIMITED, channel: Channel | None = None
) -> None:
    """Answer what is asked on standard input.

    What ``answer`` raises ends the process, and so do the limits: those who asked are told by its exit code or
    the signal, and by what standard error has last.
    """
    channel = channel or Channel()
    if limits.memory is not None:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (limits.memory, hard))
    for question in channel.questions():
        _clocks(limits, 1)
        try:
            line = json.dumps(answer(question)).encode()
        except MemoryError as error:
            _end(OUT_OF_MEMORY, str(error))
        except Exception:  # noqa: BLE001 - whatever it is, those who asked are told
            _end(DEFECT, traceback.format_exc())
        _clocks(limits, 0)
        channel.say(line)


@contextmanager
def paused() -> Iterator[None]:
    """While a worker waits for others: this does not count as its time.  Nothing in other processes."""
    channel = Channel.current
    if channel is None:
        yield
        return
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    channel.say(PAUSE)
    try:
        yield
    finally:
        channel.say(RESUME)
        signal.setitimer(signal.ITIMER_REAL, left)


def _clocks(limits: WorkerLimits, on: int) -> None:
    """Signals that end the process where it takes too long: a loop inside of a library comes to no handler."""
    if limits.processor is not None:
        signal.setitimer(signal.ITIMER_PROF, on * limits.processor)
    if limits.seconds is not None:
        signal.setitimer(signal.ITIMER_REAL, on * (limits.seconds + _LATER))


def _end(code: int, said: str) -> NoReturn:
    """End this process at once, with a last line on standard error."""
    os.write(2, f"{said}\n".encode(errors="replace"))
    os._exit(code)
