"""The GPU benchmark where there is no GPU."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import hloopt
from hloopt.backends import check_device
from hloopt.backends.device_compile import prepare
from hloopt.errors import DeviceError

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.py"


@pytest.mark.parametrize("script", [SCRIPT, SCRIPT.with_name("bench_loops.py")])
def test_without_a_gpu_one_line_says_so(script: Path) -> None:
    """Exit code 5, nothing on stdout."""
    try:
        check_device("gpu")
    except DeviceError:
        pass
    else:
        pytest.skip("there is a GPU")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 5
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout


def test_the_memory_bound_modules_are_one_kernel_each() -> None:
    """Each text is valid at its size, and its kernel is what its name says."""
    texts = runpy.run_path(str(SCRIPT))["BOUND_BY_MEMORY"]
    kernels = {}
    for name, (_, body) in texts.items():
        text = f"HloModule m\n\n{body}\n".replace("$N", str(1 << 20)).replace("$R", "4096")
        module = hloopt.parse(text)
        hloopt.verify(module)
        (step,) = prepare(hloopt.optimize(module)).plan.steps
        kernels[name] = step.spec.kernel
    assert kernels == {
        "add, f32": "loop",
        "add, bf16": "loop",
        "transpose, f32": "transpose",
        "sum of rows, f32": "row-reduction",
        "sum of columns, f32": "split-reduction",  # 32 blocks would leave most of the device idle
    }
