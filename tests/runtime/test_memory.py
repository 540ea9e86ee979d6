"""The peak of resident memory, where the system tells it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hloopt.runtime import memory
from hloopt.runtime.memory import peak_memory

_MIB = 1 << 20

measured = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the system tells no peak of its own"
)


_AT_ONCE = """
import numpy as np
from hloopt.runtime.memory import peak_memory
with peak_memory() as found:
    for _ in range(3):
        np.ones(1 << 22, np.float64)
print(found.peak)
"""


@measured
def test_the_peak_is_what_is_there_at_once() -> None:
    """Memory that is freed again counts, and what follows it does not add up."""
    # In a process of its own: here, what other tests left may be freed in the meantime.
    run = subprocess.run(
        [sys.executable, "-c", _AT_ONCE], capture_output=True, text=True, check=True
    )
    assert 30 * _MIB < int(run.stdout) < 60 * _MIB


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


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/a/b\n", {"a/memory.max": "4096", "a/b/memory.max": "max"}, 4096),
        ("0::/\n", {"memory.max": "8192"}, 8192),
        (
            "3:cpu:/c\n4:memory,hugetlb:/c/d\n0::/\n",
            {
                "memory/c/d/memory.limit_in_bytes": "3000",
                "memory/memory.limit_in_bytes": "9223372036854771712",
                "c/memory.max": "1",
            },
            3000,
        ),
        ("0::/gone\n", {}, None),
    ],
)
def test_a_control_group_limits_memory(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    groups: str,
    files: dict[str, str],
    limit: int | None,
) -> None:
    """The least of its own and its parents' limits; without any, the machine's memory."""
    (tmp_path / "cgroup").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "none")
    machine = memory.memory_limit()
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "_GROUP_FILES", tmp_path / "files")
    assert memory.memory_limit() == (machine if limit is None else limit)
