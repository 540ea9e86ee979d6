"""Loops as one kernel of the host: lanes of work items, masks, streams, collected reduces; and what is left alone."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

import hloopt
from hloopt.backends.native.codegen import parts
from hloopt.backends.native.compile import compile_native
from hloopt.backends.native.program import NativeProgram
from hloopt.fusion.decision import ALLOWED
from hloopt.fusion.loop_fusion import LoopFusion
from hloopt.ir import Module
from hloopt.kernels.plan import KernelStep, WhileStep
from hloopt.runtime.inputs import generate
from hloopt.runtime.program import NativeOptions
from hloopt.targets.target import HOST
from tests.helpers.joined_modules import joined
from tests.helpers.kernel_code import KernelCode
from tests.helpers.loop_programs import kernel_of, resized
from tests.helpers.mixing_loops import mixing_loop
from tests.helpers.random_loops import inputs, loop_text
from tests.helpers.support import Array

KNOWN = """HloModule known
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
most { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] maximum(a, b) }
inner_body {
  s = (s32[], f32[UNITS], f32[UNITS]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  a = f32[UNITS] get-tuple-element(s), index=1
  b = f32[UNITS] get-tuple-element(s), index=2
  c = f32[UNITS] multiply(a, b)
  d = f32[UNITS] sine(c)
  ROOT t = (s32[], f32[UNITS], f32[UNITS]) tuple(next, d, a)
}
inner_condition {
  s = (s32[], f32[UNITS], f32[UNITS]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}
hard { x = f32[UNITS] parameter(0)  y = f32[UNITS] exponential(x)  ROOT r = f32[UNITS] tanh(y) }
easy { x = f32[UNITS] parameter(0)  ROOT r = f32[UNITS] negate(x) }
body {
  state = (s32[], f32[UNITS], f32[8,UNITS], f32[8], f32[8], f32[8,UNITS]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[UNITS] get-tuple-element(state), index=1
  all = f32[8,UNITS] get-tuple-element(state), index=2
  sums = f32[8] get-tuple-element(state), index=3
  tops = f32[8] get-tuple-element(state), index=4
  given = f32[8,UNITS] get-tuple-element(state), index=5
  zero = s32[] constant(0)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  row = f32[1,UNITS] dynamic-slice(given, i, zero), dynamic_slice_sizes={1,UNITS}
  given_row = f32[UNITS] reshape(row)
  y = f32[UNITS] add(x, given_row)
  first = (s32[], f32[UNITS], f32[UNITS]) tuple(zero, y, x)
  loop = (s32[], f32[UNITS], f32[UNITS]) while(first), condition=inner_condition, body=inner_body
  z = f32[UNITS] get-tuple-element(loop), index=1
  two = s32[] constant(2)
  turn = s32[] remainder(i, two)
  w = f32[UNITS] conditional(turn, z, z), branch_computations={hard, easy}
  line = f32[1,UNITS] reshape(w)
  stacked = f32[8,UNITS] dynamic-update-slice(all, line, i, zero)
  none = f32[] constant(0)
  low = f32[] constant(-inf)
  sum = f32[] reduce(w, none), dimensions={0}, to_apply=add
  top = f32[] reduce(z, low), dimensions={0}, to_apply=most
  sum_1 = f32[1] reshape(sum)
  top_1 = f32[1] reshape(top)
  all_sums = f32[8] dynamic-update-slice(sums, sum_1, i)
  all_tops = f32[8] dynamic-update-slice(tops, top_1, i)
  ROOT t = (s32[], f32[UNITS], f32[8,UNITS], f32[8], f32[8], f32[8,UNITS])
    tuple(next, w, stacked, all_sums, all_tops, given)
}
condition {
  state = (s32[], f32[UNITS], f32[8,UNITS], f32[8], f32[8], f32[8,UNITS]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(TRIPS)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[UNITS] parameter(0)
  given = f32[8,UNITS] parameter(1)
  zero = s32[] constant(0)
  none = f32[] constant(0)
  empty = f32[8,UNITS] broadcast(none), dimensions={}
  sums = f32[8] broadcast(none), dimensions={}
  state = (s32[], f32[UNITS], f32[8,UNITS], f32[8], f32[8], f32[8,UNITS])
    tuple(zero, x, empty, sums, sums, given)
  loop = (s32[], f32[UNITS], f32[8,UNITS], f32[8], f32[8], f32[8,UNITS])
    while(state), condition=condition, body=body
  a = f32[UNITS] get-tuple-element(loop), index=1
  b = f32[8,UNITS] get-tuple-element(loop), index=2
  c = f32[8] get-tuple-element(loop), index=3
  d = f32[8] get-tuple-element(loop), index=4
  ROOT t = (f32[UNITS], f32[8,UNITS], f32[8], f32[8]) tuple(a, b, c, d)
}
"""

OWN_TRIPS = """HloModule own_trips
or { a = pred[] parameter(0)  b = pred[] parameter(1)  ROOT r = pred[] or(a, b) }
body {
  state = (f32[UNITS], s32[UNITS], f32[UNITS]) parameter(0)
  x = f32[UNITS] get-tuple-element(state), index=0
  n = s32[UNITS] get-tuple-element(state), index=1
  best = f32[UNITS] get-tuple-element(state), index=2
  limit = f32[] constant(LIMIT)
  all = f32[UNITS] broadcast(limit), dimensions={}
  on = pred[UNITS] compare(x, all), direction=LT
  half = f32[] constant(1.25)
  halves = f32[UNITS] broadcast(half), dimensions={}
  y = f32[UNITS] multiply(x, halves)
  one = s32[] constant(1)
  ones = s32[UNITS] broadcast(one), dimensions={}
  more = s32[UNITS] add(n, ones)
  next = f32[UNITS] select(on, y, x)
  count = s32[UNITS] select(on, more, n)
  z = f32[UNITS] cosine(x)
  last = f32[UNITS] select(on, z, best)
  ROOT t = (f32[UNITS], s32[UNITS], f32[UNITS]) tuple(next, count, last)
}
condition {
  state = (f32[UNITS], s32[UNITS], f32[UNITS]) parameter(0)
  x = f32[UNITS] get-tuple-element(state), index=0
  limit = f32[] constant(LIMIT)
  all = f32[UNITS] broadcast(limit), dimensions={}
  on = pred[UNITS] compare(x, all), direction=LT
  no = pred[] constant(false)
  ROOT r = pred[] reduce(on, no), dimensions={0}, to_apply=or
}
ENTRY main {
  y = f32[UNITS] parameter(0)
  x = f32[UNITS] abs(y)
  small = f32[] constant(0.01)
  least = f32[UNITS] broadcast(small), dimensions={}
  start = f32[UNITS] maximum(x, least)
  zero = s32[] constant(0)
  n = s32[UNITS] broadcast(zero), dimensions={}
  state = (f32[UNITS], s32[UNITS], f32[UNITS]) tuple(start, n, y)
  ROOT loop = (f32[UNITS], s32[UNITS], f32[UNITS]) while(state), condition=condition, body=body
}
"""

SIZES = (1, 31, 33, 2048)


def texts() -> list[str]:
    """Every size with some number of trips, and every number of trips with some size."""
    pairs = [*zip(SIZES, (8, 0, 7, 1), strict=True), (33, 0), (31, 1), (2048, 8)]
    known = [KNOWN.replace("UNITS", str(size)).replace("TRIPS", str(n)) for size, n in pairs]
    limits = zip((*SIZES, 33), ("10", "100", "10", "3", "0"), strict=True)
    own = [OWN_TRIPS.replace("UNITS", str(size)).replace("LIMIT", n) for size, n in limits]
    return [*known, *own]


def whole_loops(program: NativeProgram) -> list[str]:
    """The kernels of a program that are loops."""
    return [kernel for kernel in map(kernel_of, program.plan.steps) if kernel == "native-while"]


def compare(found: Sequence[Array], wanted: Sequence[Array]) -> None:
    """Equal up to the rounding of functions, and of sums in another order."""
    for got, expected in zip(found, wanted, strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def check(modules: Sequence[Module], arrays: Sequence[Sequence[Array]]) -> NativeProgram:
    """Run all as one program, by one thread and by three; hold the results against the interpreter's."""
    whole = joined(modules)
    given = [array for one in arrays for array in one]
    program = compile_native(whole, NativeOptions(threads=1))
    found = program.run(given)
    wanted = [
        array
        for module, one in zip(modules, arrays, strict=True)
        for array in hloopt.evaluate(module, one)
    ]
    compare(found, wanted)
    for got, other in zip(
        found, compile_native(whole, NativeOptions(threads=3)).run(given), strict=True
    ):
        assert got.tobytes() == other.tobytes()
    return program


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all that fits be one kernel, whatever it gains."""
    monkeypatch.setattr("hloopt.fusion.loop_host._gain", lambda *_: ALLOWED)


@pytest.mark.usefixtures("always")
def test_loops_of_every_size_and_number_of_trips() -> None:
    """Known trips with streams, reduces, loops and branches inside; and trips of each work item's own."""
    modules = [hloopt.parse(text) for text in texts()]
    arrays = [inputs([one.array.dims for one in module.entry.parameters]) for module in modules]
    program = check(modules, arrays)
    # What runs no trip, or one alone, is still a loop: nothing before simplified it.
    assert len(whole_loops(program)) == len(modules)
    assert KernelCode.of_parts(parts(program.plan)).named("alive")


@pytest.mark.usefixtures("always")
def test_random_loops() -> None:
    """Whatever fits, also where it gains nothing."""
    chooser = random.Random(5)
    modules = [hloopt.parse(loop_text(chooser, (20, 33))) for _ in range(12)]
    arrays = [inputs([one.array.dims for one in module.entry.parameters]) for module in modules]
    assert len(whole_loops(check(modules, arrays))) >= 9


def test_a_rollout_is_one_kernel() -> None:
    """An environment a lane, its random numbers included; what is uniform is computed once a trip."""
    text = resized("cartpole/naive", {2048: 48, 8192: 192}, {1000: 20})
    module = hloopt.optimize(hloopt.parse(text), "O2")
    program = check([module], [generate(module, 0)])
    assert "native-while" in whole_loops(program)
    assert not any(isinstance(step, WhileStep) for step in program.plan.steps)


WIDE = """HloModule wide
body {
  state = (s32[], f32[20], f32[20,9000]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  k = f32[20] get-tuple-element(state), index=1
  l = f32[20] cosine(k)
  x = f32[20,9000] get-tuple-element(state), index=2
  all = f32[20,9000] broadcast(l), dimensions={0}
  y = f32[20,9000] multiply(x, all)
  z = f32[20,9000] sine(y)
  ROOT t = (s32[], f32[20], f32[20,9000]) tuple(next, l, z)
}
condition {
  state = (s32[], f32[20], f32[20,9000]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(4)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY main {
  k = f32[20] parameter(0)
  x = f32[20,9000] parameter(1)
  zero = s32[] constant(0)
  state = (s32[], f32[20], f32[20,9000]) tuple(zero, k, x)
  ROOT loop = (s32[], f32[20], f32[20,9000]) while(state), condition=condition, body=body
}
"""


def test_units_too_large_for_lanes_run_one_by_one() -> None:
    """Each task has one, whose own elements become vectors."""
    module = hloopt.parse(WIDE)
    program = check([module], [inputs([one.array.dims for one in module.entry.parameters])])
    (step,) = (one for one in program.plan.steps if kernel_of(one) == "native-while")
    assert isinstance(step, KernelStep)
    assert step.spec.tile == {"units": 1}


MIXING = """HloModule mixing
body {
  state = (s32[], f32[40,40]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[40,40] get-tuple-element(state), index=1
  y = f32[40,40] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[40,40] tanh(y)
  ROOT t = (s32[], f32[40,40]) tuple(next, z)
}
condition {
  state = (s32[], f32[40,40]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[40,40] parameter(0)
  zero = s32[] constant(0)
  state = (s32[], f32[40,40]) tuple(zero, x)
  loop = (s32[], f32[40,40]) while(state), condition=condition, body=body
  ROOT r = f32[40,40] get-tuple-element(loop), index=1
}
"""


def test_what_may_never_end_is_left_to_the_driver() -> None:
    """It can be stopped there, and found to get nowhere."""
    text = OWN_TRIPS.replace("UNITS", "64").replace("LIMIT", "5")
    plan = LoopFusion(target=HOST.name).fuse(hloopt.parse(text))
    (refusal,) = plan.refusals
    assert refusal.decision.code == "loop-slower"
    assert "an unknown number of iterations" in str(refusal.decision)
    assert LoopFusion(target=HOST.name, always=True).fuse(hloopt.parse(text)).steps


@pytest.mark.parametrize("is_fused", [False, True])
def test_loops_that_mix_are_left_to_the_driver(is_fused: bool) -> None:
    """Also those that were fused for a device that has blocks of threads."""
    module = hloopt.parse(MIXING)
    if is_fused:
        module = hloopt.optimize(module, LoopFusion(always=True))
        assert any(one.opcode == "fusion" for one in module.entry)
    plan = LoopFusion(target=HOST.name).fuse(hloopt.parse(MIXING))
    assert [refusal.decision.code for refusal in plan.refusals] == ["loop-slower"]
    program = compile_native(module)
    assert not whole_loops(program)
    assert any(isinstance(step, WhileStep) for step in program.plan.steps)
    given = inputs([(40, 40)])
    compare(program.run(given), hloopt.evaluate(module, given))


@pytest.mark.usefixtures("always")
def test_loops_within_mixing_loops() -> None:
    """Loops and branches inside, for each of some work items, which may stop at trips of their own."""
    texts = [mixing_loop(random.Random(seed), 20, sorts=False) for seed in (0, 30)]
    modules = [hloopt.parse(text) for text in texts]
    arrays = [inputs([one.array.dims for one in module.entry.parameters]) for module in modules]
    assert len(whole_loops(check(modules, arrays))) == 2
