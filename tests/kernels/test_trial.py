"""Kernels of one's own on trial: what is right may be chosen, what is wrong says what is wrong."""

from __future__ import annotations

import inspect
import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.backends import check_device, compile_module
from hloopt.codegen.program import kernel_steps
from hloopt.errors import DeviceError
from hloopt.kernels import cuda_file, user
from hloopt.kernels.registry import registered
from hloopt.kernels.user import load_kernels
from hloopt.runtime.inputs import generate
from tests.helpers.loop_programs import SAMPLES
from tests.helpers.support import invoke

MODULE = """HloModule m

largest { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }

ENTRY main {
  x = f32[70,19] parameter(0)
  y = f32[70,19] parameter(1)
  low = f32[] constant(-inf)
  sum = f32[70,19] add(x, y)
  top = f32[70] reduce(sum, low), dimensions={1}, to_apply=largest
  ROOT both = (f32[70], f32[70,19]) tuple(top, sum)
}
"""

ROW_MAX_HLO = """HloModule row_max

largest { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }

ENTRY row_max {
  x = f32[$rows,$columns] parameter(0)
  low = f32[] parameter(1)
  ROOT top = f32[$rows] reduce(x, low), dimensions={1}, to_apply=largest
}
"""

ROW_MAX = """/*
function = "row_max"
grid = ["ceil_div(rows, 32)"]
block = ["32"]
scalars = ["rows", "columns"]
*/
__device__ float larger(float a, float b) { return a != a || a > b ? a : b; }

extern "C" __global__ void row_max(
    const float* __restrict__ x, const float* __restrict__ low, float* __restrict__ y, int rows, int columns)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float top = low[0];
    for (int i = 0; i < columns; ++i) top = larger(top, x[row * columns + i]);
    y[row] = top;
}
"""


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    try:
        check_device("emulator")
    except DeviceError as error:
        pytest.skip(str(error))


def written(folder: Path, source: str) -> tuple[str, str]:
    """The module's file and the kernel's."""
    (folder / "m.hlo").write_text(MODULE)
    (folder / "row_max.hlo").write_text(ROW_MAX_HLO)
    (folder / "row_max.cu").write_text(source)
    return str(folder / "m.hlo"), str(folder / "row_max.cu")


def test_a_kernel_that_is_right_is_chosen_and_runs(tmp_path: Path) -> None:
    """Verified, chosen before hloopt's own, in the source under the instruction's name, with its helper."""
    module, kernel = written(tmp_path, ROW_MAX)
    result = invoke("kernels", "-O0", module, "--kernel", kernel, "--json")
    assert result.exit_code == 0, result.output
    rows = {row["instruction"]: row for row in json.loads(result.stdout)["modules"][0]["choices"]}
    assert rows["top"]["kernel"] == "row_max"
    assert rows["top"]["steps"] == [{"launch": "", "grid": [3, 1, 1], "block": [32, 1, 1]}]
    assert rows["sum"]["kernel"] != "row_max"
    source = invoke("kernels", "-O0", module, "--kernel", kernel, "--source").stdout
    assert "float hlo_top_larger(float a, float b)" in source
    assert "void hlo_top(\n" in source


def test_a_program_with_it_computes_the_same(tmp_path: Path) -> None:
    """The whole module on the emulator, beside the interpreter."""
    _, kernel = written(tmp_path, ROW_MAX)
    module = hloopt.parse(MODULE)
    inputs = generate(module, 7)
    with registered(load_kernels(kernel)):
        program = compile_module(module, "emulator")
        try:
            got = program.run(inputs)
            names = {step.spec.kernel for step in kernel_steps(program.plan.steps)}  # type: ignore[attr-defined]
        finally:
            program.close()
    assert "row_max" in names
    for left, right in zip(got, hloopt.evaluate(module, inputs), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("a > b ?", "a < b ?", "result 0["),
        ("if (row >= rows) return;", "", "on the emulator: "),
        ("y[row] = top;", "if (row) y[row] = top;", "on the emulator: "),
        ("y[row] = top;", "y[row] = tops;", "on the emulator: "),
    ],
)
def test_a_kernel_that_is_wrong_is_not_chosen(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    """Another result, a write outside, an element left out, a text that does not compile."""
    module, kernel = written(tmp_path, ROW_MAX.replace(old, new))
    asked = invoke("explain", "-O0", module, "top", "--kernel", kernel, "--json")
    assert asked.exit_code == 0, asked.output
    (choice,) = json.loads(asked.stdout)["modules"][0]["choices"]
    assert choice["kernel"] not in ("row_max", None)
    (mine,) = [row for row in choice["candidates"] if row["kernel"] == "row_max"]
    assert not mine["fits"]
    assert mine["reason"].startswith(message)
    table = invoke("kernels", "-O0", module, "--kernel", kernel)
    assert f"{kernel}: row_max is not used for %top: {message}" in table.stderr
    forced = invoke("kernels", "-O0", module, "--kernel", kernel, "--kernel", "top=row_max")
    assert forced.exit_code == 2
    assert "row_max does not fit: " + message in forced.stderr


@pytest.mark.parametrize(
    ("module", "end", "kernel", "instruction"),
    [(user, ".py", "my-double", "twice"), (cuda_file, ".cu", "example", "rows")],
)
def test_the_examples_of_the_docstrings_work(
    tmp_path: Path, module: Any, end: str, kernel: str, instruction: str
) -> None:
    """What a reader copies is verified and chosen."""
    example = inspect.cleandoc(module.__doc__).partition("::\n")[2]
    lines = example.splitlines()
    indented = [line for line in lines if line.startswith("    ") or not line.strip()]
    first = next(number for number, line in enumerate(lines) if line.strip())
    last = max(number for number, line in enumerate(lines) if line in indented and line.strip())
    file = tmp_path / f"example{end}"
    file.write_text(textwrap.dedent("\n".join(lines[first : last + 1])) + "\n")
    (tmp_path / "m.hlo").write_text(
        """HloModule m
plus { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[50,9] parameter(0)
  zero = f32[] constant(0)
  twice = f32[50,9] add(x, x)
  rows = f32[50] reduce(twice, zero), dimensions={1}, to_apply=plus
  ROOT both = (f32[50,9], f32[50]) tuple(twice, rows)
}
"""
    )
    words = ("kernels", "-O0", str(tmp_path / "m.hlo"), "--kernel", str(file), "--json")
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["modules"][0]["choices"]
    assert {row["instruction"]: row["kernel"] for row in rows}[instruction] == kernel


def test_a_kernel_that_runs_nothing_says_so(tmp_path: Path) -> None:
    """Where fusion took what it stands for, and where another kernel is preferred."""
    kernel = str(SAMPLES / "kernels" / "row_max.cu")
    module = str(SAMPLES / "softmax_cross_entropy.hlo")
    fused = invoke("kernels", "-O2", module, "--kernel", kernel).stderr
    assert "row_max runs nothing: no instruction here is what it stands for" in fused
    assert "-O1 fuses nothing" in fused
    assert "runs nothing" not in invoke("kernels", "-O1", module, "--kernel", kernel).stderr
    wish = ("--kernel", "reduce_max.21=row-reduction")
    other = invoke("kernels", "-O1", module, "--kernel", kernel, *wish).stderr
    assert (
        "it fits %reduce_max.21, which row-reduction runs; --kernel 'reduce_max.21=row_max'"
        in other
    )
