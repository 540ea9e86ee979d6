"""Tasks on the machines of a cluster, by dask: the only import of distributed.

Dask brings texts to other machines and answers back.  There a worker of ours does the tasks, within its limits,
so that a task with which it dies costs no process of dask's, and is named.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any, Final
from uuid import uuid4

import dask
import distributed

from hloopt.errors import DeviceError
from hloopt.workers.pool import asked
from hloopt.workers.process import worker_of
from hloopt.workers.records import (
    TRIES,
    NoAnswer,
    TaskAnswer,
    WorkerFunction,
    WorkerLimits,
    WorkerTask,
)

__all__ = ["answers", "batches", "done"]

_AT_ONCE: Final = 8
"""Tasks of a group that travel together: one worker of ours does them, and keeps what they share."""

_SECONDS: Final = 10.0
"""How long a scheduler may take to answer."""


def answers(
    work: WorkerFunction,
    tasks: Sequence[WorkerTask],
    address: str,
    say: Callable[[str], object],
) -> Generator[TaskAnswer, None, None]:
    """The answers as they come, of the workers that a scheduler has, and of those that come to it later.

    Raises ``DeviceError`` where no scheduler answers, or its machines cannot do it.
    """
    config = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TiB"})
    with config, _client(address) as client:
        if not client.ncores():
            say(
                f"{address} has no machines yet; this begins when one comes: dask worker {_tcp(address)}"
            )
        batch_of: dict[Any, Sequence[WorkerTask]] = {}

        def sent(batch: Sequence[WorkerTask]) -> Any:
            texts = json.dumps([[one.key, one.payload] for one in batch])
            future = client.submit(done, _work_text(work), texts, pure=False, key=_name(batch))
            batch_of[future] = batch
            return future

        waiting = distributed.as_completed(
            [sent(batch) for batch in batches(tasks)], loop=client.loop
        )
        try:
            for future in waiting:
                batch = batch_of.pop(future)
                found = _answers_of(future, batch, address)
                if found is None:
                    waiting.update([sent([task]) for task in batch])
                else:
                    yield from found
        finally:
            client.cancel(list(batch_of), force=True)


def batches(tasks: Sequence[WorkerTask]) -> list[list[WorkerTask]]:
    """Tasks of one group that follow each other, a few at a time."""
    found: list[list[WorkerTask]] = []
    for task in tasks:
        last = found[-1] if found else None
        if last and task.group and task.group == last[0].group and len(last) < _AT_ONCE:
            last.append(task)
        else:
            found.append([task])
    return found


def done(work_text: str, texts: str) -> str:
    """On another machine: the answers to some tasks, JSON in and out."""
    fields = json.loads(work_text)
    version = fields.pop("version")
    if version != _version():
        raise DeviceError(f"hloopt is {_version()} there and {version} here")
    work = WorkerFunction(**{**fields, "limits": WorkerLimits(**fields["limits"])})
    rows = []
    with closing(worker_of(work)) as worker:
        for key, payload in json.loads(texts):
            found = asked(worker, WorkerTask(key, payload), TRIES)
            failure = found.failure
            rows.append([found.value, None if failure is None else [failure.reason, failure.kind]])
    return json.dumps(rows)


def _answers_of(future: Any, batch: Sequence[WorkerTask], address: str) -> list[TaskAnswer] | None:
    """The answers of a batch; None where each task has to be tried alone, to find the one that fails."""
    if future.status == "finished":
        return [
            TaskAnswer(task, value, None if failure is None else NoAnswer(*failure))
            for task, (value, failure) in zip(batch, json.loads(future.result()), strict=True)
        ]
    error = future.exception() if future.status == "error" else None
    if future.status == "error" and (error is None or type(error).__name__ == "KilledWorker"):
        if len(batch) > 1:
            return None
        return [TaskAnswer(batch[0], failure=NoAnswer("the machines of the cluster died of it"))]
    if future.status != "error":
        raise DeviceError(f"{address}: the scheduler is gone, or gave the tasks up")
    raise DeviceError(f"{address}: {error or type(error).__name__}") from error


def _client(address: str) -> Any:
    try:
        return distributed.Client(_tcp(address), timeout=_SECONDS, set_as_default=False)
    except OSError as error:  # as a timeout is, too
        raise DeviceError(f"no scheduler of dask answers at {address}") from error


def _tcp(address: str) -> str:
    """An address as dask has it."""
    return address.replace("dask:", "tcp:", 1)


def _work_text(work: WorkerFunction) -> str:
    return json.dumps({**asdict(work), "version": _version()})


def _version() -> str:
    return str(sys.modules["hloopt"].__version__)


def _name(batch: Sequence[WorkerTask]) -> str:
    """What dask's own pages show; no two are the same."""
    return f"{batch[0].key}-{uuid4().hex}"
