"""What loops only read, in both kernels: nothing is read where a test around the place rules it out."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.analysis.parallel_loop.block_mapping import block_mapping
from hloopt.analysis.parallel_loop.thread_mapping import thread_mapping
from hloopt.fusion.loop_wrap import wrap_loop
from hloopt.targets import find_target
from tests.codegen.harness import check_kernel
from tests.codegen.short_loops import only_loop, program

TARGET = find_target("h200")
KERNELS = {"while-per-thread": thread_mapping, "while-per-block": block_mapping}

SHIFTED = program(
    {"x": "f32[40]", "k": "f32[40]"},
    "  moved = f32[40] pad(k, fz), padding=1_-1\n  y = f32[40] add(x, moved)",
    "y, k",
)

EARLIER = program(
    {"x": "f32[40]", "rows": "f32[4,40]"},
    """  moved = f32[4,40] pad(rows, fz), padding=1_-1x0_0
  part = f32[1,40] dynamic-slice(moved, i, zero), dynamic_slice_sizes={1,40}
  row = f32[40] reshape(part)
  y = f32[40] add(x, row)""",
    "y, rows",
)

BRANCHED = program(
    {"x": "f32[40]", "k": "f32[40]"},
    """  sum = f32[] reduce(x, fz), dimensions={0}, to_apply=add_f32
  plus = pred[] compare(sum, fz), direction=GT
  turned = f32[40] reverse(x), dimensions={0}
  y = f32[40] conditional(plus, turned, k), true_computation=later, false_computation=waves""",
    "y, k",
    more="""later {
  p = f32[40] parameter(0)
  fz = f32[] constant(0)
  q = f32[40] tanh(p)
  ROOT r = f32[40] pad(q, fz), padding=-1_1
}
waves { p = f32[40] parameter(0) ROOT r = f32[40] sine(p) }""",
)

SORTED_INSIDE = program(
    {"v": "f32[3]", "w": "f32[4]"},
    """  first = (s32[], f32[3], f32[4]) tuple(zero, v, w)
  last = (s32[], f32[3], f32[4]) while(first), condition=few, body=ordering
  v1 = f32[3] get-tuple-element(last), index=1
  w1 = f32[4] get-tuple-element(last), index=2""",
    "v1, w1",
    more="""less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }
ordering {
  s = (s32[], f32[3], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[3] get-tuple-element(s), index=1
  w = f32[4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  sorted = f32[3] sort(v), dimensions={0}, to_apply=less
  tripled = f32[4] add(w, w)
  ROOT r = (s32[], f32[3], f32[4]) tuple(next, sorted, tripled)
}
few {
  s = (s32[], f32[3], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  most = s32[] constant(2)
  ROOT c = pred[] compare(i, most), direction=LT
}""",
)

HANDED_ON = program(
    {"v": "f32[130]", "w": "f32[130]"},
    """  first = (s32[], f32[130], f32[130]) tuple(zero, v, w)
  last = (s32[], f32[130], f32[130]) while(first), condition=few, body=turning
  v1 = f32[130] negate(v)
  same = f32[130] get-tuple-element(last), index=2
  square = f32[130] multiply(same, same)""",
    "v1, square",
    more="""pass { p = (f32[130], f32[130]) parameter(0) ROOT r = f32[130] get-tuple-element(p), index=1 }
turning {
  s = (s32[], f32[130], f32[130]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[130] get-tuple-element(s), index=1
  w = f32[130] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  turned = f32[130] reverse(v), dimensions={0}
  both = (f32[130], f32[130]) tuple(turned, w)
  same = f32[130] call(both), to_apply=pass
  ROOT r = (s32[], f32[130], f32[130]) tuple(next, turned, same)
}
few {
  s = (s32[], f32[130], f32[130]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  most = s32[] constant(2)
  ROOT c = pred[] compare(i, most), direction=LT
}""",
)

LOOP_IN_BRANCH = program(
    {"v": "f32[40]", "out": "f32[4,40]"},
    """  sum = f32[] reduce(v, fz), dimensions={0}, to_apply=add_f32
  plus = pred[] compare(sum, fz), direction=GT
  y = f32[40] conditional(plus, v, v), true_computation=twice, false_computation=stay
  row = f32[1,40] reshape(y)
  out1 = f32[4,40] dynamic-update-slice(out, row, i, zero)
  v1 = f32[40] negate(v)""",
    "v1, out1",
    more="""stay { p = f32[40] parameter(0) ROOT r = f32[40] negate(p) }
turning {
  s = (s32[], f32[40], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[40] get-tuple-element(s), index=1
  q = f32[] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  turned = f32[40] reverse(v), dimensions={0}
  qs = f32[40] broadcast(q), dimensions={}
  moved = f32[40] add(turned, qs)
  half = f32[] constant(0.5)
  less = f32[] multiply(q, half)
  ROOT r = (s32[], f32[40], f32[]) tuple(next, moved, less)
}
few {
  s = (s32[], f32[40], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  most = s32[] constant(2)
  ROOT c = pred[] compare(i, most), direction=LT
}
twice {
  p = f32[40] parameter(0)
  zero = s32[] constant(0)
  ten = f32[] constant(10)
  first = (s32[], f32[40], f32[]) tuple(zero, p, ten)
  last = (s32[], f32[40], f32[]) while(first), condition=few, body=turning
  v = f32[40] get-tuple-element(last), index=1
  q = f32[] get-tuple-element(last), index=2
  qs = f32[40] broadcast(q), dimensions={}
  ROOT r = f32[40] add(v, qs)
}""",
)

HALF_WANTED = program(
    {"v": "f32[130]", "m": "f32[130,7]"},
    """  sum = f32[] reduce(v, fz), dimensions={0}, to_apply=add_f32
  plus = pred[] compare(sum, fz), direction=GT
  both = (f32[130], f32[130,7]) tuple(v, m)
  chosen = (f32[130], f32[130,7]) conditional(plus, both, both), true_computation=sorts, false_computation=turns
  m1 = f32[130,7] get-tuple-element(chosen), index=1
  sums = f32[7] reduce(m1, fz), dimensions={0}, to_apply=add_f32
  wide = f32[130,7] broadcast(sums), dimensions={1}
  m2 = f32[130,7] add(m1, wide)
  m3 = f32[130,7] tanh(m2)
  v1 = f32[130] negate(v)""",
    "v1, m3",
    more="""less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }
sorts {
  p = (f32[130], f32[130,7]) parameter(0)
  v = f32[130] get-tuple-element(p), index=0
  m = f32[130,7] get-tuple-element(p), index=1
  sorted = f32[130] sort(v), dimensions={0}, to_apply=less
  waves = f32[130,7] sine(m)
  ROOT r = (f32[130], f32[130,7]) tuple(sorted, waves)
}
turns {
  p = (f32[130], f32[130,7]) parameter(0)
  v = f32[130] get-tuple-element(p), index=0
  m = f32[130,7] get-tuple-element(p), index=1
  turned = f32[130,7] cosine(m)
  ROOT r = (f32[130], f32[130,7]) tuple(v, turned)
}""",
)


def check(text: str, kernel: str) -> None:
    module = hloopt.parse(text)
    hloopt.verify(module)
    mapping = KERNELS[kernel](only_loop(module), TARGET)
    assert not mapping.problem, mapping.problem
    wrap_loop(mapping.parallel, "loop", 64)
    check_kernel(module.to_text(), kernel, everywhere=False, twice=False)


@pytest.mark.parametrize("kernel", KERNELS)
def test_neighbours_of_units_are_read_where_there_are_any(kernel: str) -> None:
    """An array that the loop only reads, moved along by one: the first work item's neighbour is outside of it."""
    check(SHIFTED, kernel)


@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_of_earlier_trips_are_read_where_there_are_any(kernel: str) -> None:
    """Rows are read some trips ahead only if each trip has one."""
    check(EARLIER, kernel)


def test_what_a_branch_takes_is_computed_before_it_where_it_always_is() -> None:
    """A branch that moves its operand reads beyond it under a test alone."""
    check(BRANCHED, "while-per-block")


def test_a_loop_inside_with_a_sort_is_the_whole_blocks() -> None:
    """No thread sorts by itself, however few the elements."""
    check(SORTED_INSIDE, "while-per-block")


def test_what_a_loop_inside_hands_on_through_tuples_and_calls_is_what_it_was() -> None:
    """Nobody runs the loop for it: analysis and code agree on what is invariant."""
    check(HANDED_ON, "while-per-block")


def test_what_a_loop_in_a_branch_leaves_is_read_behind_the_branch() -> None:
    """Its variables are declared around the test that the branch is taken."""
    check(LOOP_IN_BRANCH, "while-per-block")


def test_results_of_branches_that_nobody_reads_are_not_computed() -> None:
    """Of a conditional that is stored, only those results are that something needs."""
    check(HALF_WANTED, "while-per-block")
