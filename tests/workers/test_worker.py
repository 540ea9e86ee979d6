"""Workers: real processes that answer, crash, hang, take too much, and are killed."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise

import pytest

from hloopt.errors import DeviceError, UsageError
from hloopt.workers import pool
from hloopt.workers.pool import answers, parse_workers, spread
from hloopt.workers.process import Worker, worker_of
from hloopt.workers.records import NoAnswer, WorkerFunction, WorkerTask
from hloopt.workers.serving import FUNCTIONS

CHILD = """
import os, sys, time
from hloopt.workers.records import WorkerLimits
from hloopt.workers.serving import paused, serve

def answer(question):
    if question == "memory":
        return len(bytearray(1 << 30))
    if question == "loop":
        while True: pass
    if question == "print":
        print("not an answer")
        os.system("echo nor this")
    if question == "defect":
        raise ValueError("of a kind")
    if question == "wait":
        with paused():
            time.sleep(0.8)
        time.sleep(0.2)
    if question == "read":
        return sys.stdin.read()
    return [question, os.getpid()]

serve(answer, WorkerLimits(LIMITS))
"""


def child(limits: str = "") -> tuple[str, ...]:
    return (sys.executable, "-c", CHILD.replace("LIMITS", limits))


@pytest.fixture
def worker() -> Iterator[Worker]:
    """A worker within 400 MB and half a second of the processor."""
    with closing(Worker(child("memory=400_000_000, processor=0.5"), 60)) as made:
        yield made


def test_what_ends_a_worker_is_the_answer_to_its_task(worker: Worker) -> None:
    """Each kind is told apart, and the next task gets a new process; what it prints is no answer."""
    _, first = worker.ask("print")
    assert worker.ask("read") == ""
    assert worker.ask("a") == ["a", first]
    for question, kind, message in (
        ("memory", "memory", "out of memory"),
        ("defect", "defect", "exit code 70: ValueError: of a kind"),
        ("loop", "timeout", "too much processor time"),
    ):
        with pytest.raises(NoAnswer, match=message) as caught:
            worker.ask(question)
        assert caught.value.kind == kind
        assert worker.pid is None
    assert worker.ask("b")[0] == "b"


def test_a_task_may_take_long_to_be_sent(worker: Worker) -> None:
    """What is asked and answered may be larger than a pipe holds."""
    text = "x" * 3_000_000
    assert worker.ask(text)[0] == text


def test_waiting_for_others_takes_none_of_a_workers_time() -> None:
    """It says that it waits: only what it does itself counts."""
    with closing(Worker(child("seconds=0.6"), 60)) as worker:
        worker.ask("begun")
        worker.time_limit = 0.6
        assert worker.ask("wait")[0] == "wait"
        with pytest.raises(NoAnswer, match=r"no answer in time \(0.6 s\)") as caught:
            worker.ask("loop")
        assert caught.value.kind == "timeout"


def test_a_worker_whose_asker_is_gone_ends_itself() -> None:
    """It ends where nobody asks any more."""
    worker = Worker(child(), 60)
    _, pid = worker.ask("a")
    found = worker._child
    assert found is not None
    assert found.stdin is not None
    found.stdin.close()
    assert found.wait(20) == 0
    assert found.pid == pid
    worker.close()


def tasks(count: int, groups: int = 1) -> list[WorkerTask]:
    return [WorkerTask(f"t{at}", at, str(at % groups)) for at in range(count)]


def echo() -> Worker:
    return Worker(child(), 60)


def test_two_workers_killed_in_the_middle_lose_nothing() -> None:
    """Each is killed while the other works: every task has one answer, from processes that are alive."""
    made: list[Worker] = []

    def make() -> Worker:
        made.append(echo())
        return made[-1]

    found = []
    for answer in answers(tasks(40, groups=8), make, 2, tries=2):
        found.append(answer)
        if len(found) in (10, 20):
            pid = made[len(found) == 20].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
    assert sorted(answer.value[0] for answer in found) == list(range(40))
    assert not [answer for answer in found if answer.failure]
    assert len({answer.value[1] for answer in found}) >= 3


DEADLY = """
import os, signal, sys
for line in sys.stdin:
    if int(line) == 5:
        print("what it said", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    print(line.strip(), flush=True)
"""


def test_the_task_of_which_workers_die_is_named() -> None:
    """It is tried again, and then fails alone; without a second try at once."""
    for tries in (1, 2):
        made = answers(tasks(8), lambda: Worker((sys.executable, "-c", DEADLY), 60), 2, tries=tries)
        found = {answer.task.key: answer.failure for answer in made}
        assert len(found) == 8
        failed = {key: failure for key, failure in found.items() if failure}
        assert list(failed) == ["t5"]
        assert failed["t5"].reason == "the process died of SIGSEGV: what it said"


class Counting:
    """Notes which tasks it gets."""

    def __init__(self, begun: threading.Barrier) -> None:
        self.got: list[int] = []
        self.begun = begun

    def ask(self, payload: int) -> int:
        if not self.got:
            self.begun.wait(10)
        time.sleep(0.01 * (payload % 4))
        self.got.append(payload)
        return payload

    def stop(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""


def test_a_group_is_done_by_one_worker_while_there_are_others_to_begin() -> None:
    """What a worker keeps of a module serves its next task; at the end the free one helps."""
    begun, made = threading.Barrier(2), list[Counting]()

    def make() -> Counting:
        made.append(Counting(begun))
        return made[-1]

    wanted = [WorkerTask(str(at), at, f"g{at // 6}") for at in range(24)]
    assert len(list(answers(wanted, make, 2))) == 24
    for worker in made:
        groups = [at // 6 for at in worker.got]
        changes = sum(a != b for a, b in pairwise(groups))
        assert changes <= 4, groups
        assert worker.got[:6] == sorted(worker.got[:6])


def test_a_defect_of_the_caller_is_raised() -> None:
    """It does not pass for an answer, nor does the run go on without a thread."""

    class Broken(Counting):
        def ask(self, payload: int) -> int:
            raise KeyError(payload)

    with pytest.raises(KeyError):
        list(answers(tasks(4), lambda: Broken(threading.Barrier(1)), 2))


def test_who_takes_no_more_answers_ends_all_workers() -> None:
    """As Ctrl-C does: processes in the middle of a task are gone."""
    made: list[Worker] = []

    def make() -> Worker:
        made.append(Worker(child(), None))
        return made[-1]

    questions = [WorkerTask("a", "a"), WorkerTask("b", "b"), WorkerTask("loop", "loop")]
    running = answers([*questions, WorkerTask("again", "loop")], make, 2)
    next(running)
    next(running)
    pids = [worker.pid for worker in made]
    running.close()  # type: ignore[attr-defined]
    for pid in pids:
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    "text", ["0", "-1", "two", "ray://h:1", "dask://h", "dask://", "tcp://h:1", ""]
)
def test_what_is_no_number_of_workers_is_refused(text: str) -> None:
    """What was typed is named, and what may be."""
    with pytest.raises(UsageError, match=r"from 1, or dask://HOST:PORT, not '"):
        parse_workers(text)


def test_workers_are_a_number_or_a_scheduler() -> None:
    assert parse_workers("3") == 3
    assert parse_workers("dask://head-node:8786") == "dask://head-node:8786"


def test_work_is_named_by_a_table() -> None:
    """No other function is called, whatever is asked for."""
    with (
        closing(worker_of(WorkerFunction("os.system", {}))) as worker,
        pytest.raises(NoAnswer, match=r"KeyError: 'os\.system'"),
    ):
        worker.ask("true")


def test_workers_that_cannot_begin_end_the_run() -> None:
    """Not a failure for each task: nothing else can be done, either."""

    class Refusing(Counting):
        def ask(self, payload: int) -> int:
            raise NoAnswer("hloopt is 2 there and 1 here", "setup")

    told = "workers cannot begin: hloopt is 2 there and 1 here"
    with pytest.raises(DeviceError, match=told):
        list(answers(tasks(3), lambda: Refusing(threading.Barrier(1)), 1))
    with pytest.raises(UsageError, match=r"hloopt is .* there and 0\.0 here"):
        FUNCTIONS["study"]({"version": "0.0"})


def test_without_distributed_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "hloopt.workers.on_dask", raising=False)
    monkeypatch.setattr(pool._ELSEWHERE, "_rows", {})
    with pytest.raises(DeviceError, match=r"--workers dask:// needs distributed: .*\[scale\]"):
        spread(WorkerFunction("study", {}), tasks(1), "tcp://localhost:1")
