"""The GPU benchmark where there is no GPU."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hloopt
from hloopt.backends import check_device
from hloopt.backends.device_compile import prepare
from hloopt.errors import DeviceError
from tests.benchmarks.gpu import BOUND_BY_MEMORY


@pytest.mark.parametrize("script", ["gpu", "bench_loops"])
def test_without_a_gpu_one_line_says_so(script: str) -> None:
    """Exit code 5, nothing on stdout."""
    try:
        check_device("gpu")
    except DeviceError:
        pass
    else:
        pytest.skip("there is a GPU")
    done = subprocess.run(
        [sys.executable, "-m", f"tests.benchmarks.{script}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 5
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout


def test_the_memory_bound_modules_are_one_kernel_each() -> None:
    """Each text is valid at its size, and its kernel is what its name says."""
    kernels = {}
    for name, (_, body) in BOUND_BY_MEMORY.items():
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
