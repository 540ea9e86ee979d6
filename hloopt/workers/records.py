"""Tasks, what they may take, and what came of them."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from hloopt.dataclass import dataclass

__all__ = [
    "DEFECT",
    "NOT_BEGUN",
    "OUT_OF_MEMORY",
    "PAUSE",
    "RESUME",
    "TRIES",
    "UNLIMITED",
    "FailureKind",
    "NoAnswer",
    "TaskAnswer",
    "WorkerFunction",
    "WorkerLimits",
    "WorkerTask",
]

DEFECT: Final = 70
OUT_OF_MEMORY: Final = 71
NOT_BEGUN: Final = 72
"""Exit codes of a worker."""

PAUSE: Final = b"pause"
RESUME: Final = b"resume"
"""Lines between question and answer: while a worker waits for others, its time does not run."""

TRIES: Final = 2
"""How often a task is given to a worker: one that was killed may have been killed by chance."""

FailureKind: TypeAlias = Literal["crash", "timeout", "memory", "defect", "setup"]
"""``setup``: the worker could not begin, so that no other task can be done either."""


@dataclass(frozen=True)
class WorkerTask:
    """One piece of independent work.

    key      names it in results and errors; no two tasks of a run have the same
    payload  what the worker gets: JSON values
    group    tasks of a group are given to one worker in turn, which may keep what they share; empty for none
    """

    key: str
    payload: Any
    group: str = ""


@dataclass(frozen=True)
class WorkerLimits:
    """What a worker may take.

    seconds    for one task, from question to answer
    memory     bytes of writable memory, of the process as a whole
    processor  seconds of the processor for one task
    """

    seconds: float | None = None
    memory: int | None = None
    processor: float | None = None


UNLIMITED: Final = WorkerLimits()


@dataclass(frozen=True)
class WorkerFunction:
    """What workers do: a name of ``FUNCTIONS`` (``serving.py``), and JSON values that all tasks share."""

    function: str
    setup: Any
    limits: WorkerLimits = UNLIMITED


class NoAnswer(Exception):  # noqa: N818 - an outcome of the task, no error of those who ask
    """A worker hung, or died before it answered: ``reason`` is a clause."""

    def __init__(self, reason: str, kind: FailureKind = "crash") -> None:
        super().__init__(reason)
        self.reason, self.kind = reason, kind


@dataclass(frozen=True)
class TaskAnswer:
    """What came of a task: a value, or a failure."""

    task: WorkerTask
    value: Any = None
    failure: NoAnswer | None = None
