"""Regions: which are recognised, which may be regrouped, and all of them applied to arrays."""

import numpy as np
import pytest

import hloopt
from hloopt.interpret import EVALUATORS
from hloopt.interpret.interpreter import Interpreter
from hloopt.interpret.regions import combiner, is_associative, liftable


def region(body):
    """A computation called ``region`` and an interpreter for its module."""
    entry = "ENTRY e { ROOT c = s32[] constant(0) }"
    module = hloopt.parse(f"HloModule m\nregion {{\n{body}\n}}\n{entry}")
    return module.computations["region"], Interpreter(module, EVALUATORS)


def binary(op, kind="f32", order="x, y"):
    return f"x = {kind}[] parameter(0)\ny = {kind}[] parameter(1)\nROOT r = {kind}[] {op}({order})"


@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "minimum"])
def test_ops_on_both_parameters_are_named(op):
    """x op y is the op."""
    assert combiner(region(binary(op))[0]) == op


def test_exchanged_parameters_are_the_same():
    """y + x is x + y, and so for all ops that have a name."""
    assert combiner(region(binary("add", order="y, x"))[0]) == "add"
    assert combiner(region(binary("maximum", order="y, x"))[0]) == "maximum"


@pytest.mark.parametrize("op", ["subtract", "divide", "power"])
def test_other_ops_are_not_named(op):
    """Only the ops that have a fast form have a name."""
    assert combiner(region(binary(op))[0]) is None
    assert combiner(region(binary("add", order="x, x"))[0]) is None


def test_assignments_are_named():
    """A region that returns a parameter chooses it."""
    text = "x = f32[] parameter(0)\nROOT y = f32[] parameter(1)"
    assert combiner(region(text)[0]) == "second"
    text = "ROOT x = f32[] parameter(0)\ny = f32[] parameter(1)"
    assert combiner(region(text)[0]) == "first"


def wide_add(outer, inner):
    return f"""
        x = {outer}[] parameter(0)
        y = {outer}[] parameter(1)
        a = {inner}[] convert(x)
        b = {inner}[] convert(y)
        s = {inner}[] add(a, b)
        ROOT r = {outer}[] convert(s)"""


def test_conversions_are_looked_through_where_they_change_nothing():
    """A bf16 sum in f32 is the bf16 sum; an f32 sum in bf16 is not the f32 sum."""
    assert combiner(region(wide_add("bf16", "f32"))[0]) == "add"
    assert combiner(region(wide_add("f32", "bf16"))[0]) is None
    assert combiner(region(wide_add("bf16", "f16"))[0]) is None
    assert combiner(region(wide_add("s8", "s32"))[0]) is None


ARG_MAX = """
    xv = f32[] parameter(0)
    xi = s32[] parameter(1)
    yv = f32[] parameter(2)
    yi = s32[] parameter(3)
    gt = pred[] compare(xv, yv), direction=GT
    none = pred[] compare(xv, xv), direction=NE
    better = pred[] or(gt, none)
    eq = pred[] compare(xv, yv), direction=EQ
    lower = pred[] compare(xi, yi), direction={0}
    tie = pred[] and(eq, lower)
    first = pred[] or(better, tie)
    v = f32[] select(better, xv, yv)
    i = s32[] select(first, xi, yi)
    ROOT r = (f32[], s32[]) tuple(v, i)"""


def test_comparing_regions_are_proved_associative():
    """maximum and arg-max keep every bit however a fold is grouped."""
    assert is_associative(*region(binary("maximum")))
    assert is_associative(*region(binary("minimum", "s32", "y, x")))
    assert is_associative(*region(ARG_MAX.format("LT")))


def test_regions_that_only_seem_associative_are_not():
    """Sums of floats round, and a tie that depends on the sides does not regroup."""
    assert not is_associative(*region(binary("add")))
    unordered = """
        x = s32[] parameter(0)
        y = s32[] parameter(1)
        a = s32[] parameter(2)
        b = s32[] parameter(3)
        lt = pred[] compare(x, b), direction=LT
        v = s32[] select(lt, x, y)
        w = s32[] select(lt, b, y)
        ROOT r = (s32[], s32[]) tuple(v, w)"""
    assert not is_associative(*region(unordered))


def apply(body, *arrays):
    computation, interpreter = region(body)
    with np.errstate(all="ignore"):
        return interpreter.apply(computation, list(arrays))


def test_regions_are_applied_to_whole_arrays():
    """Arrays broadcast against each other; constants and calls spread over them."""
    body = """
        x = f32[] parameter(0)
        y = f32[] parameter(1)
        two = f32[] constant(2)
        m = f32[] multiply(x, two)
        same = f32[] reshape(m)
        ROOT r = (f32[], f32[]) tuple(two, same)"""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    two, doubled = apply(body, x, np.float32(1) * np.ones(()))
    assert two.shape == (2, 3)
    np.testing.assert_array_equal(doubled, 2 * x)


CONTROL = """
HloModule m
halve {
  x = s32[] parameter(0)
  one = s32[] constant(1)
  ROOT h = s32[] shift-right-arithmetic(x, one)
}
grow {
  x = s32[] parameter(0)
  three = s32[] constant(3)
  one = s32[] constant(1)
  m = s32[] multiply(x, three)
  ROOT g = s32[] add(m, one)
}
step {
  s = (s32[], s32[]) parameter(0)
  x = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  odd = s32[] and(x, one)
  next = s32[] conditional(odd, x, x), branch_computations={halve, grow}
  count = s32[] add(n, one)
  ROOT t = (s32[], s32[]) tuple(next, count)
}
more {
  s = (s32[], s32[]) parameter(0)
  x = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  ROOT c = pred[] compare(x, one), direction=NE
}
collatz {
  x = s32[] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], s32[]) tuple(x, zero)
  w = (s32[], s32[]) while(t), condition=more, body=step
  ROOT n = s32[] get-tuple-element(w), index=1
}
ENTRY e {
  x = s32[2,3] parameter(0)
  ROOT m = s32[2,3] map(x), dimensions={0,1}, to_apply=collatz
}
"""


def test_loops_and_branches_are_run_for_each_element():
    """A while that ends at different trips, a conditional that goes different ways."""
    module = hloopt.parse(CONTROL)
    assert liftable(module.computations["collatz"])
    x = np.array([[1, 2, 3], [6, 7, 27]], np.int32)
    (steps,) = hloopt.evaluate(module, [x])
    assert steps.tolist() == [[0, 1, 7], [8, 16, 111]]


def test_regions_with_arrays_inside_are_run_element_by_element():
    """A region that builds an array on the way cannot be lifted, and is still right."""
    body = """
        x = s32[] parameter(0)
        y = s32[] parameter(1)
        i = s32[4] iota(), iota_dimension=0
        b = s32[4] broadcast(x), dimensions={}
        s = s32[4] add(i, b)
        at = s32[1] dynamic-slice(s, y), dynamic_slice_sizes={1}
        ROOT r = s32[] reshape(at)"""
    computation, _ = region(body)
    assert not liftable(computation)
    result = apply(body, np.array([10, 20, 30], np.int32), np.array([0, 1, 9], np.int32))
    assert result.tolist() == [10, 21, 33]
    empty = apply(body, np.zeros((0, 2), np.int32), np.zeros((0, 2), np.int32))
    assert empty.shape == (0, 2)
