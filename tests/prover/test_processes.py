"""Processes that do a part of the work."""

from __future__ import annotations

import sys
import threading
from types import ModuleType

import pytest

from hloopt.prover.processes import can_work_beside


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
