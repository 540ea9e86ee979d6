"""The roofline, beside figures worked out by hand; what stands in for models that need blocks and threads."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.cost_models.model import Comparison, CostModel
from hloopt.cost_models.registry import find_model, model_for
from hloopt.cost_models.roofline import Roofline
from hloopt.cost_models.xla_2026 import Xla2026
from hloopt.fusion.apply import fuse
from hloopt.fusion.priority_fusion import PriorityFusion
from hloopt.ir import Module
from hloopt.pipelines import parse_pipeline
from hloopt.runtime.inputs import generate
from hloopt.runtime.judge import judged
from hloopt.targets import target

TPU = target("tpu-v4")
ARRAY = 4 * 2**20
"""Bytes of f32[1024,1024]."""
NS = TPU.memory_bandwidth * 1e-9
"""Bytes a nanosecond."""

TEXT = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[1024,1024] parameter(0)
  y = bf16[1024,1024] parameter(1)
  zero = f32[] constant(0)
  a = f32[1024,1024] exponential(x)
  b = f32[1024,1024] multiply(a, x)
  s = f32[1024] reduce(b, zero), dimensions={1}, to_apply=sum
  sb = f32[1024,1024] broadcast(s), dimensions={0}
  q = f32[1024,1024] divide(b, sb)
  flat = f32[1048576] bitcast(q)
  d = bf16[1024,1024] dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (f32[1048576], bf16[1024,1024]) tuple(flat, d)
}
"""


def _module() -> Module:
    return hloopt.parse(TEXT)


def _compare(producer: str, *consumers: str, multi_output: bool = False) -> Comparison:
    by_name = _module().entry.by_name
    users = [by_name[name] for name in consumers]
    return Roofline(TPU).compare(by_name[producer], users, multi_output=multi_output)


def test_a_kernel_moves_its_bytes_or_computes() -> None:
    """Whichever takes longer; what no rate is known for computes in no time."""
    by_name, model = _module().entry.by_name, Roofline(TPU)
    found = model.run_time(by_name["a"])
    assert (found.bytes_read, found.bytes_written, found.flops) == (ARRAY, ARRAY, 2**20)
    assert found.exec_ns == pytest.approx(2 * ARRAY / NS)
    assert (found.compute_ns, found.blocks, found.bound(1000)) == (0, 0, "memory")
    product = model.run_time(by_name["d"])
    assert product.compute_ns == pytest.approx(2 * 1024**3 / 275e3)
    assert product.exec_ns == max(product.compute_ns, product.read_ns + product.write_ns)
    gpu = Roofline(target("h200")).run_time(by_name["a"])
    assert gpu.compute_ns == pytest.approx(2**20 / target("h200").peak_flops("f32") * 1e9)


@pytest.mark.parametrize("name", ["x", "zero", "flat", "t"])
def test_what_no_kernel_runs_takes_no_time(name: str) -> None:
    """Parameters, constants, bitcasts and tuples."""
    assert Roofline(TPU).run_time(_module().entry.by_name[name]).exec_ns == 0


def test_fusing_saves_a_launch_and_what_goes_through_memory() -> None:
    """An array is neither written nor read between the two, and what both read is read once."""
    found = _compare("a", "b")
    assert found.unfused_us == pytest.approx((2000 + 5 * ARRAY / NS) / 1000)
    assert found.fused_us == pytest.approx((1000 + 2 * ARRAY / NS) / 1000)
    kept = _compare("a", "b", multi_output=True)
    assert kept.fused_us - found.fused_us == pytest.approx(ARRAY / NS / 1000)


def test_each_user_gets_a_copy() -> None:
    """Two users: two launches instead of three, and the producer's operands read twice."""
    found = _compare("b", "s", "q")
    assert found.unfused_us > found.fused_us > _compare("b", "s").fused_us
    assert found.fused_us > 2


def test_what_is_computed_again_is_read_again() -> None:
    """A reduction in what goes over the row again reads the row for each of its elements: a loss."""
    assert _compare("s", "sb").gain_us < -1000


def test_a_pair_is_priced_as_the_fusion_it_becomes() -> None:
    """Before and after it is made, where nothing is used twice."""
    for producer, consumer in (("a", "b"), ("b", "s"), ("sb", "q")):
        module, model = _module(), Roofline(TPU)
        named = module.entry.by_name
        pair = model.fused_run_time(named[producer], named[consumer])
        fusion = fuse(named[producer], named[consumer])
        model.forget(fusion)
        alone = model.run_time(fusion)
        assert pair.exec_ns == pytest.approx(alone.exec_ns, rel=0.01), producer


def test_a_pair_that_is_none_is_refused() -> None:
    """A consumer uses the producer."""
    by_name = _module().entry.by_name
    with pytest.raises(ValueError, match="d does not use a"):
        Roofline(TPU).fused_run_time(by_name["a"], by_name["d"])


def test_it_stands_in_where_there_are_no_blocks_and_threads() -> None:
    """With a note that says so; not for a GPU, nor for a model that prices any device."""
    notes: list[str] = []
    assert find_model("roofline") is Roofline
    assert isinstance(model_for("xla-2026", target("h200"), notes.append), Xla2026)
    assert isinstance(model_for("roofline", TPU, notes.append), Roofline)
    assert notes == []
    for name in ("xla-2026", "xla-2023"):
        found: CostModel = model_for(name, TPU, notes.append)
        assert (found.name, found.target) == ("roofline", TPU)
    assert notes[0].startswith("tpu-v4 has no blocks and threads that xla-2026 could count: ")
    assert len(notes) == 2
    with pytest.raises(ValueError, match="tpu-v4 runs no kernels: it has no blocks and threads"):
        Xla2026(TPU)


@pytest.mark.parametrize("options", [{"target": "tpu-v4"}, {"cost_model": "roofline"}])
def test_fusion_rests_on_it(options: dict[str, str]) -> None:
    """Kinds follow the ops, whatever the device; the results stay."""
    module = hloopt.parse(TEXT.replace("1024", "64").replace("1048576", "4096"))
    before = hloopt.parse(module.to_text())
    want = hloopt.evaluate(module, given := generate(module))
    plan = PriorityFusion(**options).fuse(module)
    assert plan.cost_model == "roofline"
    assert {step.producer for step in plan.steps} >= {"a", "sb"}
    kinds = {one.name: one.attributes["kind"] for one in module.entry if one.opcode == "fusion"}
    assert sorted(kinds.values()) == ["kInput", "kLoop"]
    got = hloopt.evaluate(module, given)
    assert all(found.passed for found in judged(before, given, got, want))


def test_every_strategy_takes_such_a_device() -> None:
    """Each tells that the roofline decides, where it asks a model at all."""
    for name in ("priority-fusion", "multi-output-fusion", "fusion-merger"):
        report = parse_pipeline(f"{name}{{target=tpu-v3}}").run(_module())
        assert ["roofline" in str(run.records) or bool(run.notes) for run in report.runs] == [True]
    report = parse_pipeline("triton-softmax-rewriter{target=tpu-v3}").run(_module())
    assert report.runs[0].notes == (
        "Triton kernels have no code for Google TPU v3: no diamonds are looked for",
    )
