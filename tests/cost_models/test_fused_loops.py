"""Fusions that are whole loops in cost models, estimates and counts: all trips, priced by loop_time."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.analysis.cost import instruction_cost, loop_bytes_read
from hloopt.analysis.region import region_of
from hloopt.cost_models.fused_loops import fused_loop_run_time, fused_loop_time
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import model_for
from hloopt.fusion.loop_fusion import LoopFusion
from hloopt.fusion.priority_fusion import PriorityFusion
from hloopt.ir import Instruction, Module
from hloopt.kernels.costs import kernel_costs, totals
from hloopt.kernels.estimate import estimate
from hloopt.kernels.kernel import Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.registry import find_kernel
from hloopt.targets import find_target

H200 = find_target("h200")
STATE = "(s32[], f32[2048], f32[2048], f32[50,2048])"
TEXT = f"""HloModule m
body {{
  state = {STATE} parameter(0)
  trip = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  zero = s32[] constant(0)
  next = s32[] add(trip, one)
  x = f32[2048] get-tuple-element(state), index=1
  w = f32[2048] get-tuple-element(state), index=2
  a = f32[2048] multiply(x, w)
  y = f32[2048] sine(a)
  all = f32[50,2048] get-tuple-element(state), index=3
  row = f32[1,2048] reshape(y)
  update = f32[50,2048] dynamic-update-slice(all, row, trip, zero)
  ROOT result = {STATE} tuple(next, y, w, update)
}}

condition {{
  state = {STATE} parameter(0)
  trip = s32[] get-tuple-element(state), index=0
  most = s32[] constant(50)
  ROOT goes_on = pred[] compare(trip, most), direction=LT
}}

ENTRY main {{
  p = f32[2048] parameter(0)
  w = f32[2048] parameter(1)
  all = f32[50,2048] parameter(2)
  x = f32[2048] negate(p)
  zero = s32[] constant(0)
  init = {STATE} tuple(zero, x, w, all)
  loop = {STATE} while(init), condition=condition, body=body
  last = f32[2048] get-tuple-element(loop), index=1
  stack = f32[50,2048] get-tuple-element(loop), index=3
  sum = f32[2048] add(last, w)
  ROOT r = (f32[2048], f32[50,2048]) tuple(sum, stack)
}}
"""


@pytest.fixture(name="module")
def _module() -> Module:
    """The module with its loop fused."""
    module = hloopt.parse(TEXT)
    assert LoopFusion().run(module, hloopt.PassLog())
    hloopt.verify(module)
    return module


def loop_of(module: Module) -> Instruction:
    """The fusion that is the loop."""
    return next(
        one
        for one in module.entry
        if one.opcode == "fusion" and one.attributes["kind"] == "kCustom"
    )


@pytest.mark.parametrize("name", ["xla-2026", "xla-2023"])
def test_models_ask_for_the_time_of_the_loop(module: Module, name: str) -> None:
    """All trips of the kernel that its backend_config names."""
    fusion = loop_of(module)
    found = fused_loop_time(fusion, H200)
    assert found is not None
    way, time = found
    assert way.kind == "thread"
    assert time.iterations == 50
    run = model_for(name, H200).run_time(fusion)
    assert run.exec_ns == time.exec_ns
    assert (run.blocks, run.threads) == (time.blocks, time.threads)
    assert run.exec_ns >= 50 * time.chain_ns
    assert fused_loop_run_time(fusion, H200) == run


def test_other_instructions_are_no_loops(module: Module) -> None:
    """Nor are loops on devices whose instructions nobody has measured."""
    (add,) = (one for one in module.entry if one.opcode == "add")
    assert fused_loop_run_time(add, H200) is None
    assert fused_loop_run_time(loop_of(module), find_target("mi200")) is None
    assert model_for("xla-2026", find_target("mi200")).run_time(loop_of(module)).exec_ns > 0


def test_operands_are_read_once_and_what_is_only_written_never(module: Module) -> None:
    """Arithmetic counts for each trip."""
    fusion = loop_of(module)
    read = dict(zip((one.name for one in fusion.operands), loop_bytes_read(fusion), strict=True))
    assert read["all"] == 0
    assert read["w"] == 4 * 2048
    cost = instruction_cost(fusion)
    assert cost.bytes_written == fusion.shape.byte_size
    assert cost.transcendentals == 50 * 2048
    assert cost.flops >= 50 * 2048
    with pytest.raises(ValueError, match="sum is not a fusion of one loop"):
        loop_bytes_read(module.entry.by_name["sum"])


def test_usage_counts_all_trips(module: Module) -> None:
    """Each operand is used once as far as its producer is concerned."""
    usage = model_for("xla-2026", H200).usage.of(loop_of(module))
    assert usage.flops >= 50 * 2 * 2048
    assert [one.utilization for one in usage.operands] == [1.0] * len(usage.operands)
    assert usage.ir_size > len(loop_of(module).attributes["calls"])


def test_fusion_beside_a_loop_leaves_it_alone(module: Module) -> None:
    """Pairs with it are priced, and none is made."""
    before = loop_of(module).name
    PriorityFusion().fuse(module)
    hloopt.verify(module)
    assert loop_of(module).name == before


def test_stats_count_one_launch(module: Module) -> None:
    """The whole loop is one row, and its time is in the sum."""
    predictor = Predictor(model_for("xla-2026", H200))
    rows = kernel_costs(module, predictor)
    found = totals(module, rows)
    assert found.launches == len(rows) == 2
    (row,) = (row for row in rows if row.instruction is loop_of(module))
    assert row.prediction is not None
    assert row.prediction.by == "xla-2026"
    time = fused_loop_time(loop_of(module), H200)
    assert time is not None
    assert row.seconds == pytest.approx(time[1].ns / 1e9)


@pytest.mark.parametrize("name", ["while-per-thread", "while-per-block"])
def test_estimates_of_both_kernels_show_their_parts(module: Module, name: str) -> None:
    """By the launch that the spec says; the words name the model."""
    site = Site(region_of(loop_of(module)), H200, Limits())
    kernel = find_kernel(name)
    assert kernel.fits(site)
    found = estimate(site, kernel, kernel.spec(site, kernel.tile(site)))
    parts = found.parts
    longest = max(parts["chain_ns"], parts["issue_ns"], parts["memory_ns"])
    whole = parts["launch_ns"] + parts["ends_ns"] + parts["waves"] * parts["trips"] * longest
    assert found.seconds == pytest.approx(whole / 1e9)
    assert "predicted by loop-2026" in found.note


def test_more_threads_of_a_tile_change_the_estimate(module: Module) -> None:
    """A thousand threads a block are two cores, where small blocks are sixty-four."""
    site = Site(region_of(loop_of(module)), H200, Limits())
    kernel = find_kernel("while-per-thread")
    default = kernel.tile(site)
    large = kernel.spec(site, {**default, "threads": 1024})
    few = estimate(site, kernel, large)
    many = estimate(site, kernel, kernel.spec(site, {**default, "threads": 32}))
    assert few.parts["issue_ns"] == 8 * many.parts["issue_ns"]
