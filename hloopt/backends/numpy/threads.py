"""Numbered tasks shared among threads.

There is one pool per process, made when it is first used; the calling thread works too, so that one
thread needs no pool.  NumPy releases Python's lock inside its loops, which is where the time goes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Condition, Lock
from typing import TYPE_CHECKING, Final

import numpy as np

from hloopt.errors import UsageError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = ["VARIABLE", "Tasks", "in_parallel", "thread_count"]

VARIABLE: Final = "HLOOPT_THREADS"
"""The environment variable with the default number of threads."""


def thread_count(requested: int | None = None) -> int:
    """The number of threads: ``requested``, or the environment's, or as many as cores this process may use.

    Raises ``UsageError`` for a number below 1, and for a variable that is not a number or one below 1.
    """
    if requested is None:
        text = os.environ.get(VARIABLE, "").strip()
        if not text:
            return _cores()
        if not text.isdecimal() or int(text) < 1:
            raise UsageError(f"{VARIABLE} is '{text}', not a number of threads")
        return int(text)
    if requested < 1:
        raise UsageError(f"the number of threads must be at least 1, got {requested}")
    return requested


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


class Tasks(Iterator[int]):
    """Numbers below ``count``, each given to one thread; none once ``stopped``, for which long tasks look."""

    def __init__(self, count: int) -> None:
        self._numbers = iter(range(count))
        self.stopped = False

    def __next__(self) -> int:
        if self.stopped:
            raise StopIteration
        return next(self._numbers)


Work = Callable[[Tasks], None]
"""Does the tasks whose numbers it is given, one after the other."""


class _Crew:
    """The threads that help with some tasks; one that starts when they are done leaves again.

    A helper the pool has taken on may begin at any time, or never: one that has not may not be waited for.
    """

    def __init__(self, work: Work, tasks: Tasks) -> None:
        self.work, self.tasks = work, tasks
        self.error: BaseException | None = None
        self._gate = Condition()
        self._inside = 0
        self._closed = False

    def help_out(self) -> None:
        """The work of a helper thread; an exception stops the others and is kept."""
        with self._gate:
            if self._closed:
                return
            self._inside += 1
        try:
            # Each thread has its own error state; HLO's arithmetic has no traps.
            with np.errstate(all="ignore"):
                self.work(self.tasks)
        except BaseException as error:  # noqa: BLE001 - raised again by in_parallel
            self.tasks.stopped = True
            self.error = error
        finally:
            with self._gate:
                self._inside -= 1
                self._gate.notify_all()

    def close(self) -> None:
        """Let no other thread in, and wait for those that are inside."""
        with self._gate:
            self._closed = True
            self._gate.wait_for(lambda: self._inside == 0)


class _Pool:
    """Threads that wait for work; a forked process begins without any."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._size = 0

    def submit(self, work: Callable[[], None], count: int) -> None:
        """Have ``count`` threads do the same work, or as many as the system gives; some may begin late."""
        from concurrent.futures import ThreadPoolExecutor

        with self._lock:
            if self._executor is None or self._size < count:
                if self._executor is not None:
                    self._executor.shutdown(wait=False)
                self._size = count
                self._executor = ThreadPoolExecutor(count, thread_name_prefix="hloopt")
            # RuntimeError where the system has no more threads: the existing ones do all of the work.
            with suppress(RuntimeError):
                for _ in range(count):
                    self._executor.submit(work)

    def forget(self) -> None:
        """Drop threads that belong to the parent process."""
        self._lock = Lock()
        self._executor = None
        self._size = 0


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.forget)


def in_parallel(count: int, work: Work, threads: int) -> None:
    """Have up to ``threads`` threads do ``count`` tasks: each calls ``work`` with the numbers it is to take.

    Returns when all are done.  What ``work`` raises, Ctrl-C too, stops all threads after their present task
    and is raised when none is running any more.
    """
    tasks = Tasks(count)
    helpers = min(threads, count) - 1
    if helpers <= 0:
        work(tasks)
        return

    crew = _Crew(work, tasks)
    try:
        _pool.submit(crew.help_out, helpers)
        work(tasks)
        crew.close()
    except BaseException:
        tasks.stopped = True
        crew.close()
        raise
    if crew.error is not None:
        raise crew.error
