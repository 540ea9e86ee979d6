"""Predicted times: what the sums of the tables rest on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import hloopt
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import find_model, model_for
from hloopt.kernels.costs import KernelPrices, kernel_costs, totals
from hloopt.report.prediction import prediction_json
from hloopt.targets import find_target
from tests.helpers.support import invoke

SAMPLES = Path(__file__).parents[2] / "samples"


def predictor(target: str = "h200") -> Predictor:
    device = find_target(target)
    return Predictor(find_model("xla-2026")(device))


@pytest.mark.parametrize("name", ["cartpole_rollout", "kalman_scan", "attention", "sort"])
def test_every_way_of_adding_up_gives_the_same_whole(name: str) -> None:
    """Kernels, lines, opcodes and bounds are shares of one sum, which is that of ``hloopt diff``."""
    module = hloopt.parse((SAMPLES / f"{name}.hlo").read_text())
    rows = kernel_costs(module, predictor())
    found = prediction_json(predictor(), rows)
    whole = found["seconds"]
    assert whole > 0
    assert totals(module, rows).seconds == pytest.approx(whole)
    for key in ("sources", "opcodes"):
        assert sum(row["seconds"] for row in found[key]) == pytest.approx(whole)
        assert sum(row["share"] for row in found[key]) == pytest.approx(1)
    assert sum(row["total_seconds"] for row in found["kernels"]) == pytest.approx(whole)
    assert sum(found["seconds_by_bound"].values()) == pytest.approx(whole)
    assert all(row["seconds"] >= 1e-6 for row in found["kernels"])


def test_json_is_what_the_table_says(tmp_path: Path) -> None:
    """The command's JSON has the prediction beside what it always has; without a target it has none."""
    path = str(SAMPLES / "attention.hlo")
    with_target = json.loads(invoke("stats", path, "--target", "h200", "--json").stdout)
    without = json.loads(invoke("stats", path, "--json").stdout)
    (row,), (plain,) = with_target["modules"], without["modules"]
    prediction = row.pop("prediction")
    assert row == plain
    assert prediction["launches"] == len(prediction["kernels"]) == plain["kernels"]
    assert (prediction["target"], prediction["calibrated"]) == ("h200", True)


@pytest.mark.parametrize(
    ("opcode", "flops"),
    [
        (
            "dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, algorithm=dot_tf32_tf32_f32",
            2**31,
        )
    ],
)
def test_products_run_on_the_units_for_matrices(opcode: str, flops: int) -> None:
    """A product of 1024 x 1024 floats takes longer than the device's matrix rate says; no fusion changes it."""
    line = f"f32[1024,1024] {opcode}"
    lone = f"HloModule m\nENTRY e {{\n x = f32[1024,1024] parameter(0)\n ROOT r = {line}\n}}\n"
    fused = (
        f"HloModule m\nf {{\n x = f32[1024,1024] parameter(0)\n ROOT r = {line}\n}}\nENTRY e {{\n"
        " y = f32[1024,1024] parameter(0)\n"
        " ROOT r = f32[1024,1024] fusion(y), kind=kCustom, calls=f\n}\n"
    )
    rate = find_target("h200").peak_flops("f32", "matrix")
    assert rate is not None
    for text in (lone, fused):
        (row,) = kernel_costs(hloopt.parse(text), predictor())
        assert row.prediction is not None
        assert row.prediction.by == "gemm"
        assert 1e-6 + flops / rate < row.prediction.seconds < 2e-6 + 2 * flops / rate
        (least,) = kernel_costs(
            hloopt.parse(text), Predictor(model_for("roofline", find_target("h200")))
        )
        assert least.prediction is not None
        assert least.prediction.by == "roofline"
        assert least.prediction.seconds == pytest.approx(1e-6 + flops / rate)


def test_a_tile_that_fits_no_device_is_priced_by_the_rates() -> None:
    """No infinite time reaches a table or the JSON."""
    device = find_target("h200")

    class Endless(find_model("xla-2026")):  # type: ignore[misc]
        """Finds no tiling for anything."""

        def run_time(self, instruction: hloopt.ir.Instruction) -> object:
            found = super().run_time(instruction)
            return type(found)(*(found.flops, 0, 0), 0.0, 0.0, 0.0, float("inf"))

    text = "HloModule m\nENTRY e {\n x = f32[1048576] parameter(0)\n ROOT r = f32[1048576] sine(x)\n}\n"
    (row,) = kernel_costs(hloopt.parse(text), Predictor(Endless(device)))
    assert row.prediction is not None
    assert row.prediction.by == "roofline"
    assert row.prediction.seconds == pytest.approx(1e-6 + 8 * 2**20 / 4.8e12)


COLLECTS = """HloModule m
sum { p = f32[] parameter(0) q = f32[] parameter(1) ROOT s = f32[] add(p, q) }
body {
  s = (s32[], f32[2048], f32[50]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[2048] get-tuple-element(s), index=1
  y = f32[2048] cosine(x)
  zero = f32[] constant(0)
  all = f32[] reduce(y, zero), dimensions={0}, to_apply=sum
  row = f32[1] reshape(all)
  o = f32[50] get-tuple-element(s), index=2
  put = f32[50] dynamic-update-slice(o, row, i)
  ROOT r = (s32[], f32[2048], f32[50]) tuple(next, y, put)
}
condition {
  s = (s32[], f32[2048], f32[50]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  most = s32[] constant(50)
  ROOT goes_on = pred[] compare(i, most), direction=LT
}
ENTRY main {
  x = f32[2048] parameter(0)
  zero = s32[] constant(0)
  none = f32[] constant(0)
  o = f32[50] broadcast(none), dimensions={}
  init = (s32[], f32[2048], f32[50]) tuple(zero, x, o)
  loop = (s32[], f32[2048], f32[50]) while(init), condition=condition, body=body
  ROOT r = f32[50] get-tuple-element(loop), index=2
}
"""


@pytest.mark.parametrize("collects", [True, False])
def test_a_loop_that_collects_is_launched_twice(collects: bool) -> None:
    """Rows and sums count the launches that the chosen kernel has; its time is that of both together."""
    source, launches = COLLECTS, 2
    if not collects:
        source, launches = COLLECTS, 1
        source = source.replace("reduce(y, zero), dimensions={0}, to_apply=sum", "negate(zero)")
        read = "f32[2048] get-tuple-element(loop), index=1"
        source = source.replace("f32[50] get-tuple-element(loop), index=2", read)
    fused = invoke("optimize", "-", "--passes", "loop-fusion{always=true}", stdin=source).stdout
    module = hloopt.parse(fused)
    plan = json.loads(invoke("kernels", "--json", "-", stdin=fused).stdout)["modules"][0]
    (choice,) = (one for one in plan["choices"] if one["kernel"] == "while-per-thread")
    rows = kernel_costs(module, predictor())
    (row,) = (row for row in rows if row.instruction.name == choice["instruction"])
    assert row.launches == row.counted == len(choice["steps"]) == launches
    assert row.runs == 1
    assert row.prediction is not None
    assert (
        row.seconds
        == row.prediction.seconds
        == pytest.approx(choice["estimate"]["seconds"], rel=0.2)
    )
    found = totals(module, rows)
    assert found.launches == len(rows) - 1 + launches
    assert found.cost.bytes_accessed == sum(cost.cost.bytes_accessed for cost in rows)


CALLED = """HloModule m

relu {
  x = f32[64] parameter(0)
  zero = f32[] constant(0)
  zeros = f32[64] broadcast(zero), dimensions={}
  ROOT y = f32[64] maximum(x, zeros), metadata={op_name="jit(relu)/max"}
}

twice {
  x = f32[64] parameter(0)
  ROOT y = f32[64] call(x), to_apply=relu
}

ENTRY main {
  x = f32[64] parameter(0)
  a = f32[64] call(x), to_apply=twice, metadata={source_file="model.py" source_line=7}
  ROOT b = f32[64] negate(a), metadata={source_file="model.py" source_line=8}
}
"""


def test_kernels_without_a_line_have_that_of_their_call() -> None:
    """Through calls of calls; of several calls those of all."""
    lines = {row.instruction.name: row.line for row in kernel_costs(hloopt.parse(CALLED))}
    assert lines == {"zeros": "model.py:7", "y": "model.py:7", "b": "model.py:8"}
    second = '  c = f32[64] call(a), to_apply=relu, metadata={source_file="model.py" source_line=9}\n  ROOT b'
    text = CALLED.replace("  ROOT b", second).replace("negate(a)", "negate(c)")
    several = {row.instruction.name: row.lines for row in kernel_costs(hloopt.parse(text))}
    assert several["y"] == ("model.py:7", "model.py:9")


@pytest.mark.parametrize(
    "name", ["kalman_scan", "while_loop", "cartpole_rollout", "softmax_cross_entropy"]
)
def test_one_kernel_costs_what_it_costs_among_all(name: str) -> None:
    """Priced alone; what starts no kernel costs nothing."""
    module = hloopt.optimize(hloopt.read(SAMPLES / f"{name}.hlo"))
    prices = KernelPrices(module, predictor())
    rows = {row.instruction: row for row in kernel_costs(module, predictor())}
    assert rows
    for one in module.instructions():
        found, expected = prices.of(one), rows.get(one)
        if expected is None:
            assert found is None
            continue
        assert found is not None
        assert replace(found, counted=0) == replace(expected, counted=0)
