"""Loops run by a block for each work item: right whatever the sizes, few barriers, refused with their reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hloopt
from hloopt.analysis.parallel_loop.block_mapping import block_loop, block_mapping
from hloopt.analysis.parallel_loop.block_plan import block_plan
from hloopt.errors import EvaluationError, UsageError
from hloopt.fusion.loop_wrap import wrap_loop
from hloopt.ir import Instruction, Module
from hloopt.kernel_ir.expressions import Array
from hloopt.kernel_ir.statements import Barrier, Declare
from hloopt.targets import find_target
from tests.codegen.harness import check_kernel, planned, ran
from tests.helpers.kernel_code import KernelCode

TARGET = find_target("h200")


def loop_of(module: Module) -> Instruction:
    """The first while of the entry."""
    return next(one for one in module.entry if one.opcode == "while")


def fused(text: str) -> str:
    """The module with its loop as a fusion."""
    module = hloopt.parse(text)
    mapping = block_mapping(loop_of(module), TARGET)
    assert not mapping.problem, mapping.problem
    wrap_loop(mapping.parallel, "loop", 64)
    hloopt.verify(module)
    return module.to_text()


def check(text: str, threads: int | None = None, **options: object) -> KernelCode:
    """Run a module's loop by the kernel; its function."""
    tile = {"threads": threads} if threads else None
    return KernelCode.of(check_kernel(fused(text), "while-per-block", tile, **options))  # type: ignore[arg-type]


def module(state: str, body: str, results: str, init: str, iterations: int, more: str = "") -> str:
    """A loop with a counter as element 0; ``{s}`` stands for the type of the state in the texts."""
    whole = f"(s32[], {state})"
    return f"""HloModule loop
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}}
larger {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT most = f32[] maximum(a, b)
}}
{more}
cond {{
  s = {whole} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({iterations})
  ROOT again = pred[] compare(i, n), direction=LT
}}
body {{
  s = {whole} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  zero = f32[] constant(0)
{body}
}}
ENTRY main {{
  start = s32[] constant(0)
{init}
  w = {whole} while(first), condition=cond, body=body
{results}
}}
"""


def heat(elements: int, iterations: int) -> str:
    """An explicit step of the heat equation on a line."""
    n = f"f32[{elements}]"
    return module(
        f"{n}, f32[]",
        f"""  u = {n} get-tuple-element(s), index=1
  k = f32[] get-tuple-element(s), index=2
  left = {n} pad(u, zero), padding=1_-1
  right = {n} pad(u, zero), padding=-1_1
  both = {n} add(left, right)
  twice = {n} add(u, u)
  bend = {n} subtract(both, twice)
  all = {n} broadcast(k), dimensions={{}}
  flow = {n} multiply(all, bend)
  v = {n} add(u, flow)
  ROOT t = (s32[], {n}, f32[]) tuple(next, v, k)""",
        f"  ROOT out = {n} get-tuple-element(w), index=1",
        f"""  from = {n} parameter(0)
  k0 = f32[] constant(0.25)
  first = (s32[], {n}, f32[]) tuple(start, from, k0)""",
        iterations,
    )


@pytest.mark.parametrize(
    ("elements", "iterations"), [(1, 3), (31, 3), (33, 0), (33, 1), (2048, 3), (33, 10_000)]
)
def test_a_stencil_is_right_whatever_the_sizes(elements: int, iterations: int) -> None:
    """Warps that are not full, several elements a thread, no trip at all and very many."""
    check(heat(elements, iterations), everywhere=elements == 2048, twice=iterations < 10, rtol=1e-4)


def test_a_stencil_has_one_barrier_a_trip() -> None:
    """The state lies in shared memory twice, so that nobody waits before writing."""
    code = check(heat(64, 5))
    assert KernelCode.of_body(code.loop("iter").body).statements(Barrier) == [Barrier()]
    # And one before it, when the state was read.
    assert code.statements(Barrier) == [Barrier()] * 2


@pytest.mark.parametrize("threads", [32, 96, 1024])
def test_any_number_of_threads_computes_the_same(threads: int) -> None:
    """The tile's threads may be fewer or more than there are elements."""
    check(heat(150, 4), threads, everywhere=False, twice=False)


def test_wrong_numbers_of_threads_are_refused() -> None:
    """A block has whole warps, and beyond 256 threads a power of two."""
    for threads in (16, 40, 320, 2048):
        with pytest.raises(UsageError, match=rf"threads={threads}; a block has a multiple of 32"):
            planned(fused(heat(64, 2)), "while-per-block", {"threads": threads})


def test_what_only_its_own_thread_reads_stays_in_registers() -> None:
    """No shared memory, no barrier in the loop."""
    text = module(
        "f32[64]",
        """  x = f32[64] get-tuple-element(s), index=1
  y = f32[64] cosine(x)
  ROOT t = (s32[], f32[64]) tuple(next, y)""",
        "  ROOT r = f32[64] get-tuple-element(w), index=1",
        "  x0 = f32[64] parameter(0)\n  first = (s32[], f32[64]) tuple(start, x0)",
        7,
    )
    parsed = hloopt.parse(text)
    parallel = block_loop(loop_of(parsed))
    assert parallel.sizes == (64,)
    code = check(text, everywhere=False)
    assert not code.arrays("shared")
    assert not code.statements(Barrier)


POWER = module(
    "f32[300], f32[]",
    """  x = f32[300] get-tuple-element(s), index=1
  a = f32[300,300] iota(), iota_dimension=0
  b = f32[300,300] iota(), iota_dimension=1
  c = f32[300,300] subtract(a, b)
  d = f32[300,300] abs(c)
  scale = f32[] constant(-0.5)
  scales = f32[300,300] broadcast(scale), dimensions={}
  e = f32[300,300] multiply(d, scales)
  m = f32[300,300] exponential(e)
  y = f32[300] dot(m, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  square = f32[300] multiply(y, y)
  total = f32[] reduce(square, zero), dimensions={0}, to_apply=add
  norm = f32[] sqrt(total)
  norms = f32[300] broadcast(norm), dimensions={}
  z = f32[300] divide(y, norms)
  ROOT t = (s32[], f32[300], f32[]) tuple(next, z, norm)""",
    """  v = f32[300] get-tuple-element(w), index=1
  e = f32[] get-tuple-element(w), index=2
  ROOT r = (f32[300], f32[]) tuple(v, e)""",
    """  x0 = f32[300] parameter(0)
  e0 = f32[] constant(0)
  first = (s32[], f32[300], f32[]) tuple(start, x0, e0)""",
    4,
)


def test_dots_and_reduces_are_shared_by_the_block() -> None:
    """A power iteration: rows by threads, the norm by shuffles and parts of warps."""
    given = [np.random.default_rng(1).uniform(0.5, 1, 300).astype(np.float32)]
    code = check(POWER, inputs=given, rtol=1e-5)
    assert code.calls("shuffle_down")
    assert [one.name for one in code.arrays("shared")] == ["state_1", "y", "total_part"]


ARGMAX = """
best {
  a = f32[] parameter(0)
  p = s32[] parameter(1)
  b = f32[] parameter(2)
  q = s32[] parameter(3)
  more = pred[] compare(a, b), direction=GT
  same = pred[] compare(a, b), direction=EQ
  first = pred[] compare(p, q), direction=LT
  tie = pred[] and(same, first)
  keep = pred[] or(more, tie)
  value = f32[] select(keep, a, b)
  place = s32[] select(keep, p, q)
  ROOT t = (f32[], s32[]) tuple(value, place)
}
"""


@pytest.mark.parametrize("elements", [40, 700])
def test_a_reducer_of_several_values_without_identity(elements: int) -> None:
    """Each trip takes the largest element out: flags say which accumulators hold anything."""
    n, m = f"f32[{elements}]", f"s32[{elements}]"
    text = module(
        f"{n}, s32[5]",
        f"""  x = {n} get-tuple-element(s), index=1
  found = s32[5] get-tuple-element(s), index=2
  at = {m} iota(), iota_dimension=0
  low = f32[] constant(-inf)
  none = s32[] constant(-1)
  both = (f32[], s32[]) reduce(x, at, low, none), dimensions={{0}}, to_apply=best
  place = s32[] get-tuple-element(both), index=1
  places = {m} broadcast(place), dimensions={{}}
  hit = pred[{elements}] compare(at, places), direction=EQ
  lows = {n} broadcast(low), dimensions={{}}
  rest = {n} select(hit, lows, x)
  part = s32[1] reshape(place)
  list = s32[5] dynamic-update-slice(found, part, i)
  ROOT t = (s32[], {n}, s32[5]) tuple(next, rest, list)""",
        "  ROOT r = s32[5] get-tuple-element(w), index=2",
        f"""  x0 = {n} parameter(0)
  z = s32[] constant(0)
  f0 = s32[5] broadcast(z), dimensions={{}}
  first = (s32[], {n}, s32[5]) tuple(start, x0, f0)""",
        5,
        ARGMAX,
    )
    check(text, everywhere=elements == 700, exact=True)


GATHERED = """HloModule newton
larger {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT most = f32[] maximum(a, b)
}
cond {
  s = (f32[64], f32[64]) parameter(0)
  x = f32[64] get-tuple-element(s), index=0
  c = f32[64] get-tuple-element(s), index=1
  square = f32[64] multiply(x, x)
  off = f32[64] subtract(square, c)
  far = f32[64] abs(off)
  zero = f32[] constant(0)
  worst = f32[] reduce(far, zero), dimensions={0}, to_apply=larger
  limit = f32[] constant(0.001)
  ROOT again = pred[] compare(worst, limit), direction=GT
}
body {
  s = (f32[64], f32[64]) parameter(0)
  x = f32[64] get-tuple-element(s), index=0
  c = f32[64] get-tuple-element(s), index=1
  q = f32[64] divide(c, x)
  both = f32[64] add(x, q)
  half = f32[] constant(0.5)
  halves = f32[64] broadcast(half), dimensions={}
  y = f32[64] multiply(both, halves)
  ROOT t = (f32[64], f32[64]) tuple(y, c)
}
ENTRY main {
  c = f32[64] parameter(0)
  t = (f32[64], f32[64]) tuple(c, c)
  w = (f32[64], f32[64]) while(t), condition=cond, body=body
  ROOT r = f32[64] get-tuple-element(w), index=0
}
"""


def test_a_condition_that_reduces_is_the_same_for_all_threads() -> None:
    """Newton's method until the worst of all elements is near enough."""
    given = [np.linspace(1, 60, 64, dtype=np.float32)]
    check(GATHERED, inputs=given)


MIXED = """
order {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  p = s32[] parameter(2)
  q = s32[] parameter(3)
  ROOT less = pred[] compare(a, b), direction=LT
}
inner_cond {
  s = (s32[], f32[40], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=2
  ROOT again = pred[] compare(i, n), direction=LT
}
inner_body {
  s = (s32[], f32[40], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[40] get-tuple-element(s), index=1
  turned = f32[40] reverse(x), dimensions={0}
  half = f32[] constant(0.5)
  halves = f32[40] broadcast(half), dimensions={}
  y = f32[40] multiply(turned, halves)
  z = f32[40] add(x, y)
  n = s32[] get-tuple-element(s), index=2
  ROOT t = (s32[], f32[40], s32[]) tuple(j, z, n)
}
even {
  x = f32[40] parameter(0)
  zero = f32[] constant(0)
  total = f32[] reduce(x, zero), dimensions={0}, to_apply=add
  totals = f32[40] broadcast(total), dimensions={}
  small = f32[] constant(0.01)
  smalls = f32[40] broadcast(small), dimensions={}
  part = f32[40] multiply(totals, smalls)
  ROOT y = f32[40] subtract(x, part)
}
odd {
  x = f32[40] parameter(0)
  r = f32[40] reverse(x), dimensions={0}
  ROOT y = f32[40] negate(r)
}
"""


def test_sorts_scatters_branches_and_loops_run_inside() -> None:
    """A block sorts by counting, branches on a scalar, and runs a loop of its own in each trip."""
    text = module(
        "f32[40], f32[8]",
        """  x = f32[40] get-tuple-element(s), index=1
  bins = f32[8] get-tuple-element(s), index=2
  at = s32[40] iota(), iota_dimension=0
  sorted = (f32[40], s32[40]) sort(x, at), dimensions={0}, to_apply=order, is_stable=true
  y = f32[40] get-tuple-element(sorted), index=0
  from = s32[40] get-tuple-element(sorted), index=1
  eight = s32[] constant(8)
  eights = s32[40] broadcast(eight), dimensions={}
  bin = s32[40] remainder(from, eights)
  rows = s32[40,1] reshape(bin)
  more = f32[8] scatter(bins, rows, y), update_window_dims={}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
  two = s32[] constant(2)
  bit = s32[] remainder(i, two)
  other = f32[40] conditional(bit, y, y), branch_computations={even, odd}
  none = s32[] constant(0)
  init = (s32[], f32[40], s32[]) tuple(none, other, next)
  in = (s32[], f32[40], s32[]) while(init), condition=inner_cond, body=inner_body
  z = f32[40] get-tuple-element(in), index=1
  ROOT t = (s32[], f32[40], f32[8]) tuple(next, z, more)""",
        """  a = f32[40] get-tuple-element(w), index=1
  b = f32[8] get-tuple-element(w), index=2
  ROOT r = (f32[40], f32[8]) tuple(a, b)""",
        """  x0 = f32[40] parameter(0)
  z = f32[] constant(0)
  b0 = f32[8] broadcast(z), dimensions={}
  first = (s32[], f32[40], f32[8]) tuple(start, x0, b0)""",
        3,
        MIXED,
    )
    check(text, rtol=1e-4, atol=1e-4)


RECURRENT = module(
    "f32[8,16], f32[6,8,16], f32[20,16]",
    """  h = f32[8,16] get-tuple-element(s), index=1
  seen = f32[6,8,16] get-tuple-element(s), index=2
  m = f32[20,16] get-tuple-element(s), index=3
  x = f32[8,4] slice(h), slice={[0:8], [3:7]}
  both = f32[8,20] concatenate(h, x), dimensions={1}
  p = f32[8,16] dot(both, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  g = f32[8,16] tanh(p)
  row = f32[1,8,16] reshape(g)
  none = s32[] constant(0)
  all = f32[6,8,16] dynamic-update-slice(seen, row, i, none, none)
  ROOT t = (s32[], f32[8,16], f32[6,8,16], f32[20,16]) tuple(next, g, all, m)""",
    """  a = f32[8,16] get-tuple-element(w), index=1
  b = f32[6,8,16] get-tuple-element(w), index=2
  ROOT r = (f32[8,16], f32[6,8,16]) tuple(a, b)""",
    """  h0 = f32[8,16] parameter(0)
  m0 = f32[20,16] parameter(1)
  z = f32[] constant(0)
  s0 = f32[6,8,16] broadcast(z), dimensions={}
  first = (s32[], f32[8,16], f32[6,8,16], f32[20,16]) tuple(start, h0, s0, m0)""",
    5,
)


def test_units_have_a_block_each_and_stream_their_part() -> None:
    """A recurrent cell: eight blocks, and what no trip writes is what it was before."""
    loop = loop_of(hloopt.parse(RECURRENT))
    assert block_mapping(loop, TARGET).parallel.sizes == (8,)
    check(RECURRENT)


def test_what_is_read_again_and_again_is_stored_once() -> None:
    """The product, which is summed up and then scaled, and its length; the matrix is read once."""
    mapping = block_mapping(loop_of(hloopt.parse(POWER)), TARGET)
    assert [instruction.name for instruction, _ in mapping.stored] == ["y", "total"]
    assert block_plan(mapping.parallel, mapping.threads).barriers == 3


def test_a_larger_state_lies_in_what_the_launch_gives() -> None:
    """A function may declare 48 KiB; a launch gives what a block may have at most."""
    mapping = block_mapping(loop_of(hloopt.parse(heat(16384, 2))), TARGET)
    assert TARGET.shared_per_block < mapping.shared_bytes <= TARGET.shared_per_block_optin
    shared = check(heat(16384, 2), twice=False).statements(Declare)
    assert [one.offset for one in shared if isinstance(one.target, Array)] == [0]


@pytest.mark.parametrize("kernel", ["while-per-block", "while-per-thread"])
def test_what_a_test_guards_is_not_read_before_the_loop(kernel: str) -> None:
    """Halves of an array that the loop only reads, the other way round: each work item reads one of them."""
    text = module(
        "f32[64], f32[64]",
        """  x = f32[64] get-tuple-element(s), index=1
  v = f32[64] get-tuple-element(s), index=2
  low = f32[32] slice(v), slice={[0:32]}
  high = f32[32] slice(v), slice={[32:64]}
  turned = f32[64] concatenate(high, low), dimensions={0}
  y = f32[64] add(x, turned)
  ROOT t = (s32[], f32[64], f32[64]) tuple(next, y, v)""",
        "  ROOT r = f32[64] get-tuple-element(w), index=1",
        """  x0 = f32[64] parameter(0)
  v0 = f32[64] parameter(1)
  first = (s32[], f32[64], f32[64]) tuple(start, x0, v0)""",
        3,
    )
    check_kernel(fused(text), kernel, everywhere=False, twice=False)


def test_the_state_must_fit_a_block() -> None:
    """The refusal names what mixes, what a block would hold and what it has."""
    mapping = block_mapping(loop_of(hloopt.parse(heat(1 << 20, 3))), TARGET)
    assert mapping.problem == (
        "pad left mixes the 1048576 elements of dimension 0 of u;"
        f" a block would hold 8388608 bytes, it has {mapping.limit}"
    )
    assert (mapping.code, mapping.actual) == ("mixes", 8388608)


def test_a_device_without_threads_has_no_blocks() -> None:
    """Where nothing is known of threads, nothing is planned for them."""
    mapping = block_mapping(loop_of(hloopt.parse(POWER)), find_target("tpu-v4"))
    assert mapping.problem == "tpu-v4 has no blocks of threads"


def test_ops_with_kernels_of_their_own_are_refused() -> None:
    """A factorisation in the body has no place in a block."""
    text = module(
        "f32[4,4]",
        """  x = f32[4,4] get-tuple-element(s), index=1
  l = f32[4,4] cholesky(x), lower=true
  ROOT t = (s32[], f32[4,4]) tuple(next, l)""",
        "  ROOT r = f32[4,4] get-tuple-element(w), index=1",
        "  x0 = f32[4,4] parameter(0)\n  first = (s32[], f32[4,4]) tuple(start, x0)",
        2,
    )
    problem = block_mapping(loop_of(hloopt.parse(text)), TARGET).problem
    assert problem == "cholesky l has a separate kernel or none"


def test_a_missing_barrier_is_found() -> None:
    """The checks would tell a race: without the barrier that ends a trip the emulator stops."""
    parsed, plan, kernels = planned(fused(heat(64, 5)), "while-per-block")
    function, loop = kernels.parts[0].function, KernelCode.of(kernels).loop("iter")
    assert function is not None
    assert loop.body[-1] == Barrier()
    short = replace(loop, body=loop.body[:-1])
    body = tuple(short if one is loop else one for one in function.body)
    part = replace(kernels.parts[0], function=replace(function, body=body))
    broken = replace(kernels, parts=(part, *kernels.parts[1:]))
    with pytest.raises(EvaluationError, match=r"no barrier between|no thread has written"):
        ran(parsed, plan, broken, [np.ones(64, np.float32)])
