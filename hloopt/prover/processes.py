"""Work in processes of its own: what crashes or does not end is an answer."""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from time import monotonic
from typing import ClassVar, Final, Generic, Literal, NoReturn, TypeVar

from hloopt.dataclass import dataclass
from hloopt.process import AT_WORK, is_alone

__all__ = [
    "CAN_FORK",
    "ChildProcess",
    "StoppedWork",
    "available_cores",
    "can_work_beside",
    "side_by_side",
]

CAN_FORK: Final = hasattr(os, "fork")

T = TypeVar("T")


@dataclass(frozen=True)
class StoppedWork:
    """Why a process gave no answer, as a clause."""

    kind: Literal["timeout", "crash"]
    reason: str


class ChildProcess(Generic[T]):
    """A process that does ``work``.  It has all that this one has, so that the work is written nowhere.

    ``seconds`` is how long it may take.  The work raises nothing; its value can be pickled.
    """

    _is_this: ClassVar[bool] = False

    def __init__(self, work: Callable[[], T], seconds: float | None) -> None:
        self._end = None if seconds is None else monotonic() + seconds
        self._seconds = seconds
        self._content = b""
        self._read, write = os.pipe()
        with AT_WORK:
            self._pid = os.fork()
        if self._pid == 0:
            os.close(self._read)
            _answer(write, work)
        os.close(write)

    def answer(self) -> T | StoppedWork:
        """Wait for the value."""
        while True:
            left = None if self._end is None else max(self._end - monotonic(), 0.0)
            if not select.select([self._read], [], [], left)[0]:
                return StoppedWork("timeout", f"more than {self._seconds:g} seconds")
            part = os.read(self._read, 1 << 16)
            if not part:
                break
            self._content += part
        if self._content:
            found: T = pickle.loads(self._content)  # noqa: S301 - our own process wrote it
            return found
        return StoppedWork("crash", _how(self._wait()))

    def _wait(self) -> int:
        pid, self._pid = self._pid, 0
        return os.waitpid(pid, 0)[1]

    def end(self) -> None:
        """End the process, and all that it has started."""
        if self._pid:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self._wait()
        if self._read >= 0:
            os.close(self._read)
            self._read = -1


def side_by_side(
    works: Iterable[Callable[[], T]], jobs: int, seconds: float | None
) -> Generator[T | StoppedWork, None, None]:
    """The values of works in their order, ``jobs`` of which are done at a time.

    What is not done yet is ended when no more values are taken.
    """
    children: deque[ChildProcess[T]] = deque()
    try:
        for work in works:
            children.append(ChildProcess(work, seconds))
            if len(children) > jobs:  # the first is waited for while the others work
                yield children[0].answer()
                children.popleft().end()
        while children:
            yield children[0].answer()
            children.popleft().end()
    finally:
        for child in children:
            child.end()


def can_work_beside() -> bool:
    """Whether a ``ChildProcess`` may do a part of this one's work at the same time.

    A process with other threads may not be copied, quiet ones apart: a lock that one of them holds is never
    free again.  Python does not count the threads of JAX, which warns of each copy.
    """
    return CAN_FORK and is_alone() and "jax" not in sys.modules and available_cores() > 1


def available_cores() -> int:
    """How many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"ended with exit code {os.WEXITSTATUS(status)}"


def _answer(write: int, work: Callable[[], object]) -> NoReturn:
    """What the new process does; it never returns to what the old one was doing."""
    code = 0
    try:
        if not ChildProcess._is_this:  # what a child starts ends with the group of the child
            os.setpgid(0, 0)
        ChildProcess._is_this = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        content = pickle.dumps(work())
        while content:
            content = content[os.write(write, content) :]
    except BaseException:  # noqa: BLE001 - the old process is told by the missing answer
        code = 70
    finally:
        os._exit(code)
