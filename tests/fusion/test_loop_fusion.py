"""loop-fusion: what joins a loop's kernel, what stays outside, and that every value stays what it was."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.analysis.backend_config import custom_name
from hloopt.analysis.parallel_loop import fused_loop
from hloopt.fusion.loop_fusion import LoopFusion
from hloopt.ir import Instruction, Module
from hloopt.rewrite.pass_ import PassLog
from tests.helpers.random_loops import inputs, loop_text
from tests.helpers.rarely import examples
from tests.passes.proof import check

BODY = """
body {
  state = (s32[], f32[64], f32[64], f32[8,64]) parameter(0)
  trip = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(trip, one)
  x = f32[64] get-tuple-element(state), index=1
  w = f32[64] get-tuple-element(state), index=2
  y = f32[64] multiply(x, w)
  z = f32[64] cosine(y)
  ys = f32[8,64] get-tuple-element(state), index=3
  part = f32[1,64] reshape(z)
  zero = s32[] constant(0)
  put = f32[8,64] dynamic-update-slice(ys, part, trip, zero)
  ROOT result = (s32[], f32[64], f32[64], f32[8,64]) tuple(next, z, w, put)
}

condition {
  state = (s32[], f32[64], f32[64], f32[8,64]) parameter(0)
  trip = s32[] get-tuple-element(state), index=0
  most = s32[] constant(8)
  ROOT goes_on = pred[] compare(trip, most), direction=LT
}
"""
STATE = "(s32[], f32[64], f32[64], f32[8,64])"


def module_of(entry: str) -> Module:
    """A module with the loop above and this entry."""
    module = hloopt.parse(f"HloModule m\n{BODY}\nENTRY main {{\n{entry}\n}}\n")
    hloopt.verify(module)
    return module


PLAIN = f"""
  x = f32[64] parameter(0)
  zero = s32[] constant(0)
  nothing = f32[] constant(0)
  zeros = f32[8,64] broadcast(nothing), dimensions={{}}
  numbers = f32[64] iota(), iota_dimension=0
  init = {STATE} tuple(zero, x, numbers, zeros)
  loop = {STATE} while(init), condition=condition, body=body
  last = f32[64] get-tuple-element(loop), index=1
  ys = f32[8,64] get-tuple-element(loop), index=3
  ROOT r = (f32[64], f32[8,64]) tuple(last, ys)
"""


def fused(module: Module) -> Instruction:
    """The one fused loop of a module."""
    (found,) = (entry for entry in module.instructions() if fused_loop(entry) is not None)
    return found


def results(module: Module) -> list[bytes]:
    """What a module computes, bit by bit."""
    given = inputs([parameter.array.dims for parameter in module.entry.parameters])
    with np.errstate(all="ignore"):
        return [array.tobytes() for array in hloopt.evaluate(module, given)]


def inner(module: Module) -> set[str]:
    """The names in the computation of the fused loop."""
    return {entry.name for entry in fused(module).attributes["calls"]}


def test_constants_broadcasts_and_iotas_are_computed_in_the_kernel() -> None:
    """Nothing is launched to fill memory with zeros or numbers before the loop."""
    module = module_of(PLAIN)
    before = results(module)
    plan = LoopFusion().fuse(module)
    hloopt.verify(module)
    assert [entry.opcode for entry in module.entry] == [
        "parameter", "fusion", "get-tuple-element", "get-tuple-element", "tuple",
    ]  # fmt: skip
    assert inner(module) >= {"zero", "nothing", "zeros", "numbers", "init", "loop", "last", "ys"}
    assert results(module) == before
    assert {(step.producer, step.consumer) for step in plan.steps} == {
        ("loop", "loop"),
        *((name, "loop_fusion") for name in ("zero", "nothing", "zeros", "numbers")),
    }
    (facts,) = plan.loops
    assert (facts.computation, facts.loop, facts.fusion) == ("main", "loop", "loop_fusion")
    assert facts.inside == ("body", "condition")
    assert facts.iterations == "8 iterations"


def test_the_fusion_is_custom_and_names_its_kernel() -> None:
    """The kernel stands where XLA's custom fusions have theirs."""
    module = module_of(PLAIN)
    (facts,) = LoopFusion().fuse(module).loops
    fusion = fused(module)
    assert fusion.attributes["kind"] == "kCustom"
    assert custom_name(fusion) == facts.kernel == "while-per-thread"


def test_elements_that_nobody_reads_are_no_results() -> None:
    """One element that is read makes a fusion without a tuple."""
    module = module_of(
        PLAIN.replace(
            "ROOT r = (f32[64], f32[8,64]) tuple(last, ys)", "ROOT r = f32[64] negate(last)"
        )
    )
    hloopt.Pipeline(hloopt.parse_pipeline("loop-fusion").entries).run(module)
    assert str(fused(module).shape) == "f32[64]"
    assert module.entry.root.operands == (fused(module),)


def test_what_the_body_hands_on_is_read_where_it_comes_from() -> None:
    """A result that is an invariant of the loop is no result of the kernel."""
    entry = PLAIN.replace(
        "ys = f32[8,64] get-tuple-element(loop), index=3",
        "same = f32[64] get-tuple-element(loop), index=2",
    )
    entry = entry.replace(
        "(f32[64], f32[8,64]) tuple(last, ys)", "(f32[64], f32[64]) tuple(last, same)"
    )
    module = module_of(entry)
    before = results(module)
    LoopFusion().fuse(module)
    hloopt.verify(module)
    assert module.entry.root.operands[1].opcode == "iota"
    assert len(fused(module).users) == 1
    assert results(module) == before


@pytest.mark.parametrize(
    ("start", "joins"),
    [
        ("first = f32[64] exponential(x)", True),
        ("first = f32[64] exponential(x)\n  also = f32[64] negate(first)", False),
        ("first = f32[64] reverse(x), dimensions={0}\n  also = f32[64] negate(first)", True),
        ("c = f32[] constant(3)\n  first = f32[64] broadcast(c), dimensions={}\n  also = f32[64] negate(first)", True),
        ("c = f32[] constant(3)\n  d = f32[] log(c)\n  first = f32[64] broadcast(d), dimensions={}", True),
        ("z = f32[] constant(0)\n  t = f32[64,2] broadcast(x), dimensions={0}\n  first = f32[64] reduce(t, z), dimensions={1}, to_apply=sum", False),
        ("first = f32[64] constant({...})", False),
    ],
)  # fmt: skip
def test_what_joins(start: str, joins: bool) -> None:
    """What nobody else needs joins, and what is cheap to compute again; reduces and large constants do not."""
    also = "also" in start
    entry = PLAIN.replace("  init =", f"  {start}\n  init =").replace(
        "tuple(zero, x,", "tuple(zero, first,"
    )
    if also:
        entry = entry.replace(
            "(f32[64], f32[8,64]) tuple(last, ys)",
            "(f32[64], f32[8,64], f32[64]) tuple(last, ys, also)",
        )
    text = f"HloModule m\nsum {{ p = f32[] parameter(0) q = f32[] parameter(1) ROOT s = f32[] add(p, q) }}\n{BODY}\n"
    module = hloopt.parse(f"{text}ENTRY main {{\n{entry}\n}}\n")
    LoopFusion().fuse(module)
    hloopt.verify(module)
    assert ("first" in inner(module)) is joins
    assert ("first" in module.entry.by_name) is (also or not joins)


@pytest.mark.parametrize(
    ("start", "joins"),
    [
        ("w = f32[64] multiply(numbers, numbers)", True),
        ("w = f32[64] add(x, numbers)", True),
        ("w = f32[64] tanh(x)", False),
        ("y = f32[64] parameter(1)\n  w = f32[64] multiply(x, y)", False),
    ],
)
def test_what_is_read_in_every_trip_joins_where_it_is_cheap(start: str, joins: bool) -> None:
    """An invariant is computed again in each trip: no expensive op, and no more reads than there were."""
    entry = PLAIN.replace("  init =", f"  {start}\n  init =").replace(
        "tuple(zero, x, numbers", "tuple(zero, x, w"
    )
    module = module_of(entry)
    LoopFusion().fuse(module)
    hloopt.verify(module)
    assert ("w" in inner(module)) is joins


def test_the_prologue_has_a_limit() -> None:
    """No more ops join than the pass may take; the others are operands."""
    module = module_of(PLAIN)
    LoopFusion(max_prologue=1).fuse(module)
    hloopt.verify(module)
    assert len(inner(module) & {"zero", "nothing", "zeros", "numbers"}) == 1


def test_the_whole_state_may_be_the_result() -> None:
    """A loop that is the entry's root, and one that another op takes as a whole."""
    entry = PLAIN.partition("  last =")[0].replace("  loop =", "  ROOT loop =")
    module = module_of(entry)
    before = results(module)
    LoopFusion().fuse(module)
    hloopt.verify(module)
    assert module.entry.root.opcode == "tuple"
    assert results(module) == before
    assert [read.opcode for read in module.entry.root.operands] == [
        "get-tuple-element", "get-tuple-element", "iota", "get-tuple-element",
    ]  # fmt: skip


def test_a_state_that_is_no_tuple_op_is_read_apart() -> None:
    """The first state of one loop may be another's last, or a parameter."""
    entry = PLAIN.replace(
        "  last =", f"  second = {STATE} while(loop), condition=condition, body=body\n  last ="
    )
    module = module_of(entry.replace("element(loop)", "element(second)"))
    before = results(module)
    plan = LoopFusion().fuse(module)
    hloopt.verify(module)
    assert [facts.fusion for facts in plan.loops] == ["loop_fusion", "loop_fusion.1"]
    assert results(module) == before


def test_control_edges_move_to_the_fusion() -> None:
    """What waited for the loop waits for its kernel."""
    entry = PLAIN.replace(
        "  last =", "  later = f32[64] negate(x), control-predecessors={loop}\n  last ="
    )
    module = module_of(
        entry.replace("tuple(last, ys)", "tuple(later, ys)").replace("last = ", "later2 = ")
    )
    LoopFusion().fuse(module)
    hloopt.verify(module)
    assert module.entry.by_name["later"].control_predecessors == (fused(module),)


def test_defuse_gives_back_the_very_loop() -> None:
    """Names, results and the order of operands are those of the text."""
    text = module_of(PLAIN).to_text()
    module = hloopt.optimize(hloopt.parse(text), "loop-fusion,defuse")
    assert {entry.name for entry in module.entry} == {
        entry.name for entry in hloopt.parse(text).entry
    }
    assert results(module) == results(hloopt.parse(text))


def test_passes_leave_a_fused_loop_whole() -> None:
    """All of O2 and of what makes a module ready for a device, and loop-fusion again."""
    module = hloopt.optimize(module_of(PLAIN), "loop-fusion")
    before = results(module)
    later = hloopt.optimize(module, "O2,loop-fusion,O2")
    assert fused(later).name == "loop_fusion"
    assert results(later) == before
    ready = hloopt.optimize(later, "device")
    assert fused(ready).name == "loop_fusion"
    assert results(ready) == before
    assert sum(entry.opcode == "copy" for entry in ready.instructions()) == 0


def test_fuel_stops_it() -> None:
    """So many loops, and a refusal for the next."""
    entry = PLAIN.replace(
        "  last =", f"  second = {STATE} while(init), condition=condition, body=body\n  last ="
    )
    module = module_of(
        entry.replace("index=3", "index=3").replace(
            "ys = f32[8,64] get-tuple-element(loop)", "ys = f32[8,64] get-tuple-element(second)"
        )
    )
    plan = LoopFusion(fuel=1).fuse(module)
    assert [facts.fusion for facts in plan.loops] == ["loop_fusion", ""]
    assert [refusal.decision.code for refusal in plan.refusals] == ["out-of-fuel"]


@pytest.mark.parametrize(
    "tail",
    [
        "ROOT r = f32[64] negate(x)",
        # What waits for the loop reads nothing of it.
        "ROOT r = f32[64] negate(x), control-predecessors={loop}",
        # An invariant is not computed by the loop.
        "w = f32[64] get-tuple-element(loop), index=2\n  ROOT r = f32[64] add(x, w)",
    ],
)
def test_a_loop_that_nobody_reads_is_left(tail: str) -> None:
    """A kernel has a result; dead loops are for dce."""
    module = module_of(f"{PLAIN.partition('  last =')[0]}  {tail}")
    plan = LoopFusion().fuse(module)
    assert [refusal.decision.code for refusal in plan.refusals] == ["loop-no-results"]


def test_a_device_without_threads_has_no_such_kernels() -> None:
    """A note says so, and every loop stays."""
    module, log = module_of(PLAIN), PassLog()
    assert LoopFusion(target="tpu-v4").fuse(module, log).steps == []
    assert log.notes == ["tpu-v4 has no blocks and threads: loops stay as they are"]


def test_the_pass_keeps_its_promises() -> None:
    """Valid text, an honest answer, the same bits on special values, nothing left for a second run."""
    check(LoopFusion.example, LoopFusion())
    check(f"HloModule m\n{BODY}\nENTRY main {{\n{PLAIN}\n}}\n", LoopFusion())


@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(chooser=st.randoms(use_true_random=False))
def test_random_loops_stay_equal(chooser: random.Random) -> None:
    """Fused, taken apart again, and made ready for a device, bit by bit; a second run finds nothing."""
    module = hloopt.parse(loop_text(chooser))
    hloopt.verify(module)
    before = results(module)
    better = hloopt.optimize(module, "loop-fusion")
    hloopt.verify(better)
    assert results(better) == before
    assert not LoopFusion().run(better, PassLog())
    assert results(hloopt.optimize(better, "device")) == before
    apart = hloopt.optimize(better, "defuse")
    hloopt.verify(apart)
    assert results(apart) == before
    assert all(one.opcode != "fusion" for one in apart.instructions())


@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(chooser=st.randoms(use_true_random=False))
def test_random_loops_run_after_o3(chooser: random.Random) -> None:
    """The NumPy executor gives what the interpreter gives; O3 runs again without touching the kernel."""
    module = hloopt.parse(loop_text(chooser))
    arrays = inputs([parameter.array.dims for parameter in module.entry.parameters])
    with np.errstate(all="ignore"):
        want = hloopt.evaluate(module, arrays)
        better = hloopt.optimize(module, "O3")
        got = hloopt.compile(better, "cpu").run(arrays)
    for one, other in zip(got, want, strict=True):
        ordinary = np.abs(other) < 1e4  # sums in another order
        np.testing.assert_allclose(one[ordinary], other[ordinary], rtol=1e-3, atol=1e-3)
    assert hloopt.optimize(better, "O3").to_text() == better.to_text()


def refused(state: str, body: str, entry: str) -> tuple[str, str]:
    """Code and reason for a loop with this state, of which ``entry`` makes the first."""
    text = f"""HloModule m
body {{
  state = {state} parameter(0)
  {body}
}}
condition {{
  state = {state} parameter(0)
  ROOT goes_on = pred[] constant(true)
}}
ENTRY main {{
  x = f32[64] parameter(0)
  {entry}
  loop = {state} while(init), condition=condition, body=body
  ROOT r = f32[64] get-tuple-element(loop), index=0
}}
"""
    module = hloopt.parse(text)
    hloopt.verify(module)
    before = module.to_text()
    (refusal,) = LoopFusion().fuse(module).refusals
    assert module.to_text() == before
    return refusal.decision.code, refusal.decision.reason


def test_a_state_with_tuples_in_it_is_refused() -> None:
    """The element is named by its number."""
    code, reason = refused(
        "(f32[64], (s32[]))",
        "x = f32[64] get-tuple-element(state), index=0\n  t = (s32[]) get-tuple-element(state), index=1\n"
        "  y = f32[64] cosine(x)\n  ROOT r = (f32[64], (s32[])) tuple(y, t)",
        "zero = s32[] constant(0)\n  t = (s32[]) tuple(zero)\n  init = (f32[64], (s32[])) tuple(x, t)",
    )
    assert (code, "element 1 of its state is a tuple" in reason) == ("loop-not-flat", True)


def test_a_custom_call_is_refused_by_name() -> None:
    """It has a kernel of its own, which nobody can put into another."""
    code, reason = refused(
        "(f32[64])",
        'x = f32[64] get-tuple-element(state), index=0\n  mine = f32[64] custom-call(x), custom_call_target="f"\n'
        "  ROOT r = (f32[64]) tuple(mine)",
        "init = (f32[64]) tuple(x)",
    )
    assert code == "loop-side-effect"
    assert "custom-call mine" in reason


def test_an_op_that_no_loop_kernel_has_is_refused_by_name() -> None:
    """A Fourier transform in each trip."""
    code, reason = refused(
        "(f32[64])",
        "x = f32[64] get-tuple-element(state), index=0\n  c = c64[33] fft(x), fft_type=RFFT, fft_length={64}\n"
        "  y = f32[64] fft(c), fft_type=IRFFT, fft_length={64}\n  ROOT r = (f32[64]) tuple(y)",
        "init = (f32[64]) tuple(x)",
    )
    assert code == "loop-op"
    assert "fft c" in reason


def test_elements_smaller_than_a_byte_are_refused() -> None:
    """Two threads would write one byte."""
    code, reason = refused(
        "(f32[64], s4[64])",
        "x = f32[64] get-tuple-element(state), index=0\n  n = s4[64] get-tuple-element(state), index=1\n"
        "  y = f32[64] cosine(x)\n  m = s4[64] add(n, n)\n  ROOT r = (f32[64], s4[64]) tuple(y, m)",
        "n = s4[64] convert(x)\n  init = (f32[64], s4[64]) tuple(x, n)",
    )
    assert code == "loop-op"
    assert "elements of s4" in reason
