"""Loops run by a thread for each work item: state in registers, streams, collected reduces, trips, types."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hloopt
from hloopt.backends.nvrtc import compile_cuda
from hloopt.errors import DeviceError, UsageError
from hloopt.fusion.loop_fusion import LoopFusion
from hloopt.kernel_ir.expressions import TRUE
from hloopt.kernel_ir.statements import Barrier, Break, While
from hloopt.kernel_ir.types import LONG
from hloopt.rewrite.pass_ import PassLog
from tests.codegen.harness import check_kernel, planned
from tests.codegen.short_loops import fused, mapping_of, network, program
from tests.helpers import random_loops
from tests.helpers.kernel_code import KernelCode

KERNEL = "while-per-thread"


def check(text: str, **options: object) -> KernelCode:
    """Run a module's loop by the kernel; its functions."""
    return KernelCode.of(check_kernel(fused(text), KERNEL, **options))  # type: ignore[arg-type]


PENDULUM = """\
  let block_x: int = (int)blockIdx.x
  let thread_x: int = (int)threadIdx.x
  let i: int = block_x * 32 + thread_x
  if i >= 300
    return
  let param_0: float = x_0[i]
  var state_1: float = param_0
  let param_1: float = v_0[i]
  var state_2: float = param_1
  let param_2: float = g_0[i]
  for iter: int from 0 to 7
    let sin_1: float = sinf(state_1)
    let less: float = sin_1 * 0.5f
    let v1: float = param_2 - state_2
    let x1: float = less + v1
    store result_2[iter * 300 + i] = x1
    set state_1 = x1
    set state_2 = v1
  store result_0[i] = state_1
  store result_1[i] = state_2
"""


def pendulum(elements: int, iterations: int) -> str:
    n = elements
    return program(
        {
            "x": f"f32[{n}]",
            "v": f"f32[{n}]",
            "g": f"f32[{n}]",
            "path": f"f32[{max(iterations, 1)},{n}]",
        },
        f"""
  sin = f32[{n}] sine(x)
  half = f32[] constant(0.5)
  halves = f32[{n}] broadcast(half), dimensions={{}}
  less = f32[{n}] multiply(sin, halves)
  v1 = f32[{n}] subtract(g, v)
  x1 = f32[{n}] add(less, v1)
  row = f32[1,{n}] reshape(x1)
  path1 = f32[{max(iterations, 1)},{n}] dynamic-update-slice(path, row, i, zero)""",
        "x1, v1, g, path1",
        iterations=iterations,
    )


@pytest.mark.parametrize(
    ("elements", "iterations"), [(1, 3), (31, 0), (33, 1), (300, 7), (17, 500)]
)
def test_any_number_of_units_and_trips(elements: int, iterations: int) -> None:
    """Every work item runs its trips: what lies beyond the last one is never touched."""
    check(pendulum(elements, iterations), everywhere=False)


@pytest.mark.slow
@pytest.mark.parametrize(("elements", "iterations"), [(1_000_003, 2), (2048, 100), (3, 10_000)])
def test_many_units_and_trips(elements: int, iterations: int) -> None:
    """Many of either: all indices are right to the last one."""
    check(pendulum(elements, iterations), everywhere=False)


def test_state_is_in_scalars_and_streams_go_to_the_result() -> None:
    """The code is what one would write by hand: scalars, one loop, a store a trip, no initial one."""
    assert check(pendulum(300, 7)).text("hlo_loop") == PENDULUM


def test_what_no_trip_writes_of_a_stream_is_what_it_was() -> None:
    """A stacked output longer than the loop, and one written backwards, keep what they had elsewhere."""
    text = program(
        {"x": "f32[40]", "a": "f32[9,40]", "b": "f32[40,3]", "u": "f32[9]"},
        """
  x1 = f32[40] cosine(x)
  row = f32[1,40] reshape(x1)
  nine = s32[] constant(7)
  back = s32[] subtract(nine, i)
  a1 = f32[9,40] dynamic-update-slice(a, row, back, zero)
  column = f32[40,1] reshape(x)
  b1 = f32[40,3] dynamic-update-slice(b, column, zero, i)
  f = f32[] convert(i)
  one_u = f32[1] reshape(f)
  un = f32[9] dynamic-update-slice(u, one_u, i)""",
        "x1, a1, b1, un",
        iterations=5,
    )
    check(text)


def cartpole(n: int) -> str:
    """Four rows in one array, rows that share sines, a start that is read again, actions read a row a trip."""
    return program(
        {
            "st": f"f32[4,{n}]",
            "s0": f"f32[4,{n}]",
            "act": f"s32[6,{n}]",
            "score": "f32[6]",
            "top": "f32[6,2]",
        },
        f"""
  a = s32[1,{n}] dynamic-slice(act, i, zero), dynamic_slice_sizes={{1,{n}}}
  ar = s32[{n}] reshape(a)
  af = f32[{n}] convert(ar)
  x = f32[1,{n}] slice(st), slice={{[0:1], [0:{n}]}}
  t = f32[1,{n}] slice(st), slice={{[2:3], [0:{n}]}}
  rest = f32[2,{n}] slice(st), slice={{[2:4], [0:{n}]}}
  xr = f32[{n}] reshape(x)
  tr = f32[{n}] reshape(t)
  sin = f32[{n}] sine(tr)
  cos = f32[{n}] cosine(tr)
  p = f32[{n}] multiply(sin, cos)
  q = f32[{n}] add(p, af)
  q1 = f32[1,{n}] reshape(q)
  stack = f32[4,{n}] concatenate(q1, rest, x), dimensions={{0}}
  half = f32[] constant(0.5)
  halves = f32[{n}] broadcast(half), dimensions={{}}
  done = pred[{n}] compare(q, halves), direction=GT
  dones = pred[4,{n}] broadcast(done), dimensions={{1}}
  stn = f32[4,{n}] select(dones, s0, stack)
  sum = f32[] reduce(q, fz), dimensions={{0}}, to_apply=add_f32
  part = f32[1] reshape(sum)
  two = f32[] constant(2)
  twos = f32[1] broadcast(two), dimensions={{}}
  mean = f32[1] multiply(part, twos)
  score1 = f32[6] dynamic-update-slice(score, mean, i)
  both = f32[2,2,{n}] reshape(stn)
  low = f32[] constant(-1e30)
  most = f32[2] reduce(both, low), dimensions={{1,2}}, to_apply=max_f32
  row = f32[1,2] reshape(most)
  top1 = f32[6,2] dynamic-update-slice(top, row, i, zero)""",
        "stn, s0, act, score1, top1",
        iterations=6,
        results="st, score, top",
    )


@pytest.mark.parametrize("elements", [20, 64, 300])
def test_reduces_over_units_are_collected_and_added_up_once(elements: int) -> None:
    """Warps leave their parts, a second launch adds them in one order and computes what follows."""
    code = check(cartpole(elements), everywhere=elements == 300)
    assert len(code.calls("sinf")) == len(code.calls("cosf")) == 1
    first, second = code.ending("loop"), code.ending("_finish")
    assert first.calls("shuffle_down")
    assert not code.statements(Barrier)
    assert not code.calls("atomic*")
    assert not code.calls("add_to_*")
    warps = -(-elements // 32)
    part = f"iter * {warps} + (i / 32)" if warps > 1 else "iter"
    assert first.written_at("scratch_0") == [part]
    assert second.written_at("result_1") == ["iter"]
    assert second.calls("shuffle_down")


def test_blocks_of_broken_warps_are_refused_where_warps_fold() -> None:
    """Threads that are no whole warps cannot exchange what they have."""
    with pytest.raises(UsageError, match="48 threads are not whole warps of 32"):
        planned(fused(cartpole(40)), KERNEL, {"threads": 48})


@pytest.mark.parametrize("threads", [32, 96, 256])
def test_any_number_of_threads_computes_the_same(threads: int) -> None:
    """The tile's threads change the launch, never a result."""
    text = fused(cartpole(200))
    check_kernel(text, KERNEL, {"threads": threads}, everywhere=False, twice=False)


def test_what_trips_read_is_read_two_trips_before() -> None:
    """Rows of an input, forwards and backwards, are under way while earlier trips are computed."""
    text = program(
        {"x": "f32[33]", "rows": "f32[9,33]", "scales": "f32[9]"},
        """
  eight = s32[] constant(8)
  back = s32[] subtract(eight, i)
  a = f32[1,33] dynamic-slice(rows, i, zero), dynamic_slice_sizes={1,33}
  b = f32[1,33] dynamic-slice(rows, back, zero), dynamic_slice_sizes={1,33}
  k = f32[1] dynamic-slice(scales, i), dynamic_slice_sizes={1}
  kr = f32[] reshape(k)
  ks = f32[33] broadcast(kr), dimensions={}
  ar = f32[33] reshape(a)
  br = f32[33] reshape(b)
  y = f32[33] multiply(x, ks)
  z = f32[33] add(y, ar)
  x1 = f32[33] subtract(z, br)""",
        "x1, rows, scales",
        iterations=9,
    )
    loop = check(text, tile={"lanes": 1}).loop("iter")
    assert loop.unroll == 2
    forwards, backwards = "later * 33 + item", "-later * 33 + item + 264"
    assert KernelCode.of_body(loop.body).read_at("rows_0") == [forwards, backwards]
    for iterations in (1, 2, 3):
        few = text.replace("constant(9)", f"constant({iterations})")
        check(few, tile={"lanes": 1}, everywhere=False, twice=False)


def test_units_stop_by_their_own_conditions() -> None:
    """A thread leaves when its work item is done, which takes each a different number of trips."""
    text = program(
        {"x": "s32[64]", "steps": "s32[64]"},
        """
  ones = s32[64] broadcast(one), dimensions={}
  two = s32[] constant(2)
  twos = s32[64] broadcast(two), dimensions={}
  three = s32[] constant(3)
  threes = s32[64] broadcast(three), dimensions={}
  rest = s32[64] remainder(x, twos)
  odd = pred[64] compare(rest, ones), direction=EQ
  half = s32[64] divide(x, twos)
  thrice = s32[64] multiply(x, threes)
  more = s32[64] add(thrice, ones)
  y = s32[64] select(odd, more, half)
  going = pred[64] compare(x, ones), direction=NE
  x1 = s32[64] select(going, y, x)
  count = s32[64] convert(going)
  steps1 = s32[64] add(steps, count)""",
        "x1, steps1",
        iterations="""
  one = s32[] constant(1)
  ones = s32[64] broadcast(one), dimensions={}
  going = pred[64] compare(x, ones), direction=NE
  no = pred[] constant(false)
  c = pred[] reduce(going, no), dimensions={0}, to_apply=or_pred""",
    )
    mapping = mapping_of(text)
    assert mapping.parallel.iterations.kind == "element"
    assert mapping.parallel.sizes == (64,)
    inputs = [np.arange(1, 65, dtype=np.int32), np.zeros(64, np.int32)]
    (loop,) = check(text, inputs=inputs, exact=True).statements(While)
    assert loop.test == TRUE
    assert len(KernelCode.of_body(loop.body).statements(Break)) == 1


def test_a_number_that_all_share_decides_when_the_loop_ends() -> None:
    """A condition on a scalar of the state that nobody knows before is computed by every thread."""
    text = program(
        {"x": "f32[33]", "limit": "f32[]", "total": "f32[]"},
        """
  x1 = f32[33] sine(x)
  half = f32[] constant(0.5)
  total1 = f32[] add(total, half)""",
        "x1, limit, total1",
        iterations="  c = pred[] compare(total, limit), direction=LT",
    )
    for limit in (0.0, 4.0):
        values = [np.linspace(-2, 2, 33, dtype=np.float32), np.float32(limit), np.float32(0.25)]
        check(text, inputs=[np.asarray(one) for one in values], everywhere=limit > 0)


def test_types_of_every_kind_are_carried() -> None:
    """Narrow floats, wide integers, pred and complex numbers; counters that go round as their types do."""
    text = program(
        {
            "h": "bf16[40]",
            "d": "f64[40]",
            "b": "pred[40]",
            "z": "c64[40]",
            "u": "u8[]",
            "l": "s64[]",
            "sums": "bf16[5]",
            "us": "u8[5]",
        },
        """
  h1 = bf16[40] add(h, h)
  hd = f64[40] convert(h)
  d1 = f64[40] multiply(d, hd)
  hf = f32[40] convert(h)
  fzs = f32[40] broadcast(fz), dimensions={}
  plus = pred[40] compare(hf, fzs), direction=GT
  bn = pred[40] xor(b, plus)
  hc = c64[40] complex(hf, hf)
  z1 = c64[40] multiply(z, hc)
  step = u8[] constant(90)
  un = u8[] add(u, step)
  thousand = s64[] constant(-1000000000000)
  ln = s64[] add(l, thousand)
  hz = bf16[] constant(0)
  sum = bf16[] reduce(h, hz), dimensions={0}, to_apply=add_bf16
  uf = bf16[] convert(u)
  both = bf16[] add(sum, uf)
  one_sum = bf16[1] reshape(both)
  sums1 = bf16[5] dynamic-update-slice(sums, one_sum, i)
  one_u = u8[1] reshape(u)
  us1 = u8[5] dynamic-update-slice(us, one_u, i)""",
        "h1, d1, bn, z1, un, ln, sums1, us1",
        iterations=5,
        init={"u": "constant(7)", "l": "constant(5)"},
    )
    check(text)


@pytest.mark.parametrize("seed", [1000, 1003, 1005])
def test_random_loops(seed: int) -> None:
    """Whatever the pass makes a kernel of, computes by threads what the interpreter says."""
    module = hloopt.parse(random_loops.loop_text(random.Random(seed), (33, 40)))
    LoopFusion(always=True).run(module, PassLog())
    given = random_loops.inputs([one.array.dims for one in module.entry.parameters])
    check_kernel(module.to_text(), KERNEL, inputs=given, everywhere=False, twice=False)


def test_indices_are_wide_where_results_are() -> None:
    """A stacked result of more elements than 32 bits count is written at 64-bit indices."""
    text = pendulum(1_000_003, 10_000)
    code = KernelCode.of(planned(fused(text), KERNEL)[2])
    assert code.types("i") == {LONG}
    assert code.heads() == [f"for iter: {LONG} from 0 to 10000"]


def test_a_unit_that_is_too_large_is_refused_with_its_figures() -> None:
    """What mixes makes a work item of everything: the refusal names it, and what a thread has."""
    stencil = program(
        {"x": "f32[4096]"},
        """
  a = f32[4095] slice(x), slice={[1:4096]}
  b = f32[1] slice(x), slice={[0:1]}
  x1 = f32[4096] concatenate(a, b), dimensions={0}""",
        "x1",
    )
    mapping = mapping_of(stencil)
    assert (mapping.code, mapping.limit, mapping.actual) == ("mixes", 4096, 32768)
    assert mapping.problem == (
        "a work item takes 32768 bytes in private arrays, a thread has 4096 at most: slice a mixes the 4096"
        " elements of dimension 0 of x"
    )


def test_estimated_registers_are_those_of_the_compiler_about() -> None:
    """The estimate is within a third of what the assembler gives."""
    for text in (pendulum(300, 7), cartpole(64), network(33, 5)):
        source = planned(fused(text), KERNEL)[2].text
        try:
            found = compile_cuda(source, "sm_90").resources
        except DeviceError:
            pytest.skip("no NVRTC")
        most = max(one.registers for name, one in found.items() if "_finish" not in name)
        assert mapping_of(text).registers == pytest.approx(most, rel=0.35), text
