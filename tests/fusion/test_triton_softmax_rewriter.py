"""Normalisation diamonds: what is one, what becomes of it, and when it is left alone."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.analysis.backend_config import BlockParameters, block_parameters, is_triton
from hloopt.fusion.advice import Advice
from hloopt.fusion.decision import Decision, forbid
from hloopt.fusion.diamonds import find_diamonds
from hloopt.fusion.history import FusionPlan
from hloopt.fusion.priority_fusion import PriorityFusion
from hloopt.fusion.triton_softmax_rewriter import TritonSoftmaxRewriter
from hloopt.ir import Instruction, Module
from hloopt.rewrite.pass_ import PassLog
from hloopt.targets import target

H200 = target("h200")
REGIONS = """sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }
signs { a = f32[] parameter(0) b = f32[] parameter(1) s = f32[] sign(a) ROOT c = f32[] add(s, b) }
"""
SOFTMAX = """x = f32[64,512] parameter(0)
  low = f32[] constant(-inf)
  m = f32[64] reduce(x, low), dimensions={1}, to_apply=max
  mb = f32[64,512] broadcast(m), dimensions={0}
  s = f32[64,512] subtract(x, mb)
  e = f32[64,512] exponential(s)
  zero = f32[] constant(0)
  n = f32[64] reduce(e, zero), dimensions={1}, to_apply=sum
  nb = f32[64,512] broadcast(n), dimensions={0}
  ROOT d = f32[64,512] divide(e, nb)"""
# A diamond with everything that may lie on its edges: splats, converts, equal operands.
PLAIN = """p = f32[64,512] parameter(0)
  k = f32[] parameter(1)
  kb = f32[64,512] broadcast(k), dimensions={}
  q = f32[64,512] multiply(p, p)
  u = f32[64,512] multiply(kb, q)
  z = f32[] constant(0)
  r = f32[64] reduce(u, z), dimensions={1}, to_apply=sum
  c = f32[] constant(0.001953125)
  cb = f32[64] broadcast(c), dimensions={}
  a = f32[64] multiply(r, cb)
  t = f32[64] sqrt(a)
  w = f32[64,512] broadcast(t), dimensions={0}
  g = f32[64,512] negate(p)
  ROOT d = f32[64,512] divide(g, w)"""


def _module(body: str) -> Module:
    return hloopt.parse(f"HloModule m\n{REGIONS}ENTRY e {{\n  {body}\n}}\n")


def _rewritten(body: str, **options: str | int) -> tuple[Module, FusionPlan]:
    module = _module(body)
    plan = TritonSoftmaxRewriter(**options).fuse(module)  # type: ignore[arg-type]
    hloopt.verify(module)
    return module, plan


def _triton(module: Module) -> list[Instruction]:
    return [entry for entry in module.entry if is_triton(entry)]


def test_a_softmax_is_two_diamonds() -> None:
    """The root of the first is on the way to the producer of the second; both become Triton fusions."""
    module, plan = _rewritten(SOFTMAX)
    first, second = _triton(module)
    assert [entry.name for entry in module.entry] == [
        "x", "triton_softmax.1", "e", "triton_softmax",
    ]  # fmt: skip
    assert first.operands == (module.entry.by_name["x"],)
    assert second.operands == (module.entry.by_name["e"],)
    assert block_parameters(first) == BlockParameters(((1, 512),), 2)
    assert {step.kind for step in plan.steps} == {"kCustom"}
    assert {step.producer for step in plan.steps} == {
        "m", "mb", "low", "n", "nb", "zero",
    }  # fmt: skip


def test_priority_fusion_makes_one_kernel_of_a_softmax() -> None:
    """As XLA's pipeline does; the results are the softmax's."""
    module, _ = _rewritten(SOFTMAX)
    PriorityFusion().fuse(module)
    hloopt.verify(module)
    assert [entry.opcode for entry in module.entry] == ["parameter", "fusion"]
    assert is_triton(module.entry.root)
    inputs = [np.random.default_rng(0).normal(size=(64, 512)).astype(np.float32)]
    want = hloopt.evaluate(_module(SOFTMAX), inputs)[0]
    np.testing.assert_array_equal(hloopt.evaluate(module, inputs)[0], want)


def test_the_edges_may_hold_what_reads_nothing_more() -> None:
    """Broadcasts of constants and of parameters go along; parameters become operands behind the producer."""
    module, plan = _rewritten(PLAIN)
    (fusion,) = _triton(module)
    assert [operand.name for operand in fusion.operands] == ["p", "k"]
    assert [entry.name for entry in module.entry] == ["p", "k", "triton_softmax"]
    rng = np.random.default_rng(1)
    inputs = [rng.normal(size=(64, 512)).astype(np.float32), np.float32(2)]
    want = hloopt.evaluate(_module(PLAIN), inputs)[0]
    np.testing.assert_array_equal(hloopt.evaluate(module, inputs)[0], want)
    assert len(plan.steps) == 11


NO_DIAMONDS = {
    "a sum of columns": ("r = f32[64] reduce(u, z), dimensions={1}, to_apply=sum", """v = f32[512] reduce(u, z),
  dimensions={0}, to_apply=sum
  r = f32[64] slice(v), slice={[0:64]}"""),
    "a start that is computed": ("z = f32[] constant(0)", "z = f32[] negate(k)"),
    "another reader of the sums": (
        "a = f32[64] multiply(r, cb)",
        "r2 = f32[64] negate(r)\n  a = f32[64] multiply(r, r2)",
    ),
    "another reader of the other edge": ("g = f32[64,512] negate(p)",
                                         "g = f32[64,512] negate(p)\n  h = f32[64,512] tanh(g)"),
    "a reducer that Triton lacks": ("to_apply=sum", "to_apply=signs"),
    "a root that Triton lacks": ("divide(g, w)", "complex(g, w)"),
    "a second value on the way": ("cb = f32[64] broadcast(c), dimensions={}",
                                  "cb = f32[64] parameter(2)"),
    "sums along the rows' dimension": ("broadcast(t), dimensions={0}", "broadcast(t64), dimensions={1}"),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_DIAMONDS)
def test_what_is_no_diamond_stays(name: str) -> None:
    """One thing is not as it must be; the plain diamond beside it is found."""
    assert len(find_diamonds(_module(PLAIN).entry, H200)) == 1
    old, new = NO_DIAMONDS[name]
    assert old in PLAIN
    body = PLAIN.replace(old, new)
    if "complex" in new:
        body = body.replace("ROOT d = f32", "ROOT d = c64")
    if "t64" in new:
        body = body.replace(
            "  w =", "  tp = f32[512] pad(t, z), padding=0_448\n  t64 = f32[512] copy(tp)\n  w ="
        )
    module = _module(body)
    assert not find_diamonds(module.entry, H200)
    assert not TritonSoftmaxRewriter().run(module, PassLog())


def test_control_edges_keep_a_diamond_apart() -> None:
    """What must run before something else cannot disappear into a kernel."""
    body = PLAIN.replace("t = f32[64] sqrt(a)", "t = f32[64] sqrt(a), control-predecessors={q}")
    assert not find_diamonds(_module(body).entry, H200)


def test_another_layout_is_no_diamond() -> None:
    """Rows must lie in memory as rows."""
    body = PLAIN.replace("g = f32[64,512]", "g = f32[64,512]{0,1}")
    assert not find_diamonds(_module(body).entry, H200)


def test_where_two_kernels_are_faster_they_stay_two() -> None:
    """Rows of 33 numbers are padded to 64 in a Triton kernel: XLA leaves these alone, too."""
    body = """p = f16[1000,33] parameter(0)
  z = f16[] constant(0)
  r = f16[1000] reduce(p, z), dimensions={1}, to_apply=half
  w = f16[1000,33] broadcast(r), dimensions={0}
  ROOT d = f16[1000,33] divide(p, w)"""
    half = "half { a = f16[] parameter(0) b = f16[] parameter(1) ROOT c = f16[] add(a, b) }"
    module = hloopt.parse(f"HloModule m\n{half}\nENTRY e {{\n  {body}\n}}\n")
    plan = TritonSoftmaxRewriter().fuse(module)
    assert not plan.steps
    (refusal,) = plan.refusals
    assert (refusal.producer, refusal.consumer) == ("r", "d")
    assert refusal.decision.reason == "tiled it would take 0.085 us, apart it takes 0.048 us"


def test_rows_too_long_for_registers_are_left_alone() -> None:
    """20000 numbers are 32768 with padding; no block holds those."""
    body = PLAIN.replace("512", "20000")
    _, plan = _rewritten(body)
    assert not plan.steps
    assert [entry.decision.code for entry in plan.refusals] == ["triton-not-tiled"]


def test_devices_without_triton_get_none() -> None:
    """The pass says so and changes nothing; a name nobody knows is an error."""
    module, log = _module(SOFTMAX), PassLog()
    assert not TritonSoftmaxRewriter(target="v100").run(module, log)
    (note,) = log.notes
    assert "V100" in note
    with pytest.raises(hloopt.UsageError):
        TritonSoftmaxRewriter(target="h2").run(module, log)


def test_fuel_limits_the_fusions() -> None:
    """The last diamond comes first."""
    module, plan = _rewritten(SOFTMAX, fuel=0)
    assert not plan.steps
    assert {entry.decision.code for entry in plan.refusals} == {"out-of-fuel"}
    log = PassLog(fuel=1)
    module = _module(SOFTMAX)
    TritonSoftmaxRewriter().run(module, log)
    assert len(_triton(module)) == 1


class _Never:
    def advise(self, producer: Instruction, consumer: Instruction) -> Decision | None:
        del consumer
        return forbid("advised", words="not this one") if producer.name == "n" else None


def test_the_user_has_the_first_word() -> None:
    """A refusal about the reduce and the root stands."""
    module = _module(SOFTMAX)
    log = PassLog(advice=Advice((_Never(),)))
    plan = TritonSoftmaxRewriter().fuse(module, log)
    assert len(_triton(module)) == 1
    (decision,) = [entry.decision for entry in plan.refusals]
    assert (decision.code, decision.words) == ("advised", "not this one")


def test_loops_have_diamonds_too() -> None:
    """The bodies of loops are looked at, the bodies of fusions are not."""
    text = f"""HloModule m
{REGIONS}
body {{
  t = (s32[], f32[64,512]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  p = f32[64,512] get-tuple-element(t), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  z = f32[] constant(0)
  r = f32[64] reduce(p, z), dimensions={{1}}, to_apply=sum
  w = f32[64,512] broadcast(r), dimensions={{0}}
  d = f32[64,512] divide(p, w)
  ROOT n = (s32[], f32[64,512]) tuple(j, d)
}}
condition {{
  t = (s32[], f32[64,512]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  three = s32[] constant(3)
  ROOT l = pred[] compare(i, three), direction=LT
}}
fused {{
  p = f32[64,512] parameter(0)
  z = f32[] constant(0)
  r = f32[64] reduce(p, z), dimensions={{1}}, to_apply=sum
  w = f32[64,512] broadcast(r), dimensions={{0}}
  ROOT d = f32[64,512] divide(p, w)
}}
ENTRY e {{
  s = (s32[], f32[64,512]) parameter(0)
  l = (s32[], f32[64,512]) while(s), body=body, condition=condition
  p = f32[64,512] get-tuple-element(l), index=1
  ROOT f = f32[64,512] fusion(p), kind=kLoop, calls=fused
}}
"""
    module = hloopt.parse(text)
    plan = TritonSoftmaxRewriter().fuse(module)
    hloopt.verify(module)
    assert {step.computation for step in plan.steps} == {"body"}
