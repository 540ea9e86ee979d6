"""Loops run by a thread for each work item: branches, loops, small networks and places known at run time inside."""

from __future__ import annotations

import numpy as np
import pytest

from hloopt.kernel_ir.expressions import Var
from hloopt.kernel_ir.statements import If
from hloopt.kernel_ir.types import FLOAT
from tests.codegen.harness import check_kernel
from tests.codegen.short_loops import fused, mapping_of, network, program
from tests.helpers.kernel_code import KernelCode

KERNEL = "while-per-thread"


def check(text: str, **options: object) -> KernelCode:
    """Run a module's loop by the kernel; its functions."""
    return KernelCode.of(check_kernel(fused(text), KERNEL, **options))  # type: ignore[arg-type]


BRANCHES = """
first { p = (f32[40], f32[3,40]) parameter(0)
  a = f32[40] get-tuple-element(p), index=0
  b = f32[3,40] get-tuple-element(p), index=1
  e = f32[40] sine(a)
  r = f32[3,40] reverse(b), dimensions={0}
  ROOT t = (f32[40], f32[3,40]) tuple(e, r) }
second { p = (f32[40], f32[3,40]) parameter(0)
  a = f32[40] get-tuple-element(p), index=0
  b = f32[3,40] get-tuple-element(p), index=1
  n = f32[40] negate(a)
  m = f32[3,40] abs(b)
  ROOT t = (f32[40], f32[3,40]) tuple(n, m) }
third { p = (f32[40], f32[3,40]) parameter(0) ROOT t = (f32[40], f32[3,40]) copy(p) }
"""


@pytest.mark.parametrize("names", ["first, second, third", "third, second, third"])
def test_branches_by_number(names: str) -> None:
    """Dear branches run under one if, cheap ones are all computed; a number out of range means the last."""
    text = program(
        {"x": "f32[40]", "y": "f32[3,40]", "which": "s32[6]"},
        f"""
  w = s32[1] dynamic-slice(which, i), dynamic_slice_sizes={{1}}
  k = s32[] reshape(w)
  p = (f32[40], f32[3,40]) tuple(x, y)
  c = (f32[40], f32[3,40]) conditional(k, p, p, p), branch_computations={{{names}}}
  x1 = f32[40] get-tuple-element(c), index=0
  y1 = f32[3,40] get-tuple-element(c), index=1""",
        "x1, y1, which",
        iterations=6,
        more=BRANCHES,
    )
    some = np.random.default_rng(1)
    inputs = [some.uniform(-1, 1, dims).astype(np.float32) for dims in ((40,), (3, 40))]
    code = check(text, inputs=[*inputs, np.array([0, 1, 2, -1, 5, 0], np.int32)])
    followed = [one for one in code.statements(If) if one.otherwise]
    nested = [one for one in followed if isinstance(one.otherwise[0], If)]
    assert (len(followed), len(nested)) == ((2, 1) if "first" in names else (0, 0))


def test_branches_run_in_any_fusion() -> None:
    """What both branches take is computed once, before them; slices in a branch stay in it."""
    text = """HloModule m
hot { p = (f32[64,3], s32[]) parameter(0)
  a = f32[64,3] get-tuple-element(p), index=0
  k = s32[] get-tuple-element(p), index=1
  z = s32[] constant(0)
  r = f32[64,1] dynamic-slice(a, z, k), dynamic_slice_sizes={64,1}
  v = f32[64] reshape(r)
  ROOT e = f32[64] exponential(v) }
cold { p = (f32[64,3], s32[]) parameter(0)
  a = f32[64,3] get-tuple-element(p), index=0
  s = f32[64,1] slice(a), slice={[0:64], [1:2]}
  v = f32[64] reshape(s)
  ROOT e = f32[64] cosine(v) }
f { x = f32[64,3] parameter(0)
  k = s32[] parameter(1)
  w = pred[] parameter(2)
  t = f32[64,3] tanh(x)
  p = (f32[64,3], s32[]) tuple(t, k)
  c = f32[64] conditional(w, p, p), true_computation=hot, false_computation=cold
  s = f32[64,1] slice(t), slice={[0:64], [1:2]}
  v = f32[64] reshape(s)
  ROOT r = f32[64] add(c, v) }
ENTRY main { x = f32[64,3] parameter(0)
  k = s32[] parameter(1)
  w = pred[] parameter(2)
  ROOT r = f32[64] fusion(x, k, w), kind=kLoop, calls=f }
"""
    some = np.random.default_rng(1).uniform(-1, 1, (64, 3)).astype(np.float32)
    for which in (True, False):
        inputs = [some, np.array(2, np.int32), np.array(which)]
        code = KernelCode.of(check_kernel(text, "loop", inputs=inputs, everywhere=which))
        (branch,) = code.statements(If)
        assert isinstance(branch.test, Var)
        assert branch.test.name.startswith("w")
        (function,) = code.functions
        before = KernelCode.of_body(function.body[: function.body.index(branch)])
        assert len(before.calls("tanhf")) == 1
        assert len(KernelCode.of_body(branch.body).calls("tanhf")) == 1
        assert len(code.calls("tanhf")) == 2


INNER = """
inner_body { s = (s32[], f32[4,33], s32[33]) parameter(0)
  k = s32[] get-tuple-element(s), index=0
  a = f32[4,33] get-tuple-element(s), index=1
  n = s32[33] get-tuple-element(s), index=2
  one = s32[] constant(1)
  k1 = s32[] add(k, one)
  ones = s32[33] broadcast(one), dimensions={}
  n1 = s32[33] add(n, ones)
  c = f32[4,33] cosine(a)
  f = f32[] convert(k)
  fs = f32[4,33] broadcast(f), dimensions={}
  a1 = f32[4,33] add(c, fs)
  ROOT t = (s32[], f32[4,33], s32[33]) tuple(k1, a1, n1) }
inner_cond { s = (s32[], f32[4,33], s32[33]) parameter(0)
  k = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(k, n), direction=LT }
"""


def test_loops_inside_run_inside() -> None:
    """A loop within the loop is a loop within the kernel, its state in variables of its own."""
    text = program(
        {"x": "f32[4,33]", "n": "s32[33]"},
        """
  first = (s32[], f32[4,33], s32[33]) tuple(zero, x, n)
  w = (s32[], f32[4,33], s32[33]) while(first), condition=inner_cond, body=inner_body
  x1 = f32[4,33] get-tuple-element(w), index=1
  n1 = s32[33] get-tuple-element(w), index=2""",
        "x1, n1",
        iterations=4,
        more=INNER,
    )
    code = check(text, everywhere=False)
    assert code.heads() == ["for iter: int from 0 to 4", "for iter_1: int from 0 to 3"]
    assert code.loop("iter_1") in code.loop("iter").body


@pytest.mark.parametrize("hidden", [5, 24])
def test_small_networks_run_for_each_unit(hidden: int) -> None:
    """Each hidden value is computed once a trip: written out, or kept in an array that loops go over."""
    text = network(33, hidden)
    code = check(text, everywhere=hidden == 24)
    stored = [value.name for value, _ in mapping_of(text).stored]
    assert stored == ([] if hidden == 5 else ["ta", "tb"])
    assert len(code.calls("tanhf")) == (10 if hidden == 5 else 2)


def test_large_states_are_in_arrays_and_updated_after_all_is_read() -> None:
    """Elements of a state that read each other see the values of the trip before."""
    text = program(
        {"x": "f32[3,24]", "y": "f32[33,24]", "at": "s32[33]"},
        """
  r = f32[33,24] reverse(y), dimensions={1}
  p = f32[24] reshape(q)
  ps = f32[33,24] broadcast(p), dimensions={1}
  y1 = f32[33,24] add(r, ps)
  three = s32[] constant(3)
  threes = s32[33] broadcast(three), dimensions={}
  at1 = s32[33] add(at, threes)""".replace(
            "p = f32[24] reshape(q)",
            "q = f32[1,24] slice(x), slice={[0:1], [0:24]}\n  p = f32[24] reshape(q)",
        ),
        "x, y1, at1",
        iterations=3,
    )
    arrays = [(one.name, one.element, one.dims) for one in check(text).arrays("local")]
    assert arrays == [("state_2", FLOAT, (24,)), ("next_2", FLOAT, (24,))]


def test_elements_at_numbers_of_run_time() -> None:
    """A dynamic slice of what a work item owns is chosen among its registers, and a part of it is replaced."""
    text = program(
        {"x": "f32[5,40]", "last": "f32[40]", "k": "s32[]"},
        """
  one_row = f32[1,40] dynamic-slice(x, k, zero), dynamic_slice_sizes={1,40}
  row = f32[40] reshape(one_row)
  last1 = f32[40] add(last, row)
  new = f32[1,40] reshape(last1)
  k0 = s32[] subtract(k, one)
  x1 = f32[5,40] dynamic-update-slice(x, new, k0, zero)
  seven = s32[] constant(7)
  kk = s32[] multiply(k, seven)
  five = s32[] constant(5)
  k1 = s32[] remainder(kk, five)
  read = f32[5,40] add(x1, x)""",
        "read, last1, k1",
        iterations=4,
    )
    some = np.random.default_rng(2)
    inputs = [some.uniform(-1, 1, (5, 40)), some.uniform(-1, 1, 40)]
    check(text, inputs=[*(one.astype(np.float32) for one in inputs), np.array(3, np.int32)])
