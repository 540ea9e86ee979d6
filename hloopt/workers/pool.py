"""Tasks spread over workers: those of this machine here, a thread each, which asks and waits."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, Protocol, TypeAlias

from hloopt.errors import DeviceError, UsageError
from hloopt.extras import install_command
from hloopt.lazy_table import attributes
from hloopt.workers.process import worker_of
from hloopt.workers.records import TRIES, NoAnswer, TaskAnswer, WorkerFunction, WorkerTask

__all__ = ["Answering", "Workers", "answers", "asked", "parse_workers", "spread"]

Workers: TypeAlias = int | str
"""How many on this machine, or the address of a scheduler of dask."""

_ELSEWHERE: Final = attributes("hloopt.workers", {"dask": "on_dask.answers"})
"""What loads distributed, where it is needed."""

_DASK: Final = re.compile(r"dask://([^/\s]+:\d+)/?")


class Answering(Protocol):
    """What answers one task at a time, such as a ``Worker``.

    ``ask`` raises ``NoAnswer``.  ``stop`` lets it do so at once, and is called by another thread.
    """

    def ask(self, payload: Any) -> Any: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...


def parse_workers(text: str) -> Workers:
    """The value of ``--workers``: a number, or ``dask://HOST:PORT``.  Raises ``UsageError``."""
    if text.isdecimal() and int(text) > 0:
        return int(text)
    if found := _DASK.fullmatch(text):
        return f"dask://{found[1]}"
    raise UsageError(f"--workers takes a number from 1, or dask://HOST:PORT, not '{text}'")


def spread(
    work: WorkerFunction,
    tasks: Sequence[WorkerTask],
    workers: Workers,
    say: Callable[[str], object] = str,
) -> Generator[TaskAnswer, None, None]:
    """The answers as they come; ``say`` gets what those who wait should know.

    Raises ``DeviceError`` where workers cannot begin: distributed is not installed, no scheduler answers, or
    its machines have another hloopt.
    """
    if isinstance(workers, int):
        return answers(tasks, partial(worker_of, work), workers, tries=TRIES)
    try:
        by_dask = _ELSEWHERE["dask"]
    except ModuleNotFoundError as error:
        message = f"--workers dask:// needs distributed: {install_command('scale')}"
        raise DeviceError(message) from error
    found: Generator[TaskAnswer, None, None] = by_dask(work, tasks, workers, say)
    return found


def answers(
    tasks: Sequence[WorkerTask], make: Callable[[], Answering], count: int, *, tries: int = 1
) -> Generator[TaskAnswer, None, None]:
    """The answers of ``count`` workers that ``make`` makes, as they come.

    A worker takes the tasks of one group in turn, then those of the next; when no group is left it takes tasks
    from the end of the longest.  A task with which a worker dies is tried ``tries`` times, each time by a new
    process.  Other exceptions are raised here.  When no more answers are taken all workers are ended.
    """
    waiting, found = _Waiting(tasks), SimpleQueue[TaskAnswer | BaseException]()
    workers = [make() for _ in range(min(count, len(tasks)))]

    def work(worker: Answering) -> None:
        group: str | None = None
        try:
            while (task := waiting.take(group)) is not None:
                group = task.group
                found.put(asked(worker, task, tries))
        except BaseException as error:  # noqa: BLE001 - it is raised where the answers are taken
            found.put(error)

    threads = [Thread(target=work, args=(worker,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        for _ in tasks:
            answer = found.get()
            if isinstance(answer, BaseException):
                raise answer
            yield answer
    finally:
        waiting.clear()
        for worker in workers:
            worker.stop()
        for thread in threads:
            thread.join()
        for worker in workers:
            worker.close()


def asked(worker: Answering, task: WorkerTask, tries: int) -> TaskAnswer:
    """The answer to a task; a crash may have another cause, so that it may be tried again.

    Raises ``DeviceError`` where workers cannot even begin.
    """
    for left in reversed(range(tries)):
        try:
            return TaskAnswer(task, worker.ask(task.payload))
        except NoAnswer as failure:
            if failure.kind == "setup":
                raise DeviceError(f"workers cannot begin: {failure.reason}") from failure
            if failure.kind != "crash" or not left:
                return TaskAnswer(task, failure=failure)
    raise AssertionError("unreachable: the last try returns")


class _Waiting:
    """The tasks that no worker has yet, by group."""

    def __init__(self, tasks: Sequence[WorkerTask]) -> None:
        self._lock = Lock()
        self._groups: dict[str, deque[WorkerTask]] = {}
        for task in tasks:
            self._groups.setdefault(task.group, deque()).append(task)
        self._unbegun = deque(self._groups)

    def take(self, group: str | None) -> WorkerTask | None:
        """The next of the group that a worker is at, else of one that none has begun, else of the longest."""
        with self._lock:
            if group is not None and self._groups.get(group):
                return self._next(group)
            while self._unbegun:
                if self._groups[name := self._unbegun.popleft()]:
                    return self._next(name)
            left = max(self._groups, key=lambda name: len(self._groups[name]), default="")
            if not self._groups.get(left):
                return None
            return self._groups[left].pop() if left else self._next(left)

    def _next(self, group: str) -> WorkerTask:
        return self._groups[group].popleft()

    def clear(self) -> None:
        """Give out no more."""
        with self._lock:
            self._groups.clear()
            self._unbegun.clear()
