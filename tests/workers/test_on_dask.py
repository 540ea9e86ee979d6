"""Tasks on a cluster of dask's, where distributed is installed: processes of its own on this machine."""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hloopt.errors import DeviceError
from hloopt.workers.pool import spread
from hloopt.workers.records import WorkerFunction, WorkerLimits, WorkerTask
from tests.helpers.support import invoke

distributed = pytest.importorskip("distributed")
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(400)]

MODULE = """HloModule m

ENTRY main {
  x = f32[64] parameter(0)
  ROOT y = f32[64] NAME(x)
}
"""
TROUBLE = '''
import os
from dataclasses import dataclass
from typing import ClassVar

from hloopt import Module, Pass, PassLog


@dataclass(frozen=True)
class Trouble(Pass):
    """End the process."""

    name: ClassVar[str] = "trouble"

    def run(self, module: Module, log: PassLog) -> bool:
        os.abort()
'''


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two processes of dask's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as made:
            yield made


def address(cluster: Any) -> str:
    return str(cluster.scheduler_address).replace("tcp:", "dask:")


def test_a_study_on_a_cluster_is_that_of_one_process(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when one of its processes is killed in the middle; a cell of which workers die is named."""
    monkeypatch.chdir(tmp_path)
    names = ("tanh", "abs", "sine", "negate", "exponential")
    for name in names:
        (tmp_path / f"{name}.hlo").write_text(MODULE.replace("NAME", name))
    (tmp_path / "trouble.py").write_text(TROUBLE)
    words = [f"{name}.hlo" for name in names]
    words += ["--device", "h200", "--strategy", "O0", "--strategy", "O2", "--json"]
    first = next(iter(cluster.workers.values()))
    seen: list[str] = []

    def killing(*given: Any) -> Iterator[Any]:
        for answer in spread(*given):
            if not seen:
                os.kill(first.pid, signal.SIGKILL)
            seen.append(answer.task.key)
            yield answer

    monkeypatch.setattr("hloopt.cli.study_cells.spread", killing)
    found = invoke("study", *words, "--workers", address(cluster))
    assert found.exit_code == 0, found.stderr
    assert len(set(seen)) == len(seen) == 10
    alone = invoke("study", *words)
    assert json.loads(found.stdout)["cells"] == json.loads(alone.stdout)["cells"]
    bad = ("tanh.hlo", "--strategy", "trouble", "--pass-file", "trouble.py", "--device", "h200")
    found = invoke("study", *bad, "--workers", address(cluster))
    assert found.exit_code == 5
    assert (
        "failed: tanh: trouble for h200: the process died of SIGABRT" in found.stderr + found.stdout
    )


def test_another_version_ends_the_run(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a failure for each task."""
    monkeypatch.setattr(sys.modules["hloopt"], "__version__", "9.9.9")
    function = WorkerFunction("study", {}, WorkerLimits(60))
    with pytest.raises(DeviceError, match=r"dask://.*: hloopt is .* there and 9\.9\.9 here"):
        list(spread(function, [WorkerTask("t", 1)], address(cluster)))


def test_a_scheduler_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the address that was typed; the code is that of a missing device."""
    monkeypatch.setattr("hloopt.workers.on_dask._SECONDS", 0.5)
    with pytest.raises(
        DeviceError, match=r"no scheduler of dask answers at dask://127\.0\.0\.1:9"
    ) as caught:
        list(spread(WorkerFunction("study", {}), [WorkerTask("t", 1)], "dask://127.0.0.1:9"))
    assert caught.value.exit_code == 5


def test_who_waits_for_machines_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler without any is waited for: jobs of a cluster may begin later."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.hlo").write_text(MODULE.replace("NAME", "tanh"))
    with distributed.LocalCluster(
        n_workers=0, processes=False, protocol="tcp", dashboard_address=None
    ) as made:
        told: list[str] = []

        def said(note: str) -> None:
            told.append(note)
            made.scale(1)

        monkeypatch.setattr("hloopt.cli.study_cells._say", said)
        words = ("m.hlo", "--device", "h200", "--strategy", "O0", "--json")
        found = invoke("study", *words, "--workers", address(made))
        assert found.exit_code == 0, found.stderr
        there = f"this begins when one comes: dask worker {made.scheduler_address}"
        assert told == [f"{address(made)} has no machines yet; {there}"]
