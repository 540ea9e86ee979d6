"""``hloopt run --device gpu`` on CuPy's stand-in: results compared, kernels timed, the trace written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hloopt.backends import device_compile, nvrtc
from hloopt.errors import DeviceError
from hloopt.kernels import selection as kernel_selection
from hloopt.targets import target
from tests.backends.cuda.fake_cupy import PROPERTIES, FakeCupy
from tests.backends.cuda.plan_kernels import evaluated, slowed
from tests.helpers.support import invoke

TEXT = """HloModule m
ENTRY e {
  a = f32[64,64] parameter(0)
  b = f32[64,64] parameter(1)
  sine = f32[64,64] sine(a)
  product = f32[64,64] dot(sine, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT sum = f32[64,64] add(product, a)
}
"""


@pytest.fixture
def module(fake: FakeCupy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module's file; whatever is compiled for it runs on the stand-in, a millisecond a kernel."""
    try:
        nvrtc.nvrtc_for("sm_90")
    except DeviceError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("HLOOPT_CACHE_DIR", str(tmp_path / "cache"))
    properties = {
        "name": b"NVIDIA Something",
        "multiProcessorCount": 132,
        "totalGlobalMem": 151_397_597_184,
        "l2CacheSize": 1 << 20,
        "major": 9,
        "minor": 0,
    }
    fake.runtime.getDeviceProperties = lambda number: properties
    prepare = device_compile.prepare

    def watched(*arguments: Any) -> device_compile.Prepared:
        prepared = prepare(*arguments)
        fake.kernels |= slowed(evaluated(prepared.plan), fake)
        return prepared

    monkeypatch.setattr(device_compile, "prepare", watched)
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    return path


def test_results_and_kernels(module: Path) -> None:
    """Right against the interpreter; a row a kernel, with what it was compiled with."""
    done = invoke(
        "run", str(module), "--device", "gpu", "--repeat", "2", "--kernel", "op:dot=dot-library"
    )
    assert done.exit_code == 0, done.stdout + done.stderr
    assert "ok 1 result: " in done.stdout
    assert "cublas" in done.stdout
    assert (
        "NVIDIA H200 141GB HBM3e: 2 ms a run as one piece, 2 ms in its kernels one by one"
        in done.stdout
    )
    assert "compiled with timed (--fmad=true" in done.stdout
    assert "cache as the kernel before left it" in done.stdout


def test_the_trace_and_the_json(module: Path, tmp_path: Path) -> None:
    """A bar for each kernel; the same figures for scripts; a cold cache is said."""
    trace = tmp_path / "trace.json"
    options = [
        "--device",
        "gpu",
        "--repeat",
        "2",
        "--trace",
        str(trace),
        "--kernels=cold",
        "--json",
        "-O0",
    ]
    done = invoke("run", str(module), *options)
    assert done.exit_code == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)["modules"][0]["profile"]
    assert (found["target"], found["flags"]["name"], found["is_cold"]) == ("h200", "timed", True)
    rows = {row["instruction"]: row for row in found["kernels"]}
    assert set(rows) == {"sine", "product", "sum"}
    assert rows["sine"]["launches"] == 1
    assert rows["sine"]["seconds"] == pytest.approx(1e-3)
    assert rows["sine"]["registers"] > 0
    assert rows["sine"]["spill_stores"] == 0
    assert 0 < rows["sum"]["occupancy"] <= 1
    bars = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert [bar["args"]["instruction"] for bar in bars] == ["sine", "product", "sum"]


def test_kernels_are_chosen_for_the_gpu_at_hand(
    module: Path, fake: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The known target of the same multiprocessors and memory, unless another is named; a note where none is."""
    targets: list[str] = []
    selection = kernel_selection.KernelSelection.run

    def watched(self: kernel_selection.KernelSelection, *arguments: Any) -> bool:
        targets.append(self.target)
        return selection(self, *arguments)

    monkeypatch.setattr(kernel_selection.KernelSelection, "run", watched)
    properties = dict(fake.runtime.getDeviceProperties(0))
    a100 = target("a100")
    known = {"multiProcessorCount": a100.cores, "totalGlobalMem": a100.memory_size, "major": 8}
    fake.runtime.getDeviceProperties = lambda number: properties | known
    command = ["run", str(module), "--device", "gpu", "--repeat", "1", "-O0"]
    assert invoke(*command).exit_code == 0
    assert invoke(*command, "--target", "h100").exit_code == 0
    assert [*dict.fromkeys(targets)] == ["a100", "h100"]
    properties["multiProcessorCount"] = 7
    fake.runtime.getDeviceProperties = lambda number: {**PROPERTIES, **properties}
    done = invoke(*command)
    assert done.exit_code == 0, done.stderr
    assert (
        "note: hloopt has no target for NVIDIA Something: kernels are chosen for h200; --target"
        in done.stderr
    )


def test_fast_math_says_its_flags(module: Path) -> None:
    """Only where it is asked for."""
    done = invoke("run", str(module), "--device", "gpu", "--repeat", "1", "--fast-math")
    assert "compiled with fast-math (--fmad=true --ftz=true" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--device", "emulator", "--trace", "t.json"],
            "--kernels and --trace are for --device cpu",
        ),
        (["--device", "emulator", "--kernels"], "--kernels and --trace are for --device cpu"),
        (["--device", "cpu", "--kernels", "--participants", "mpi"], "leave out --participants mpi"),
        (["--device", "emulator", "--kernels=cold"], "--kernels=cold is for --device gpu"),
        (["--device", "gpu", "--trace", "."], "--trace needs a file, not '.'"),
        (["--device", "gpu", "--trace", "-"], "--trace needs a file, not '-'"),
    ],
)
def test_wrong_options(options: list[str], message: str, module: Path) -> None:
    """Refused before anything runs."""
    done = invoke("run", str(module), *options)
    assert done.exit_code == 2
    assert message in done.stderr


def test_one_trace_is_of_one_module(module: Path) -> None:
    """The second would overwrite the first."""
    done = invoke("run", str(module), str(module), "--device", "gpu", "--trace", "t.json")
    assert done.exit_code == 2
    assert "--trace belongs" in done.stderr


def test_without_a_gpu_one_line_says_what_is_missing(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 5, nothing on stdout."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    done = invoke("run", str(module), "--device", "gpu")
    assert (done.exit_code, done.stdout) == (5, "")
    assert done.stderr.startswith("hloopt: error: CuPy, which talks to the GPU, ")
    assert done.stderr.count("\n") == 1


def test_a_study_takes_times_by_the_clock_of_the_gpu(module: Path) -> None:
    """A cell has the program as one piece, without what the host brings; results are right."""
    words = ("--strategy", "O0", "--device", "gpu", "--repeat", "3", "--json")
    done = invoke("study", str(module), *words)
    assert done.exit_code == 0, done.stdout + done.stderr
    (cell,) = json.loads(done.stdout)["cells"]
    assert cell["launches"] == 3
    assert cell["measured"]["seconds"] == pytest.approx([3e-3] * 3)
    assert cell["results"] in ("equal", "within tolerance")
    assert cell["measured"]["where"] == "NVIDIA Something"
