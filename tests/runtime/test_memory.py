"""The peak of resident memory, where the system tells it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hloopt.runtime import memory
from hloopt.runtime.memory import peak_memory

_MIB = 1 << 20

measured = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the system tells no peak of its own"
)


@measured
def test_the_peak_is_what_is_there_at_once() -> None:
    """Memory that is freed again counts, and what follows it does not add up."""
    with peak_memory() as found:
        for _ in range(3):
            np.ones(4 * _MIB, np.float64)
    assert found.peak is not None
    assert 30 * _MIB < found.peak < 60 * _MIB


@measured
def test_a_second_peak_is_measured_anew() -> None:
    """Small after large, and what was there before is not counted."""
    kept = np.ones(4 * _MIB, np.float64)
    with peak_memory() as found:
        np.ones(_MIB // 4, np.float64)
    assert found.peak is not None
    assert found.peak < 16 * _MIB < kept.nbytes


def test_a_system_that_does_not_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """None, rather than a number that means something else."""
    monkeypatch.setattr(memory, "_RESET", tmp_path / "none" / "clear_refs")
    with peak_memory() as found:
        pass
    assert found.peak is None
    monkeypatch.undo()
    monkeypatch.setattr(memory, "_STATUS", tmp_path / "status")
    with peak_memory() as found:
        pass
    assert found.peak is None


@measured
def test_a_run_that_fails_is_measured_too() -> None:
    """The error passes."""

    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"), peak_memory() as found:
        fails()
    assert found.peak is not None
