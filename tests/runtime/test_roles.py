"""Inputs made by chance suit what the module does with them, found by following the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.runtime.inputs import generate

Array = np.ndarray[Any, Any]

CALLED = "flat { q = f32[1,64,80] parameter(0)  ROOT r = f32[64,80] reshape(q) }"


def module_of(body: str, before: str = "") -> hloopt.Module:
    """A module whose entry has these lines."""
    return hloopt.parse(f"HloModule m\n{before}\nENTRY e {{\n{body}\n}}\n")


def made(body: str, before: str = "") -> list[Array]:
    """Inputs of a module whose entry has these lines."""
    return generate(module_of(body, before))


def deviation(array: Array) -> float:
    """The standard deviation."""
    return float(array.astype(np.float64).std())


def results(module: hloopt.Module) -> list[Array]:
    """What the module gives on inputs made for it."""
    return hloopt.compile(module).run(generate(module))


def test_a_deep_stack_of_products_stays_finite() -> None:
    """A hundred layers in f16, which standard normal weights would take beyond every bound."""
    lines = ["h0 = f16[8,128] parameter(0)"]
    for number in range(100):
        lines.append(f"w{number} = f16[128,128] parameter({number + 1})")
        lines.append(
            f"h{number + 1} = f16[8,128] dot(h{number}, w{number}), "
            "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        )
    lines.append("ROOT r = f16[8,128] copy(h100)")
    (result,) = results(module_of("\n".join(lines)))
    assert np.isfinite(result).all()
    assert 0.1 < deviation(result) < 10


@pytest.mark.parametrize(
    ("weight", "use", "fan_in"),
    [
        ("f32[64,80]", "p = f32[64,80] copy(w)", 64),
        ("f32[80,64]", "p = f32[64,80] transpose(w), dimensions={1,0}", 64),
        ("f32[4,16,80]", "p = f32[64,80] reshape(w)", 64),
        ("bf16[64,80]", "p = f32[64,80] convert(w)", 64),
        ("f32[1,64,80]", "p = f32[64,80] call(w), to_apply=flat", 64),
        ("(f32[64,80], s32[])", "p = f32[64,80] get-tuple-element(w), index=0", 64),
        ("f32[64,80]", 'p = f32[64,80] custom-call(w), custom_call_target="Sharding"', 64),
        ("f32[64,80]", "p = f32[64,80] tanh(w)", 1),
        ("f32[64,80]", 'p = f32[64,80] custom-call(w), custom_call_target="mine"', 1),
    ],
)
def test_weights_are_scaled_by_their_fan_in(weight: str, use: str, fan_in: int) -> None:
    """Through moves, calls and markers; of a parameter that is computed with first nothing is known."""
    body = f"""x = f32[80,64] parameter(0)
    w = {weight} parameter(1)
    {use}
    ROOT d = f32[80,80] dot(x, p), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"""
    arrays = made(body, CALLED)
    assert deviation(arrays[1]) == pytest.approx(fan_in**-0.5, rel=0.05)


def test_data_that_meets_a_weight_stays_data() -> None:
    """The product of a first layer's weight gradient sums over the batch, and leaves the batch alone."""
    x, w, g = made("""x = f32[512,16] parameter(0)
    w = f32[16,64] parameter(1)
    g = f32[512,64] parameter(2)
    y = f32[512,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    z = f32[512,64] multiply(y, g)
    ROOT d = f32[16,64] dot(x, z), lhs_contracting_dims={0}, rhs_contracting_dims={0}""")
    assert deviation(x) == pytest.approx(1, rel=0.05)
    assert deviation(w) == pytest.approx(0.25, rel=0.1)
    assert deviation(g) == pytest.approx(1, rel=0.05)


def test_the_largest_fan_wins() -> None:
    """A weight that is used both ways, as in a step of training."""
    _, w = made("""x = f32[9,16] parameter(0)
    w = f32[16,256] parameter(1)
    y = f32[9,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    e = f32[9,256] exponential(y)
    ROOT d = f32[9,16] dot(e, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}""")
    assert deviation(w) == pytest.approx(1 / 16, rel=0.05)


def test_a_kernel_sums_over_its_window_and_features() -> None:
    """3 x 3 positions of 16 features."""
    image, kernel = made("""i = f32[2,8,8,16] parameter(0)
    k = f32[3,3,16,32] parameter(1)
    ROOT c = f32[2,6,6,32] convolution(i, k), window={size=3x3}, dim_labels=b01f_01io->b01f""")
    assert deviation(kernel) == pytest.approx(1 / 12, rel=0.05)
    assert deviation(image) == pytest.approx(1, rel=0.05)


SCAN = """body {
  p = (s32[], f32[8,64], f32[5,64,64]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  h = f32[8,64] get-tuple-element(p), index=1
  all = f32[5,64,64] get-tuple-element(p), index=2
  zero = s32[] constant(0)
  one = f32[1,64,64] dynamic-slice(all, i, zero, zero), dynamic_slice_sizes={1,64,64}
  w = f32[64,64] reshape(one)
  next = f32[8,64] dot(w, h), lhs_contracting_dims={0}, rhs_contracting_dims={1}
  turned = f32[8,64] tanh(next)
  step = s32[] constant(1)
  j = s32[] add(i, step)
  ROOT t = (s32[], f32[8,64], f32[5,64,64]) tuple(j, turned, all)
}
cond {
  p = (s32[], f32[8,64], f32[5,64,64]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}
"""


def test_what_a_loop_passes_on_unchanged_is_a_weight() -> None:
    """What it computes anew is none, whichever side of the product it stands on."""
    text = SCAN.replace("next = f32[8,64] dot(w, h)", "next = f32[64,8] dot(w, h)").replace(
        "tanh(next)", "transpose(next), dimensions={1,0}"
    )
    h, w = made(
        """h = f32[8,64] parameter(0)
        w = f32[5,64,64] parameter(1)
        z = s32[] constant(0)
        s = (s32[], f32[8,64], f32[5,64,64]) tuple(z, h, w)
        l = (s32[], f32[8,64], f32[5,64,64]) while(s), condition=cond, body=body
        ROOT r = f32[8,64] get-tuple-element(l), index=1""",
        text,
    )
    assert deviation(w) == pytest.approx(1 / 8, rel=0.05)
    assert deviation(h) == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("kind", ["f4e2m1fn", "f8e4m3fn", "f8e5m2"])
def test_weights_of_few_bits_do_not_vanish(kind: str) -> None:
    """Their deviation stays at or above the type's smallest normal number."""
    _, w = made(f"""x = f32[8,8192] parameter(0)
    w = {kind}[8192,16] parameter(1)
    p = f32[8192,16] convert(w)
    ROOT d = f32[8,16] dot(x, p), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}""")
    assert np.count_nonzero(w.astype(np.float32)) > w.size / 2


POSITIVES = {
    "sqrt": "e = f32[] constant(1e-6)\n s = f32[50] broadcast(e), dimensions={}\n"
    "a = f32[50] add(v, s)\n ROOT r = f32[50] sqrt(a)",
    "log": "ROOT r = f32[50] log(v)",
    "log-plus-one": "ROOT r = f32[50] log-plus-one(v)",
    "rsqrt of a mean": "z = f32[] constant(0)\n"
    "m = f32[] reduce(v, z), dimensions={0}, to_apply=add\n ROOT r = f32[] rsqrt(m)",
    "second moment": "x = f32[50] parameter(1)\n g = f32[50] multiply(x, x)\n"
    "b = f32[] constant(0.9)\n bs = f32[50] broadcast(b), dimensions={}\n"
    "k = f32[50] multiply(v, bs)\n n = f32[50] add(k, g)\n ROOT r = f32[50] sqrt(n)",
    "batch norm": "x = f32[9,50] parameter(1)\n o = f32[50] parameter(2)\n"
    "ROOT r = f32[9,50] batch-norm-inference(x, o, o, o, v), epsilon=0.001, feature_index=1",
    "fractional power": "h = f32[] constant(0.5)\n hs = f32[50] broadcast(h), dimensions={}\n"
    "ROOT r = f32[50] power(v, hs)",
}


@pytest.mark.parametrize("body", POSITIVES.values(), ids=POSITIVES)
def test_variances_and_the_like_are_positive(body: str) -> None:
    """No result is NaN or infinite."""
    add = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }"
    module = module_of(f"v = f32[50] parameter(0)\n{body}", add)
    variance = generate(module)[0]
    assert variance.min() >= 0.5
    assert variance.max() < 1.5
    assert all(np.isfinite(result).all() for result in results(module))


@pytest.mark.parametrize(
    "body",
    [
        "s = f32[50] multiply(v, v)\n ROOT r = f32[50] sqrt(s)",
        "s = f32[50] abs(v)\n ROOT r = f32[50] sqrt(s)",
        (
            "t = f32[] constant(2)\n ts = f32[50] broadcast(t), dimensions={}\n"
            "ROOT r = f32[50] power(v, ts)"
        ),
        (
            "t = f32[] constant(0.1)\n ts = f32[50] broadcast(t), dimensions={}\n"
            "m = f32[50] maximum(v, ts)\n ROOT r = f32[50] log(m)"
        ),
    ],
)
def test_what_cannot_be_negative_asks_nothing_of_its_operand(body: str) -> None:
    """Squares, magnitudes, whole powers, and what a constant bounds from below."""
    assert made(f"v = f32[50] parameter(0)\n{body}")[0].min() < 0


def test_the_step_of_adam_is_positive() -> None:
    """1 - b ** t is under a square root: t = 0 would make it 0, and t < 0 negative."""
    body = """t = s32[] parameter(0)
    n = f32[20] parameter(1)
    f = f32[] convert(t)
    b = f32[] constant(0.999)
    p = f32[] power(b, f)
    o = f32[] constant(1)
    c = f32[] subtract(o, p)
    cs = f32[20] broadcast(c), dimensions={}
    d = f32[20] divide(n, cs)
    ROOT s = f32[20] sqrt(d)"""
    module = module_of(body)
    for seed in range(8):
        step, moment = generate(module, seed)
        assert 1 <= step <= 4
        assert moment.min() >= 0.5


def test_bounds_of_loops_let_them_run() -> None:
    """As many trips as a parameter says are 1 to 4."""
    before = """body {
      p = (s32[], s32[]) parameter(0)
      i = s32[] get-tuple-element(p), index=0
      n = s32[] get-tuple-element(p), index=1
      o = s32[] constant(1)
      j = s32[] add(i, o)
      ROOT t = (s32[], s32[]) tuple(j, n)
    }
    cond {
      p = (s32[], s32[]) parameter(0)
      i = s32[] get-tuple-element(p), index=0
      n = s32[] get-tuple-element(p), index=1
      ROOT c = pred[] compare(i, n), direction=LT
    }"""
    module = module_of(
        """n = s32[] parameter(0)
        z = s32[] constant(0)
        s = (s32[], s32[]) tuple(z, n)
        ROOT w = (s32[], s32[]) while(s), condition=cond, body=body""",
        before,
    )
    assert {int(generate(module, seed)[0]) for seed in range(30)} == {1, 2, 3, 4}


def test_labels_are_below_the_number_of_classes() -> None:
    """What is compared with an iota is one of its numbers; one of a single number says nothing."""
    body = """l = s32[200] parameter(0)
    other = s32[200] parameter(1)
    c = s32[200,7] iota(), iota_dimension=1
    b = s32[200,7] broadcast(l), dimensions={0}
    h = pred[200,7] compare(b, c), direction=EQ
    i = s32[200] iota(), iota_dimension=0
    one = s32[200,1] iota(), iota_dimension=1
    o = s32[200,1] reshape(other)
    g = pred[200,1] compare(o, one), direction=EQ
    ROOT t = (pred[200,7], pred[200,1]) tuple(h, g)"""
    labels, other = made(body)
    assert set(labels.tolist()) == set(range(7))
    assert other.min() < 0


@pytest.mark.parametrize(("kind", "two"), [("f32", "2"), ("f64", "2"), ("c64", "(2, 0)")])
def test_matrices_to_be_factored_are_definite(kind: str, two: str) -> None:
    """Cholesky decomposition and solving by a triangle give finite results."""
    module = module_of(f"""a = {kind}[3,20,20] parameter(0)
    t = {kind}[40,40] parameter(1)
    b = {kind}[40,2] parameter(2)
    h = {kind}[3,20,20] transpose(a), dimensions={{0,2,1}}
    z = {kind}[3,20,20] add(a, h)
    two = {kind}[] constant({two})
    twos = {kind}[3,20,20] broadcast(two), dimensions={{}}
    y = {kind}[3,20,20] divide(z, twos)
    c = {kind}[3,20,20] cholesky(y), lower=true
    s = {kind}[40,2] triangular-solve(t, b), left_side=true, lower=true, transpose_a=NO_TRANSPOSE
    ROOT r = ({kind}[3,20,20], {kind}[40,2]) tuple(c, s)""")
    assert all(np.isfinite(result).all() for result in results(module))


@pytest.mark.parametrize(
    "use",
    [
        "ROOT r = (u64[2], u32[5]) rng-bit-generator(k), algorithm=rng_three_fry",
        "c = u64[2] constant({3, 4})\n ROOT x = u64[2] xor(k, c)",
    ],
)
def test_keys_are_random_bits(use: str) -> None:
    """A small key would be a poor one."""
    (key,) = made(f"k = u64[2] parameter(0)\n{use}")
    assert key.min() > 1 << 48


def test_types_of_the_draw_and_of_the_array_may_differ() -> None:
    """Large arrays are drawn piece by piece; every piece is random."""
    (array,) = made("ROOT a = bf16[3,1000000] parameter(0)")
    for part in array.astype(np.float32):
        assert deviation(part) == pytest.approx(1, rel=0.01)
    assert not np.array_equal(array[0], array[1])
