"""What one kernel of a loop gains against its trips started by the host, by prediction."""

from __future__ import annotations

import random

import pytest

import hloopt
from hloopt.analysis.parallel_loop import gpu_mappings
from hloopt.cost_models.host_loops import HostTime, host_iteration
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import model_for
from hloopt.fusion.loop_fusion import LoopFusion
from hloopt.fusion.loop_profit import ASSUMED_ITERATIONS, LoopProfit, loop_profit
from hloopt.ir import Instruction, Module
from hloopt.targets import find_target
from tests.helpers.random_loops import loop_text

H200 = find_target("h200")


def text(body: str, size: str, iterations: int = 50, more: str = "") -> str:
    """A loop over a counter, ``x`` and an invariant ``w``; ``body`` makes ``y``."""
    state = f"(s32[], {size}, {size})"
    return f"""HloModule m
{more}
body {{
  state = {state} parameter(0)
  trip = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(trip, one)
  x = {size} get-tuple-element(state), index=1
  w = {size} get-tuple-element(state), index=2
  {body}
  ROOT result = {state} tuple(next, y, w)
}}

condition {{
  state = {state} parameter(0)
  trip = s32[] get-tuple-element(state), index=0
  most = s32[] constant({iterations})
  ROOT goes_on = pred[] compare(trip, most), direction=LT
}}

ENTRY main {{
  x = {size} parameter(0)
  w = {size} parameter(1)
  zero = s32[] constant(0)
  init = {state} tuple(zero, x, w)
  loop = {state} while(init), condition=condition, body=body
  ROOT r = {size} get-tuple-element(loop), index=1
}}
"""


def loop_of(module: Module) -> Instruction:
    """The loop."""
    return next(one for one in module.entry if one.opcode == "while")


def profit(source: str, target: str = "h200", *, priced: bool = True) -> LoopProfit | None:
    """Of the loop of a module."""
    device = find_target(target)
    loop = loop_of(hloopt.parse(source))
    return loop_profit(
        loop, gpu_mappings(loop, device), model_for("xla-2026", device), priced=priced
    )


SMALL = text("a = f32[2048] multiply(x, w)\n y = f32[2048] sine(a)", "f32[2048]")


def test_a_loop_of_small_ops_saves_its_launches() -> None:
    """The host starts three kernels a trip: the counter's, the fused body and the condition."""
    found = profit(SMALL)
    assert found is not None
    assert found.host.launches == 3
    assert found.gains
    assert found.host_ns > 50 * 3000
    assert found.time.ns < 1000 + 50 * 200
    assert "in one kernel (50 iterations of" in found.words
    assert "150 launches" in found.words
    assert found.comparison.gain_us == pytest.approx((found.host_ns - found.time.ns) / 1000)


DOTS = text(
    "y = f32[4,64,64] dot(x, x), lhs_batch_dims={0}, rhs_batch_dims={0},"
    " lhs_contracting_dims={2}, rhs_contracting_dims={1}",
    "f32[4,64,64]",
)


def test_products_that_fill_the_device_stay_apart() -> None:
    """Four blocks multiply slower than the device's work items for matrices, launches included."""
    big = DOTS.replace("64,64", "96,96")
    found = profit(big)
    assert found is not None
    assert found.mapping.kind == "block"
    assert not found.gains
    module = hloopt.parse(big)
    plan = LoopFusion().fuse(module)
    (refusal,) = plan.refusals
    assert refusal.decision.code == "loop-slower"
    assert refusal.decision.comparison is not None
    assert refusal.decision.comparison.gain_us < 0
    assert "on 4 cores" in refusal.decision.reason
    assert "against" in refusal.decision.reason
    assert loop_of(module).opcode == "while"


def test_the_user_may_have_it_all_the_same() -> None:
    """``always`` overrules the model, and the comparison is told."""
    module = hloopt.parse(DOTS.replace("64,64", "96,96"))
    plan = LoopFusion(always=True).fuse(module)
    assert not plan.refusals
    (comparison,) = {step.comparison for step in plan.steps if step.comparison is not None}
    assert comparison.gain_us < 0


def test_facts_tell_the_time_of_each_way_that_fits() -> None:
    """In microseconds, as explain shows them."""
    plan = LoopFusion().fuse(hloopt.parse(SMALL))
    (facts,) = plan.loops
    times = {mapping.kernel: mapping.time_us for mapping in facts.mappings if not mapping.problem}
    assert times
    assert all(time is not None and 1 < time < 100 for time in times.values())


def test_unknown_trips_are_assumed_alike_on_both_sides() -> None:
    """A loop that runs until its data say so is compared over some trips."""
    unknown = SMALL.replace(
        "most = s32[] constant(50)",
        "w = f32[2048] get-tuple-element(state), index=2\n"
        "  first = f32[1] slice(w), slice={[0:1]}\n  scalar = f32[] reshape(first)\n"
        "  most = s32[] convert(scalar)",
    )
    found = profit(unknown)
    assert found is not None
    assert found.time.iterations == ASSUMED_ITERATIONS
    assert found.gains


def test_devices_without_measured_instructions_have_no_profit() -> None:
    """Nothing is predicted where nothing is known."""
    assert profit(SMALL, "mi200") is None


def test_a_loop_within_the_hosts_loop_counts_as_a_kernel_where_that_is_less() -> None:
    """The host's best plan of an outer loop has its inner loops fused."""
    inner = """
inner_body {
  s = (s32[], f32[2048]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  v = f32[2048] get-tuple-element(s), index=1
  u = f32[2048] sine(v)
  ROOT t = (s32[], f32[2048]) tuple(next, u)
}
inner_condition {
  s = (s32[], f32[2048]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  most = s32[] constant(20)
  ROOT goes_on = pred[] compare(i, most), direction=LT
}
"""
    body = """start = s32[] constant(0)
  before = (s32[], f32[2048]) tuple(start, x)
  within = (s32[], f32[2048]) while(before), condition=inner_condition, body=inner_body
  y = f32[2048] get-tuple-element(within), index=1"""
    module = hloopt.parse(text(body, "f32[2048]", more=inner))
    loop, model = loop_of(module), model_for("xla-2026", H200)
    plain = host_iteration((loop.attributes["body"], loop.attributes["condition"]), model)
    asked: list[str] = []

    def kernel(other: Instruction) -> HostTime:
        asked.append(other.name)
        return HostTime(1.0, 500.0)

    fused = host_iteration((loop.attributes["body"], loop.attributes["condition"]), model, kernel)
    assert asked == ["within"]
    # The counters' and conditions' kernels and those of the inner body, twenty times.
    assert plain.launches == 20 * 3 + 2
    assert fused.launches == 1 + 2
    assert fused.exec_ns < plain.exec_ns


def test_dots_of_the_host_take_as_long_as_in_every_report() -> None:
    """The time of a library's product, as the one predictor has it."""
    module = hloopt.parse(DOTS)
    found = host_iteration(
        (loop_of(module).attributes["body"], loop_of(module).attributes["condition"]),
        model_for("xla-2026", H200),
    )
    assert found.launches == 3
    dot = next(entry for entry in module.instructions() if entry.opcode == "dot")
    alone = Predictor(model_for("xla-2026", H200)).run_time(dot)
    assert alone[1] == "gemm"
    assert found.exec_ns > alone[0].exec_ns > 1000


def no_pricing(*_: object) -> HostTime:
    """In the place of what fuses and prices a body."""
    raise AssertionError("priced")


def test_launches_alone_decide_where_the_kernel_takes_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """One launch for the condition and one for the body are certain: nothing is fused to price the rest."""
    full = profit(SMALL)
    monkeypatch.setattr("hloopt.fusion.loop_profit.best_host_iteration", no_pricing)
    found = profit(SMALL, priced=False)
    assert found is not None
    assert full is not None
    assert (found.at_least, found.host, found.gains) == (True, HostTime(2.0), True)
    assert found.host_ns < full.host_ns
    assert "against at least 100 us in 100 launches alone" in found.words
    assert "at least" not in full.words
    with pytest.raises(AssertionError, match="priced"):
        profit(DOTS.replace("64,64", "96,96"), priced=False)


def test_what_never_shares_a_kernel_counts_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sorts are two launches of a body at least, and what follows them may share one with nobody knows whom."""
    monkeypatch.setattr("hloopt.fusion.loop_profit.best_host_iteration", no_pricing)
    less = """less { p = f32[] parameter(0) q = f32[] parameter(1) ROOT l = pred[] compare(p, q), direction=LT }"""
    body = """a = f32[64] sort(x), dimensions={0}, to_apply=less
  b = f32[64] negate(a)
  c = f32[64] sort(b), dimensions={0}, to_apply=less
  y = f32[64] multiply(c, w)"""
    found = profit(text(body, "f32[64]", more=less), priced=False)
    assert found is not None
    assert found.host == HostTime(3.0)


def test_the_bound_is_never_above_the_price() -> None:
    """Of random loops that run, neither launches nor nanoseconds are promised that fusing would save."""
    seen = 0
    for seed in range(12):
        module = hloopt.parse(loop_text(random.Random(seed)))
        for loop in [one for one in module.entry if one.opcode == "while"]:
            found, model = gpu_mappings(loop, H200), model_for("xla-2026", H200)
            bound, full = (
                loop_profit(loop, found, model, priced=priced) for priced in (False, True)
            )
            assert (bound is None) == (full is None)
            if bound is not None and full is not None:
                assert bound.host.launches <= full.host.launches
                assert bound.gains == full.gains
                assert bound.mapping == full.mapping
                seen += bound.at_least
    assert seen > 3
