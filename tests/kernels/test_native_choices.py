"""``hloopt kernels`` and ``explain`` with ``--target host``: candidates, reasons, estimates, source, lock files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import hloopt
from hloopt.analysis.region import region_of
from hloopt.backends.device_compile import Prepared, prepare
from hloopt.backends.native.compile import prepare_native
from hloopt.cli.main import cli
from hloopt.cost_models.host import HostModel, kernel_costs
from hloopt.errors import UsageError
from hloopt.kernels.backend_config import KernelConfig, read_choice
from hloopt.kernels.drop_kernels import DropKernels
from hloopt.kernels.estimate import estimate
from hloopt.kernels.kernel import KernelDevice, Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.registry import find_kernel
from hloopt.report.plan import plan_text
from hloopt.rewrite import Pipeline
from hloopt.targets import find_gpu
from hloopt.targets.target import HOST

TEXT = """HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY main {
  x = f32[64,32] parameter(0)
  zero = f32[] constant(0)
  e = f32[64,32] exponential(x)
  s = f32[64] reduce(e, zero), dimensions={1}, to_apply=add
  across = f32[64,32] broadcast(s), dimensions={0}
  q = f32[64,32] divide(e, across)
  ROOT p = f32[64,64] dot(q, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
"""


@pytest.fixture
def module(tmp_path: Path) -> str:
    """A file with rows and a product."""
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    return str(path)


def invoke(*words: str) -> Result:
    """What a command answers."""
    return CliRunner().invoke(cli, words)


def _row(*words: str) -> Any:
    result = invoke(*words, "--json")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["modules"]
    return row


def test_rows_are_one_kernel_and_the_product_another(module: str) -> None:
    """As the device native runs them; the source is C++."""
    row = _row("kernels", module, "--target", "host", "--source")
    assert row["target"] == "host"
    assert [one["kernel"] for one in row["choices"]] == ["native-rows", "native-gemm"]
    assert all(one["estimate"]["seconds"] > 0 for one in row["choices"])
    assert '#include "program.h"' in row["source"]
    assert row["memory"]["result"] == 64 * 64 * 4


def test_every_candidate_has_a_verdict(module: str) -> None:
    """Those that fit an estimate as well, the others a reason."""
    (choice,) = _row("explain", module, "p", "-O0", "--target", "host")["choices"]
    found = {one["kernel"]: one for one in choice["candidates"]}
    assert set(found) >= {"native-loop", "native-dot", "native-gemm", "native-call", "native-rows"}
    assert "loop" not in found
    for one in found.values():
        assert one["fits"] == (one["estimate"] is not None)
        assert one["reason"]


def test_a_summary_without_a_name(module: str) -> None:
    """How many instructions each kernel runs."""
    row = _row("explain", module, "--target", "host")
    assert {one["kernel"] for one in row["summary"]} == {"native-rows", "native-gemm"}
    assert row["fusion"]["refusals"] is not None


def test_lock_files_are_those_of_the_device(module: str, tmp_path: Path) -> None:
    """What ``kernels`` writes ``run --device native`` would take."""
    lock = str(tmp_path / "k.toml")
    words = ("kernels", module, "-O0", "--target", "host")
    result = invoke(*words, "--kernel", "p=native-call", "--write-lock", lock)
    assert result.exit_code == 0, result.output
    text = Path(lock).read_text()
    assert 'device = "native"' in text
    assert 'target = "host"' in text
    row = _row(*words, "--lock", lock, "--frozen")
    assert {one["instruction"]: one["kernel"] for one in row["choices"]}["p"] == "native-call"


def test_kernels_of_gpus_are_unknown_here(module: str) -> None:
    """And those of the host to GPUs."""
    result = invoke("kernels", module, "--target", "host", "--kernel", "op:dot=dot-tiled")
    assert result.exit_code == 2
    assert "no kernel is called 'dot-tiled'" in result.stderr
    with pytest.raises(UsageError, match="the device native has those of host"):
        find_gpu("host")


def test_the_target_alone_writes_no_choice(module: str) -> None:
    """What is fused for the host is still cut and joined when a program is made of it."""
    result = invoke("optimize", module, "--target", "host")
    assert result.exit_code == 0, result.output
    assert "backend_config" not in result.stdout
    named = invoke("optimize", module, "--target", "host", "--kernel", "op:dot=native-call")
    assert '{"kernel":"native-call"}' in named.stdout


def test_estimates_are_those_of_the_model() -> None:
    """Of a loop what the model says and a step; a kernel for rows computes each op once."""
    by_name = hloopt.parse(TEXT).entry.by_name
    step = kernel_costs()["step_ns"] * 1e-9
    for name in ("e", "across"):
        site = Site(region_of(by_name[name]), HOST, Limits())
        kernel = find_kernel("native-loop", "native")
        found = estimate(site, kernel, kernel.spec(site, kernel.tile(site)))
        expected = HostModel(HOST).run_time(by_name[name]).exec_ns * 1e-9
        assert found.seconds == pytest.approx(expected + step)


def test_choices_of_other_devices_are_dropped() -> None:
    """One's own stay, and names that nobody has; a module without any is left alone."""
    module = hloopt.parse(TEXT)

    def dropped(device: KernelDevice) -> list[str]:
        return Pipeline((DropKernels(device),)).run(module, verify_each=True).notes

    assert dropped("native") == []
    by_name = module.entry.by_name
    KernelConfig(by_name["e"]).write("loop", {"threads": 128})
    KernelConfig(by_name["q"]).write("native-loop", {})
    KernelConfig(by_name["p"]).write("unheard-of", {})
    said = "drop-kernels: %e: loop was chosen for gpu, so native chooses anew"
    assert dropped("native") == [said]
    assert read_choice(by_name["e"]) is None
    assert read_choice(by_name["q"]) == ("native-loop", {})
    assert read_choice(by_name["p"]) == ("unheard-of", {})
    KernelConfig(by_name["s"]).write("native-rows", {})
    (note,) = dropped("gpu")
    assert note == (
        "drop-kernels: %s: native-rows was chosen for native, so gpu chooses anew (and 1 more)"
    )


@pytest.mark.parametrize("device", ["native", "emulator"])
def test_a_program_is_what_the_pipeline_of_its_device_makes(device: str, samples: Path) -> None:
    """Run as it is printed, it has the same kernels: nothing happens to a module beside the pipeline."""
    for name in ("layernorm_gelu", "while_loop", "kalman_scan"):
        given = hloopt.parse((samples / f"{name}.hlo").read_text())
        ready = hloopt.optimize(given, f"device-{device}")
        again = hloopt.parse(ready.to_text())
        program, printed = (_prepared(one, device) for one in (given, again))
        assert program.module.to_text() == ready.to_text()
        assert plan_text(program.plan) == plan_text(printed.plan)


def _prepared(module: hloopt.Module, device: str) -> Prepared:
    return prepare_native(module) if device == "native" else prepare(module)
