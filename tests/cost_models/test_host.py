"""The host's model: what ops cost, where bytes lie, what is computed again, which loops branch."""

from __future__ import annotations

from math import isfinite

import pytest
from hypothesis import HealthCheck, given, settings

import hloopt
from hloopt.cost_models.host import HostModel, additions, kernel_costs
from hloopt.cost_models.model import Comparison, CostModel
from hloopt.cost_models.registry import find_model, model_for
from hloopt.fusion.apply import fuse
from hloopt.fusion.fusible import is_fusible
from hloopt.fusion.priority_fusion import PriorityFusion
from hloopt.ir import Module, edit
from hloopt.ops import OPS
from hloopt.pipelines import for_target, parse_pipeline
from hloopt.targets import target
from hloopt.targets.target import HOST
from tests.helpers.programs import programs, results
from tests.helpers.rarely import examples

TEXT = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[64,32] parameter(0)
  n = f32[64,32] negate(x)
  s = f32[64,32] sine(x)
  one = f32[64,32] add(n, x)
  two = f32[64,32] add(s, x)
  three = f32[64,32] multiply(s, x)
  c = f32[] constant(2)
  wide = f32[64,64] pad(s, c), padding=0_0x32_0
  tall = f32[128,32] pad(s, c), padding=64_0x0_0
  k = f32[] sine(c)
  ks = f32[64,32] broadcast(k), dimensions={}
  scaled = f32[64,32] multiply(x, ks)
  zero = f32[] constant(0)
  r = f32[64] reduce(s, zero), dimensions={1}, to_apply=sum
  rb = f32[64,32] broadcast(r), dimensions={0}
  big = f32[4096,1024] parameter(1)
  nb = f32[4096,1024] negate(big)
  ROOT t = (f32[64,32], f32[64,32], f32[64,32], f32[64,64], f32[128,32], f32[64,32], f32[64,32], f32[4096,1024]) tuple(one, two, three, wide, tall, scaled, rb, nb)
}
"""
BYTES = 64 * 32 * 4


def _module() -> Module:
    return hloopt.parse(TEXT)


def _compare(producer: str, *consumers: str, multi_output: bool = False) -> Comparison:
    by_name = _module().entry.by_name
    users = [by_name[name] for name in consumers]
    return HostModel(HOST).compare(by_name[producer], users, multi_output=multi_output)


def test_the_host_is_a_target_with_a_model_of_its_own() -> None:
    """By its name, whatever model of GPUs is asked for; the roofline stays where it is asked for."""
    assert target("HOST") is HOST
    told: list[str] = []
    assert type(model_for("xla-2026", HOST, told.append)) is HostModel
    assert type(model_for("xla-2023", HOST, told.append)) is HostModel
    assert told == []
    assert model_for("roofline", HOST).name == "roofline"
    assert find_model("host") is HostModel
    assert issubclass(HostModel, CostModel)


def test_every_elementwise_op_has_a_cost() -> None:
    """Of every element type; what is measured is more than what is not."""
    costs = additions()
    rows = [opcode for opcode, row in OPS.items() if row.is_elementwise]
    assert all(costs[opcode, "f32"] >= 1 for opcode in rows)
    assert costs["add", "f32"] < costs["exponential", "f32"] < costs["exponential", "f64"]
    assert costs["sqrt", "f32"] < costs["sine", "f32"]
    assert kernel_costs()["branching"] > 1


def test_a_kernel_computes_and_moves_its_bytes() -> None:
    """One after the other; twice the bytes that a cache holds come from the next."""
    model, by_name = HostModel(HOST), _module().entry.by_name
    found = model.run_time(by_name["s"])
    assert found.flops == additions()["sine", "f32"] * 64 * 32
    assert (found.bytes_read, found.bytes_written) == (BYTES, BYTES)
    assert found.compute_ns == pytest.approx(found.flops / 48)
    costs = kernel_costs()
    moved = 2 * BYTES / costs["l1_bytes_per_ns"]
    assert found.read_ns + found.write_ns == pytest.approx(moved)
    assert found.exec_ns == pytest.approx(found.compute_ns + moved)
    large = model.run_time(by_name["nb"])
    assert large.read_ns == pytest.approx(4096 * 1024 * 4 / 20)
    assert model.run_time(by_name["x"]).exec_ns == 0


def test_what_is_cheap_is_computed_again_and_what_is_dear_is_kept() -> None:
    """A sine in two kernels costs more than writing it once; a negation does not."""
    assert _compare("n", "one").gain_us > 0
    assert _compare("s", "two").gain_us > 0
    assert _compare("s", "two", "three").gain_us < 0
    assert _compare("s", "two", multi_output=True).gain_us > 0


def test_a_loop_that_branches_is_no_vector_code() -> None:
    """One that pads rows takes longer for each sine; one that pads by rows does not."""
    assert _compare("s", "wide").gain_us < _compare("s", "tall").gain_us
    model, by_name = HostModel(HOST), _module().entry.by_name
    wide = model.fused_run_time(by_name["s"], by_name["wide"])
    tall = model.fused_run_time(by_name["s"], by_name["tall"])
    assert wide.compute_ns == pytest.approx(kernel_costs()["branching"] * tall.compute_ns)


def test_a_scalar_is_computed_once_for_all_elements() -> None:
    """However many use it: loops do so before they begin."""
    assert _compare("k", "ks").gain_us > 0
    assert HostModel(HOST).run_time(_module().entry.by_name["k"]).compute_ns == 0


def test_a_reduction_is_not_repeated_for_each_element() -> None:
    """Its results are used by whole rows."""
    assert _compare("r", "rb").gain_us < 0


def test_a_consumer_has_to_use_the_producer() -> None:
    """Otherwise nothing can be said."""
    by_name = _module().entry.by_name
    with pytest.raises(ValueError, match="one does not use s"):
        HostModel(HOST).fused_run_time(by_name["s"], by_name["one"])


def test_figures_follow_what_becomes_of_instructions() -> None:
    """What has been fused is priced as the fusion that it is, and as the pair was."""
    module = _module()
    by_name, model = module.entry.by_name, HostModel(HOST)
    expected = model.fused_run_time(by_name["n"], by_name["one"])
    fusion = fuse(by_name["n"], by_name["one"])
    model.grown(fusion)
    assert model.run_time(fusion).exec_ns == pytest.approx(expected.exec_ns)


def test_once_is_less_than_again_and_again() -> None:
    """What a kernel for rows does once, a loop over elements does for each of them."""
    by_name, model = _module().entry.by_name, HostModel(HOST)
    again = model.fused_run_time(by_name["r"], by_name["rb"])
    fusion = fuse(by_name["r"], by_name["rb"])
    assert model.run_once(fusion).exec_ns < again.exec_ns


def test_a_softmax_in_one_kernel_is_priced_by_rows() -> None:
    """Its maximum and sum are computed once a row, not once an element: native keeps the row."""
    text = """HloModule softmax
larger { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[512,1024] parameter(0)
  least = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[512] reduce(x, least), dimensions={1}, to_apply=larger
  mb = f32[512,1024] broadcast(m), dimensions={0}
  d = f32[512,1024] subtract(x, mb)
  p = f32[512,1024] exponential(d)
  s = f32[512] reduce(p, zero), dimensions={1}, to_apply=sum
  sb = f32[512,1024] broadcast(s), dimensions={0}
  ROOT r = f32[512,1024] divide(p, sb)
}
"""
    planned = hloopt.optimize(hloopt.parse(text), "O2,device-native", target="host")
    (kernel,) = [one for one in planned.entry if one.opcode == "fusion"]
    assert sum(one.opcode == "reduce" for one in kernel.calls) == 2
    apart = sum(HostModel(HOST).run_time(one).exec_ns for one in hloopt.parse(text).entry)
    assert HostModel(HOST).run_time(kernel).exec_ns < apart


def test_priority_fusion_fuses_for_the_host() -> None:
    """A sine with two users is left for the host, and copied for a GPU, where a kernel more costs most."""
    text = """HloModule m
ENTRY e {
  x = f32[4096] parameter(0)
  s = f32[4096] sine(x)
  a = f32[4096] add(s, x)
  b = f32[4096] multiply(s, x)
  ROOT t = (f32[4096], f32[4096]) tuple(a, b)
}
"""
    sines = {}
    for name in ("host", "h200"):
        module = hloopt.optimize(hloopt.parse(text), "priority-fusion", target=name)
        sines[name] = sum(one.opcode == "sine" for one in module.instructions())
    assert sines == {"host": 1, "h200": 2}
    plan = PriorityFusion(target="host").fuse(hloopt.parse(text))
    assert (plan.target, plan.cost_model) == ("host", "host")


@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(text=programs())
def test_random_programs_keep_every_bit(text: str) -> None:
    """Fused for the host, with several results too; the model has figures for all that comes out."""
    module = hloopt.parse(text)
    before = results(module)
    for_target(parse_pipeline("priority-fusion,cse,dce,multi-output-fusion"), "host").run(module)
    hloopt.verify(module)
    assert results(module) == before
    model = HostModel(HOST)
    for instruction in module.entry:
        time = model.run_time(instruction)
        assert isfinite(time.exec_ns)
        assert time.exec_ns >= 0


@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(text=programs())
def test_what_is_remembered_is_what_is_counted_anew(text: str) -> None:
    """A model that followed all fusions says of each kernel what a new one says."""
    module, model = hloopt.parse(text), HostModel(HOST)
    fused = True
    while fused:
        fused = False
        for producer in list(module.entry):
            users = [user for user in producer.users if producer.opcode == "negate"]
            if len(users) == 1 and is_fusible(producer) and is_fusible(users[0]):
                model.run_time(users[0])
                model.fused_run_time(producer, users[0])
                fusion = fuse(producer, users[0])
                model.grown(fusion)
                model.forget(producer)
                if not producer.users:
                    edit.remove(producer)
                fused = True
                break
    for instruction in module.entry:
        assert model.run_time(instruction) == HostModel(HOST).run_time(instruction)


@pytest.mark.parametrize(("array", "whole"), [("x", False), ("zeros", True)])
def test_a_fused_scatter_moves_only_what_its_updates_reach(array: str, whole: bool) -> None:
    module = hloopt.parse(f"""HloModule m
sum {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}
body {{
  x = f32[50000,64] parameter(0)
  at = s32[8,1] parameter(1)
  up = f32[8,64] parameter(2)
  zero = f32[] constant(0)
  zeros = f32[50000,64] broadcast(zero), dimensions={{}}
  by = f32[8,64] negate(up)
  ROOT s = f32[50000,64] scatter({array}, at, by), update_window_dims={{1}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=sum
}}
ENTRY e {{
  x = f32[50000,64] parameter(0)
  at = s32[8,1] parameter(1)
  up = f32[8,64] parameter(2)
  ROOT f = f32[50000,64] fusion(x, at, up), kind=kInput, calls=body
}}
""")
    time = HostModel(HOST).run_time(module.entry.root)
    updates, indices = 8 * 64 * 4, 8 * 4
    assert time.bytes_written == (50000 * 64 * 4 if whole else updates)
    assert time.bytes_read == updates + indices + (0 if whole else updates)
