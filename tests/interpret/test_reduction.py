"""reduce, map and scan through the interpreter, against loops and special values."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloopt
from hloopt.interpret.reducer import Reducer
from hloopt.interpret.reduction import fold
from hloopt.types import dtype


def run(text, *inputs, **options):
    return hloopt.evaluate(hloopt.parse(f"HloModule m\n{text}"), list(inputs), **options)


def reducing(op, kind, count, value, *, init="0"):
    """A module that reduces ``kind[count]`` with ``op``; returns the result of evaluating it."""
    return run(
        f"""
        region {{
          x = {kind}[] parameter(0)
          y = {kind}[] parameter(1)
          ROOT r = {kind}[] {op}(x, y)
        }}
        ENTRY e {{
          p = {kind}[{count}] parameter(0)
          i = {kind}[] constant({init})
          ROOT r = {kind}[] reduce(p, i), dimensions={{0}}, to_apply=region
        }}""",
        value,
    )[0]


@given(st.integers(0, 20))
def test_the_tree_keeps_the_order_of_its_elements(count):
    """String-like joining is associative and not commutative: digits stay in order."""
    width = np.full(count, 10, object)
    digits = np.arange(count).astype(object)

    def join(left, right):
        return [left[0] * right[1] + right[0], left[1] * right[1]]

    kinds = (dtype("s64"), dtype("s64"))
    reducer = Reducer(None, kinds, join, associative=True)
    start = [np.array(0, object), np.array(1, object)]
    value, _ = fold([digits % 10, width], start, reducer)
    assert int(value) == int("0" + "".join(str(d % 10) for d in range(count)))


def test_float_sums_are_made_in_double():
    """Small numbers are not lost beside a large one, and the sum is rounded once."""
    x = np.array([2.0**24, 1.0, 1.0, -(2.0**24)], np.float32)
    assert reducing("add", "f32", 4, x) == 2.0
    many = np.full(1000, 0.5, ml_dtypes.bfloat16)
    assert reducing("add", "bf16", 1000, many) == 500.0


def test_an_init_that_is_no_identity_counts_once():
    """The accumulator starts at init."""
    assert reducing("add", "s32", 3, np.array([1, 2, 3], np.int32), init="10") == 16
    assert reducing("multiply", "f32", 2, np.array([2, 3], np.float32), init="0.5") == 3


def test_integer_sums_wrap():
    """s8 and s4 sums wrap in their own width."""
    assert reducing("add", "s8", 2, np.array([100, 100], np.int8)) == -56
    assert int(reducing("add", "s4", 2, np.array([7, 1], ml_dtypes.int4))) == -8


@pytest.mark.parametrize("op", ["maximum", "minimum"])
def test_nan_is_the_extreme(op):
    """A NaN anywhere is the result."""
    x = np.array([1.0, np.nan, 3.0], np.float32)
    assert np.isnan(reducing(op, "f32", 3, x, init="2"))


def test_predicates_reduce_logically():
    """and and or of pred, from their identities."""
    x = np.array([True, False])
    assert not reducing("and", "pred", 2, x, init="true")
    assert reducing("or", "pred", 2, x, init="false")


ARG_MIN = """
    region {
      xv = f32[] parameter(0)
      xi = s32[] parameter(1)
      yv = f32[] parameter(2)
      yi = s32[] parameter(3)
      le = pred[] compare(xv, yv), direction=LE
      v = f32[] select(le, xv, yv)
      i = s32[] select(le, xi, yi)
      ROOT r = (f32[], s32[]) tuple(v, i)
    }
    ENTRY e {
      p = f32[3,1000] parameter(0)
      q = s32[3,1000] iota(), iota_dimension=1
      top = f32[] constant(inf)
      zero = s32[] constant(0)
      ROOT r = (f32[3], s32[3]) reduce(p, q, top, zero), dimensions={1}, to_apply=region
    }"""


def test_reduce_of_two_operands_takes_all_accumulators_first():
    """Least value and its index along a dimension."""
    x = np.random.default_rng(0).normal(size=(3, 1000)).astype(np.float32)
    values, indices = run(ARG_MIN, x)
    np.testing.assert_array_equal(values, x.min(axis=1))
    np.testing.assert_array_equal(indices, x.argmin(axis=1))


def test_narrow_products_round_at_every_step():
    """A bf16 product in strict mode is bf16 after each factor; with excess precision it is f32."""
    x = np.array([1.0078125, 1.0078125, 1.0078125], ml_dtypes.bfloat16)
    strict = x[0]
    for factor in x[1:]:
        strict = (strict.astype(np.float32) * factor.astype(np.float32)).astype(ml_dtypes.bfloat16)
    assert reducing("multiply", "bf16", 3, x, init="1") == strict


def test_batch_norm_training_and_gradient_agree_with_differences():
    """Mean, variance and output by definition; gradients against central differences."""
    rng = np.random.default_rng(3)
    x, g = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    scale, offset = rng.normal(size=3), rng.normal(size=3)
    training = """ENTRY e {
      x = f64[4,3] parameter(0)
      s = f64[3] parameter(1)
      o = f64[3] parameter(2)
      ROOT r = (f64[4,3], f64[3], f64[3]) batch-norm-training(x, s, o), epsilon=0.001, feature_index=1
    }"""
    out, mean, variance = run(training, x, scale, offset)
    np.testing.assert_allclose(mean, x.mean(0))
    np.testing.assert_allclose(variance, ((x - x.mean(0)) ** 2).mean(0))
    np.testing.assert_allclose(out, (x - mean) / np.sqrt(variance + 0.001) * scale + offset)
    gradient = """ENTRY e {
      x = f64[4,3] parameter(0)
      s = f64[3] parameter(1)
      m = f64[3] parameter(2)
      v = f64[3] parameter(3)
      g = f64[4,3] parameter(4)
      ROOT r = (f64[4,3], f64[3], f64[3]) batch-norm-grad(x, s, m, v, g), epsilon=0.001, feature_index=1
    }"""
    of_x, of_scale, of_offset = run(gradient, x, scale, mean, variance, g)

    def loss(x, scale, offset):
        return (run(training, x, scale, offset)[0] * g).sum()

    for place in [(0, 0), (2, 1), (3, 2)]:
        step = np.zeros_like(x)
        step[place] = 1e-6
        slope = (loss(x + step, scale, offset) - loss(x - step, scale, offset)) / 2e-6
        np.testing.assert_allclose(of_x[place], slope, rtol=1e-5, atol=1e-7)
    for k in range(3):
        step = np.eye(3)[k] * 1e-6
        slope = (loss(x, scale + step, offset) - loss(x, scale - step, offset)) / 2e-6
        np.testing.assert_allclose(of_scale[k], slope, rtol=1e-5)
    np.testing.assert_allclose(of_offset, g.sum(0))
