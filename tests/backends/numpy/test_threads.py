"""Tasks shared among threads, and how many threads there are."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import numpy as np
import pytest

from hloopt.backends.numpy import threads as pools
from hloopt.backends.numpy.threads import VARIABLE, Tasks, in_parallel, thread_count
from hloopt.errors import UsageError
from tests.helpers.support import invoke


def test_the_number_is_told_by_the_caller_the_environment_or_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, " 5 ")
    assert thread_count(2) == 2
    assert thread_count() == 5
    monkeypatch.delenv(VARIABLE)
    assert 1 <= thread_count() <= (os.cpu_count() or 1)


@pytest.mark.parametrize("text", ["two", "-1", "1.5", "0"])
def test_a_variable_that_is_no_number_of_threads(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(UsageError, match=f"{VARIABLE} is '{text}', not a number of threads"):
        thread_count()


def test_fewer_threads_than_one() -> None:
    with pytest.raises(UsageError, match="at least 1, got 0"):
        thread_count(0)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_task_is_done_once(threads: int) -> None:
    done: list[int] = []
    in_parallel(40, done.extend, threads)
    assert sorted(done) == list(range(40))


def test_a_system_without_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those there are do everything."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(pools, "_pool", pools._Pool())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[int] = []
    in_parallel(40, done.extend, 5)
    assert done == list(range(40))


def test_threads_have_no_warnings() -> None:
    """A thread of the pool begins with NumPy's own error state."""
    met = threading.Barrier(2, timeout=20)
    states: list[str] = []

    def work(tasks: Tasks) -> None:
        met.wait()
        for _ in tasks:
            states.append(np.geterr()["divide"])
            np.divide(1.0, np.zeros(3))

    with np.errstate(all="ignore"):
        in_parallel(4, work, 2)
    assert states == ["ignore"] * 4


@pytest.mark.parametrize("failing", ["main", "helper"])
def test_an_error_stops_all_and_is_raised_when_none_is_running(failing: str) -> None:
    met = threading.Barrier(2, timeout=20)
    main = threading.get_ident()
    running: list[int] = []
    done: list[int] = []

    def work(tasks: Tasks) -> None:
        running.append(1)
        met.wait()
        if (threading.get_ident() == main) == (failing == "main"):
            running.pop()
            raise ValueError("stop")
        while not tasks.stopped:
            pass
        done.extend(tasks)
        running.pop()

    with pytest.raises(ValueError, match="stop"):
        in_parallel(1000, work, 2)
    assert not running
    assert not done


def test_the_command_line_says_how_many() -> None:
    text = (
        "HloModule m\nENTRY e {\n x = f32[300000] parameter(0)\n a = f32[300000] tanh(x)\n"
        " ROOT r = f32[300000] multiply(a, x)\n}\n"
    )
    assert invoke("run", "-", "--threads", "2", stdin=text).exit_code == 0
    wrong = invoke("run", "-", "--threads", "2", "--device", "emulator", stdin=text)
    assert wrong.exit_code == 2
    assert "--threads is for --device cpu and native, not emulator" in wrong.stderr


def test_who_comes_late_finds_the_door_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A helper that begins when all is done does nothing, though tasks were left by an error."""
    late: list[Callable[[], None]] = []
    monkeypatch.setattr(pools._pool, "submit", lambda work, _count: late.append(work))
    done: list[int] = []

    def work(tasks: Tasks) -> None:
        for number in tasks:
            if number == 2:
                raise ValueError("enough")
            done.append(number)

    with pytest.raises(ValueError, match="enough"):
        in_parallel(5, work, 2)
    late[0]()
    assert done == [0, 1]
