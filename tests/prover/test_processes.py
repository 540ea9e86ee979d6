"""Processes that do a part of the work."""

from __future__ import annotations

import sys
import threading
from types import ModuleType

import pytest

from hloopt.process import AT_WORK, QuietThread, is_alone
from hloopt.prover.processes import ChildProcess, can_work_beside


def test_when_a_part_may_be_done_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a core for it, and where no thread could hold a lock: Python's own, and JAX's, which it does not count."""
    monkeypatch.setattr("hloopt.prover.processes.available_cores", lambda: 2)
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    assert can_work_beside()
    with monkeypatch.context() as threaded:
        threaded.setattr(threading, "active_count", lambda: 2)
        assert not can_work_beside()
    with monkeypatch.context() as alone:
        alone.setattr("hloopt.prover.processes.available_cores", lambda: 1)
        assert not can_work_beside()
    monkeypatch.setitem(sys.modules, "jax", ModuleType("jax"))
    assert not can_work_beside()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_quiet_thread_is_no_obstacle() -> None:
    """As the progress line of a terminal: the process is copied only while that waits."""
    alone = is_alone()
    over, held = threading.Event(), threading.Event()
    order = list[str]()

    def work() -> None:
        with AT_WORK:
            held.set()
            over.wait(0.2)
            order.append("worked")

    quiet = QuietThread(target=work)
    quiet.start()
    held.wait()
    assert is_alone() == alone
    child = ChildProcess(AT_WORK.locked, 20)
    order.append("copied")
    try:
        assert child.answer() is False
    finally:
        child.end()
        quiet.join()
    assert order == ["worked", "copied"]
