"""map, reduce and scan: computations applied element by element, in order."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hloopt.types import DTYPES
from tests.helpers.rarely import examples
from tests.semantics.combiners import (
    arg_by,
    argmax,
    binary,
    chosen,
    crossed,
    python,
    stored,
    twice_less,
)
from tests.semantics.elements import drawn_dims, entry, moderate, seeds, shape_of, values
from tests.semantics.statement import check, evaluate

OPCODES = ("map", "reduce", "scan")


def listed(numbers):
    return "{" + ",".join(map(str, numbers)) + "}"


def tupled(shapes):
    return shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"


def reduced(arrays, inits, axes, combiner):
    """acc = combine(acc, element) in row-major order of the reduced dimensions, from the initial values."""
    dims = arrays[0].shape
    kept = [d for d in range(len(dims)) if d not in axes]
    results = [np.empty([dims[d] for d in kept], x.dtype) for x in arrays]
    for outer in product(*(range(dims[d]) for d in kept)):
        acc = [python(x[()], kind) for x, kind in zip(inits, combiner.kinds, strict=True)]
        for inner in product(*(range(dims[d]) for d in sorted(axes))):
            index = [0] * len(dims)
            for d, i in (*zip(kept, outer, strict=True), *zip(sorted(axes), inner, strict=True)):
                index[d] = i
            new = [python(x[tuple(index)], k) for x, k in zip(arrays, combiner.kinds, strict=True)]
            acc = combiner.function(acc, new)
        for result, number in zip(results, acc, strict=True):
            result[outer] = number
    return results


def reduce_text(dims, axes, combiner):
    count = len(combiner.kinds)
    kept = [size for d, size in enumerate(dims) if d not in axes]
    operands = ", ".join(f"p{number}" for number in range(2 * count))
    result = tupled([shape_of(kind, kept) for kind in combiner.kinds])
    text = f"{result} reduce({operands}), dimensions={listed(axes)}, to_apply=combine"
    shapes = [shape_of(kind, dims) for kind in combiner.kinds]
    return entry(text, shapes + [shape_of(kind, ()) for kind in combiner.kinds], combiner.text)


COMBINERS = (
    binary("add", "s8"),
    binary("add", "u2"),
    binary("add", "s4"),
    binary("add", "pred"),
    binary("multiply", "u64"),
    binary("multiply", "s4"),
    binary("multiply", "f32"),
    binary("multiply", "bf16"),
    binary("multiply", "f16", swapped=True),
    binary("multiply", "f8e5m2"),
    binary("multiply", "f64"),
    binary("maximum", "f32"),
    binary("maximum", "f64", swapped=True),
    binary("maximum", "bf16"),
    binary("maximum", "s16"),
    binary("maximum", "u1"),
    binary("maximum", "f8e4m3fn"),
    binary("minimum", "f16"),
    binary("minimum", "f32"),
    binary("minimum", "u32"),
    binary("minimum", "s2"),
    binary("and", "pred"),
    binary("or", "pred"),
    binary("xor", "pred"),
    binary("and", "s32"),
    binary("or", "u8"),
    binary("xor", "u4"),
    binary("subtract", "f32"),
    binary("subtract", "s64", swapped=True),
    chosen(0, "bf16"),
    chosen(1, "c64"),
    twice_less("s16"),
    twice_less("f32"),
    twice_less("bf16"),
    crossed("s8", "u16"),
    argmax("f32", "s32"),
    argmax("f64", "s64", "LT"),
    argmax("bf16", "u32"),
    argmax("s32", "s32", "LT"),
    argmax("u8", "s16"),
    arg_by("GT", "f32", "s32"),
    arg_by("GE", "bf16", "u8"),
    arg_by("LT", "s32", "s32"),
    arg_by("LE", "f64", "s64"),
)


@given(drawn_dims(max_rank=4), st.sampled_from(COMBINERS), seeds, st.data())
@settings(max_examples=examples(110))
def test_reduce_folds_in_row_major_order_from_its_initial_value(dims, combiner, chooser, data):
    """Any dimensions, any computation, initial values that are no identity, empty arrays."""
    axes = data.draw(
        st.lists(st.sampled_from(range(len(dims))), unique=True) if dims else st.just([])
    )
    arrays = [values(kind, dims, chooser) for kind in combiner.kinds]
    inits = [values(kind, (), chooser) for kind in combiner.kinds]
    want = reduced(arrays, inits, axes, combiner)
    check(reduce_text(dims, axes, combiner), [*arrays, *inits], want)


LONG = (((3, 101), [1]), ((67, 3), [0]), ((130,), [0]), ((5, 4, 6), [2, 0]), ((4, 2, 3, 5), [1, 2]))


@pytest.mark.parametrize("combiner", COMBINERS, ids=str)
def test_reduce_of_many_elements_is_the_same_fold(combiner):
    """A hundred elements to each of three results, to one, and over dimensions that lie apart."""
    for seed, (dims, axes) in enumerate(LONG):
        chooser = random.Random(seed)
        arrays = [moderate(kind, dims, chooser) for kind in combiner.kinds]
        inits = [moderate(kind, (), chooser) for kind in combiner.kinds]
        want = reduced(arrays, inits, axes, combiner)
        check(reduce_text(dims, axes, combiner), [*arrays, *inits], want)


@pytest.mark.parametrize("combiner", [binary("multiply", "f32"), twice_less("f32")], ids=str)
def test_reduce_follows_the_logical_order_not_the_memorys(combiner):
    """Of an array that is the transpose or reverse of another, as views of it would be."""
    chooser = random.Random(5)
    x, init = moderate("f32", (9, 4, 7), chooser), moderate("f32", (), chooser)
    text = f"""HloModule m
{combiner.text}
ENTRY e {{
  p = f32[9,4,7] parameter(0)
  i = f32[] parameter(1)
  t = f32[7,4,9] transpose(p), dimensions={{2,1,0}}
  v = f32[7,4,9] reverse(t), dimensions={{0}}
  ROOT r = f32[4] reduce(v, i), dimensions={{0,2}}, to_apply=combine
}}"""
    turned = np.empty((7, 4, 9), np.float32)
    for a, b, c in product(range(7), range(4), range(9)):
        turned[a, b, c] = x[c, b, 6 - a]
    check(text, [x, init], reduced([turned], [init], [0, 2], combiner))


@given(
    st.sampled_from(["f32", "bf16", "f64", "f16"]),
    st.sampled_from(["maximum", "minimum"]),
    st.integers(1, 6),
    seeds,
)
@settings(max_examples=examples(50))
def test_reduce_knows_which_zero_is_the_larger_one(kind, op, count, chooser):
    """+0 is the maximum of zeros, -0 the minimum, wherever they stand."""
    other = -1.0 if op == "maximum" else 1.0
    x = np.empty((3, count), DTYPES[kind].numpy)
    for index in product(range(3), range(count)):
        x[index] = chooser.choice(
            [0.0, -0.0, -0.0, other] if op == "maximum" else [-0.0, 0.0, 0.0, other]
        )
    init = np.asarray(chooser.choice([0.0, -0.0, other])).astype(x.dtype)
    combiner = binary(op, kind)
    check(reduce_text(x.shape, [1], combiner), [x, init], reduced([x], [init], [1], combiner))


PAIRS = (
    argmax("f32", "s32", whole=True),
    argmax("f64", "s32", "LT", whole=True),
    argmax("f32", "s32"),
    argmax("bf16", "u8", "LT"),
    argmax("s8", "s64"),
    *(arg_by(direction, "f32", "s32") for direction in ("GT", "GE", "LT", "LE")),
    arg_by("GE", "u8", "s32"),
)


@given(st.sampled_from(PAIRS), st.integers(17, 60), st.booleans(), seeds)
@settings(max_examples=examples(70))
def test_reduce_to_the_best_value_and_its_index(combiner, count, with_nan, chooser):
    """Many ties, both zeros among them, now and then a NaN; indices in any order."""
    kind, index = combiner.kinds
    numbers = [0.0, -0.0, -1.0, -2.0, 1.0][: chooser.choice([2, 3, 4, 5])] + [math.nan] * with_nan
    x, i = np.empty((2, count), DTYPES[kind].numpy), np.empty((2, count), DTYPES[index].numpy)
    for at in product(range(2), range(count)):
        number = chooser.choice(numbers)
        x[at] = number if DTYPES[kind].is_float else abs(int(number)) if number == number else 0
        i[at] = chooser.randint(0, 100)
    inits = [x[0, 0].reshape(()), np.asarray(chooser.randint(0, 100)).astype(i.dtype)]
    want = reduced([x, i], inits, [1], combiner)
    check(reduce_text(x.shape, [1], combiner), [x, i, *inits], want)


def exact_sum(numbers):
    """The sum as a fraction, or what infinities and NaNs make of it; of zeros, -0 if all are."""
    if any(math.isnan(x) for x in numbers) or {math.inf, -math.inf} <= set(numbers):
        return math.nan
    if any(math.isinf(x) for x in numbers):
        return next(x for x in numbers if math.isinf(x))
    if all(x == 0 for x in numbers):
        return -0.0 if all(math.copysign(1, x) < 0 for x in numbers) else 0.0
    return sum(map(Fraction, numbers))


@given(
    st.sampled_from(["f16", "bf16", "f32", "f8e5m2", "f8e4m3fn", "f8e4m3b11fnuz", "f8e3m4", "f64"]),
    st.integers(0, 40),
    st.booleans(),
    seeds,
)
@settings(max_examples=examples(70))
def test_reduce_sums_floats_in_double_and_rounds_once(name, count, finite, chooser):
    """The exact sum, rounded once: no accumulator of the element type loses the small terms.

    Terms of up to 2^30 apart have sums that a double holds exactly, in any order; f64 itself has an error
    of a unit in the last place for each addition.
    """
    row = DTYPES[name]
    scale = [2.0**e for e in (range(-8, 3) if row.bits == 8 else range(-12, 14))]
    numbers = [stored(chooser.choice([-1, 1]) * chooser.choice(scale) * (1 + chooser.getrandbits(8) / 256), name)
               for _ in range(count + 1)]  # fmt: skip
    if not finite:
        for _ in range(2):
            numbers[chooser.randrange(count + 1)] = stored(
                chooser.choice([math.inf, -math.inf, math.nan, -0.0, 0.0]), name
            )
    total = exact_sum(numbers)
    with np.errstate(all="ignore"):
        want = np.asarray(float(total)).astype(row.numpy)
        x = np.array(numbers[1:], np.float64).astype(row.numpy)
        init = np.asarray(numbers[0]).astype(row.numpy)
    text = reduce_text((count,), [0], binary("add", name))
    check(text, [x, init], want, rtol=count * 2.0**-52 if name == "f64" else 0.0)


@given(st.integers(0, 20), seeds)
@settings(max_examples=examples(20))
def test_reduce_sums_the_parts_of_complex_numbers(count, chooser):
    """Real and imaginary parts are each summed in double."""
    pairs = [
        (chooser.randint(-(2**20), 2**20) / 8, chooser.randint(-9, 9) / 4) for _ in range(count + 1)
    ]
    want = np.asarray(complex(sum(a for a, _ in pairs), sum(b for _, b in pairs))).astype(
        np.complex64
    )
    x = np.array([complex(*pair) for pair in pairs], np.complex64)
    check(reduce_text((count,), [0], binary("add", "c64")), [x[1:], x[0].reshape(())], want)


MAPPED = """
combine {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  f = f32[] convert(i)
  less = pred[] compare(a, f), direction=LT
  sum = f32[] add(a, f)
  two = f32[] constant(2)
  ROOT r = f32[] select(less, sum, two)
}"""


@given(drawn_dims(max_rank=4), seeds)
@settings(max_examples=examples(40))
def test_map_applies_a_computation_to_elements_of_all_operands(dims, chooser):
    """result[i] = f(operand0[i], operand1[i]), operands of different types."""
    x, i = values("f32", dims, chooser), values("s32", dims, chooser)
    want = np.empty(dims, np.float32)
    with np.errstate(all="ignore"):
        for index in product(*map(range, dims)):
            a, f = float(x[index]), stored(float(int(i[index])), "f32")
            want[index] = stored(a + f, "f32") if a < f else 2.0
    text = f"{shape_of('f32', dims)} map(p0, p1), dimensions={listed(range(len(dims)))}, to_apply=combine"
    check(entry(text, [shape_of("f32", dims), shape_of("s32", dims)], MAPPED), [x, i], want)


COLLATZ = """
halve { x = s64[] parameter(0) one = s64[] constant(1) ROOT h = s64[] shift-right-arithmetic(x, one) }
grow {
  x = s64[] parameter(0)
  three = s64[] constant(3)
  one = s64[] constant(1)
  m = s64[] multiply(x, three)
  ROOT g = s64[] add(m, one)
}
step {
  s = (s64[], s64[]) parameter(0)
  x = s64[] get-tuple-element(s), index=0
  n = s64[] get-tuple-element(s), index=1
  one = s64[] constant(1)
  odd = s64[] and(x, one)
  which = s32[] convert(odd)
  next = s64[] conditional(which, x, x), branch_computations={halve, grow}
  count = s64[] add(n, one)
  ROOT t = (s64[], s64[]) tuple(next, count)
}
more {
  s = (s64[], s64[]) parameter(0)
  x = s64[] get-tuple-element(s), index=0
  one = s64[] constant(1)
  ROOT c = pred[] compare(x, one), direction=GT
}
combine {
  x = s64[] parameter(0)
  zero = s64[] constant(0)
  t = (s64[], s64[]) tuple(x, zero)
  w = (s64[], s64[]) while(t), condition=more, body=step
  ROOT n = s64[] get-tuple-element(w), index=1
}"""


@given(drawn_dims(max_rank=2), seeds)
@settings(max_examples=examples(20))
def test_map_runs_loops_and_branches_for_each_element(dims, chooser):
    """Every element has its own number of trips and its own branch in each."""
    x = np.empty(dims, np.int64)
    want = np.empty(dims, np.int64)
    for index in product(*map(range, dims)):
        number, steps = chooser.randint(-1, 60), 0
        x[index] = number
        while number > 1:
            number = 3 * number + 1 if number % 2 else number // 2
            steps += 1
        want[index] = steps
    text = (
        f"{shape_of('s64', dims)} map(p0), dimensions={listed(range(len(dims)))}, to_apply=combine"
    )
    check(entry(text, [shape_of("s64", dims)], COLLATZ), [x], want)


@pytest.mark.parametrize("with_array", [False, True])
def test_map_of_arrays_without_elements_computes_nothing(with_array):
    """A loop without end in the computation does no harm where there is no element."""
    array = "b = s32[2] broadcast(x), dimensions={}" if with_array else ""
    endless = f"""
always {{ x = s32[] parameter(0) ROOT t = pred[] constant(true) }}
same {{ ROOT x = s32[] parameter(0) }}
combine {{ x = s32[] parameter(0) {array} ROOT w = s32[] while(x), condition=always, body=same }}"""
    text = "s32[2,0] map(p0), dimensions={0,1}, to_apply=combine"
    empty = np.zeros((2, 0), np.int32)
    check(entry(text, ["s32[2,0]"], endless), [empty], empty)


SCALAR_STEP = """
combine {
  x = s32[] parameter(0)
  y = u8[] parameter(1)
  c = s32[] parameter(2)
  d = u8[] parameter(3)
  w = s32[] convert(y)
  three = s32[] constant(3)
  t = s32[] multiply(c, three)
  u = s32[] add(t, x)
  n = s32[] subtract(u, w)
  z = u8[] convert(c)
  e = u8[] add(d, z)
  o = s32[] multiply(n, x)
  ROOT r = (s32[], u8[], s32[], u8[]) tuple(o, d, n, e)
}"""


@given(st.integers(0, 5), st.booleans(), seeds)
@settings(max_examples=examples(40))
def test_scan_carries_scalars_from_step_to_step(size, reverse, chooser):
    """Outputs of every step and the last carries; the first step is the last index when reversed."""
    x, y = values("s32", (size,), chooser), values("u8", (size,), chooser)
    c, d = values("s32", (), chooser), values("u8", (), chooser)
    carry, other = int(c), int(d)
    first, second = np.empty(size, np.int32), np.empty(size, np.uint8)
    order = range(size - 1, -1, -1) if reverse else range(size)
    for i in order:
        new = stored(3 * carry + int(x[i]) - int(y[i]), "s32")
        first[i], second[i] = stored(new * int(x[i]), "s32"), other
        carry, other = new, stored(other + stored(carry, "u8"), "u8")
    want = [first, second, np.array(carry, np.int32), np.array(other, np.uint8)]
    text = (
        f"(s32[{size}], u8[{size}], s32[], u8[]) scan(p0, p1, p2, p3), dimensions={{0}}, "
        f"num_carries=2, is_reverse={str(reverse).lower()}, to_apply=combine"
    )
    shapes = [f"s32[{size}]", f"u8[{size}]", "s32[]", "u8[]"]
    check(entry(text, shapes, SCALAR_STEP), [x, y, c, d], want)


@given(drawn_dims(1, 3), st.booleans(), st.booleans(), seeds, st.data())
@settings(max_examples=examples(40))
def test_scan_slices_its_inputs_along_one_dimension(dims, reverse, with_output, chooser, data):
    """The computation sees arrays without the scanned dimension; outputs have it back at its place."""
    axis = data.draw(st.integers(0, len(dims) - 1))
    rest = (*dims[:axis], *dims[axis + 1 :])
    x, c = values("s16", dims, chooser), values("s16", rest, chooser)
    slice_, result = shape_of("s16", rest), shape_of("s16", dims)
    root = f"({slice_}, {slice_}) tuple(m, n)" if with_output else f"{slice_} add(m, x)"
    region = f"""
combine {{
  x = {slice_} parameter(0)
  c = {slice_} parameter(1)
  m = {slice_} multiply(x, c)
  n = {slice_} add(m, x)
  ROOT r = {root}
}}"""
    out, carry = np.empty(dims, np.int16), c.copy()
    for i in range(dims[axis] - 1, -1, -1) if reverse else range(dims[axis]):
        for index in product(*map(range, rest)):
            at = (*index[:axis], i, *index[axis:])
            made = stored(int(x[at]) * int(carry[index]), "s16")
            out[at] = made
            carry[index] = stored(made + int(x[at]), "s16")
    shape = f"({result}, {slice_})" if with_output else slice_
    text = (
        f"{shape} scan(p0, p1), dimensions={{{axis}}}, num_carries=1, "
        f"is_reverse={str(reverse).lower()}, to_apply=combine"
    )
    check(entry(text, [result, slice_], region), [x, c], [out, carry] if with_output else carry)


def test_scan_without_inputs_counts_by_its_outputs():
    """The number of steps is the size of the scanned dimension of the results."""
    region = """
combine {
  c = s32[] parameter(0)
  two = s32[] constant(2)
  n = s32[] multiply(c, two)
  ROOT r = (s32[], s32[]) tuple(c, n)
}"""
    text = "(s32[5], s32[]) scan(p0), dimensions={0}, num_carries=1, to_apply=combine"
    want = [np.array([3 * 2**k for k in range(5)], np.int32), np.array(96, np.int32)]
    check(entry(text, ["s32[]"], region), [np.array(3, np.int32)], want)


def test_scan_without_carries_maps_slices():
    """num_carries may be left out; every step stands for itself."""
    region = "combine { x = f32[2] parameter(0) ROOT n = f32[2] negate(x) }"
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    text = entry("f32[2,3] scan(p0), dimensions={1}, to_apply=combine", ["f32[2,3]"], region)
    want = np.array([[-0.0, -1, -2], [-3, -4, -5]], np.float32)
    check(text, [x], want)
    assert evaluate(text, [x])[0][0].flags["C_CONTIGUOUS"]
