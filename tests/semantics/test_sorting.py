"""sort and topk: a stable merge sort of Python's, by comparators in Python's words."""

from __future__ import annotations

import functools
import math
import random
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hloopt.types import DTYPES
from tests.helpers.rarely import examples
from tests.semantics.combiners import python, stored
from tests.semantics.elements import ELEMENTS, drawn_dims, entry, seeds, shape_of, values
from tests.semantics.statement import check

OPCODES = ("sort", "topk")


def rank(element, kind):
    """A number that orders a type totally: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN."""
    row = DTYPES[kind]
    if not row.is_float:
        return int(element)
    bits = int.from_bytes(np.asarray(element).tobytes(), "little")
    if kind == "f8e8m0fnu":  # no sign
        return bits
    sign = 1 << (row.bits - 1)
    return sign - 1 - bits if bits & sign else bits


def less_than(x, y, direction, kind, total):
    """One comparison, of NumPy's elements."""
    a, b = (rank(x, kind), rank(y, kind)) if total else (python(x, kind), python(y, kind))
    return {"LT": a < b, "GT": a > b, "LE": a <= b, "GE": a >= b, "EQ": a == b, "NE": a != b}[
        direction
    ]


def parameters(kinds):
    return "\n".join(
        f"  {name}{at} = {kind}[] parameter({2 * at + side})"
        for at, kind in enumerate(kinds)
        for side, name in enumerate("xy")
    )


def single(kinds, direction, total, key=0):
    """Compares the elements of one operand."""
    kind = kinds[key]
    order = ", type=TOTALORDER" if total else ""
    text = f"less {{\n{parameters(kinds)}\n  ROOT r = pred[] compare(x{key}, y{key}), direction={direction}{order}\n}}"
    return text, lambda x, y: less_than(x[key], y[key], direction, kind, total)


def lexicographic(kinds, first, second, total, form):
    """The first two operands, the second where the first is equal."""
    a, b = kinds[:2]
    order = ", type=TOTALORDER" if total else ""
    last = {
        "or": "t = pred[] and(e, s)\n  ROOT r = pred[] or(f, t)",
        "select": "ROOT r = pred[] select(e, s, f)",
    }
    text = f"""less {{
{parameters(kinds)}
  f = pred[] compare(x0, y0), direction={first}{order}
  e = pred[] compare(x0, y0), direction=EQ{order}
  s = pred[] compare(x1, y1), direction={second}{order}
  {last[form]}
}}"""

    def function(x, y):
        equal = less_than(x[0], y[0], "EQ", a, total)
        before = less_than(x[0], y[0], first, a, total)
        then = less_than(x[1], y[1], second, b, total)
        return before or (equal and then) if form == "or" else then if equal else before

    return text, function


def nearest(kinds):
    """No key of one element: |x - 3| < |y - 3|, with the wrapping of the type."""
    (kind, *_) = kinds
    text = f"""less {{
{parameters(kinds)}
  three = {kind}[] constant(3)
  a = {kind}[] subtract(x0, three)
  b = {kind}[] subtract(y0, three)
  c = {kind}[] abs(a)
  d = {kind}[] abs(b)
  ROOT r = pred[] compare(d, c), direction=GT
}}"""

    def function(x, y):
        far = [abs(stored(python(e[0], kind) - 3, kind)) for e in (x, y)]
        return stored(far[0], kind) < stored(far[1], kind)

    return text, function


def differing(kinds):
    """x - y < 0, which with wrapping is no order of integers, and has no NaN before or after a number."""
    (kind, *_) = kinds
    text = f"""less {{
{parameters(kinds)}
  zero = {kind}[] constant(0)
  d = {kind}[] subtract(x0, y0)
  ROOT r = pred[] compare(d, zero), direction=LT
}}"""
    return text, lambda x, y: stored(python(x[0], kind) - python(y[0], kind), kind) < 0


def cyclic(kinds):
    """0 < 1 < 2 < 3 < 0, by the last two bits: an order of neighbours alone."""
    (kind, *_) = kinds
    text = f"""less {{
{parameters(kinds)}
  one = {kind}[] constant(1)
  three = {kind}[] constant(3)
  d = {kind}[] subtract(y0, x0)
  m = {kind}[] and(d, three)
  ROOT r = pred[] compare(m, one), direction=EQ
}}"""
    return text, lambda x, y: (int(y[0]) - int(x[0])) % 4 == 1


def constant(kinds, answer):
    """A comparator that does not look at its parameters."""
    text = f"less {{\n{parameters(kinds)}\n  ROOT r = pred[] constant({answer})\n}}"
    return text, lambda x, y: answer == "true"


def merge_sorted(items, less):
    """Runs of one, merged in pairs head by head; the right head goes first where it is less."""
    runs = [[item] for item in items]
    while len(runs) > 1:
        merged = []
        for at in range(0, len(runs), 2):
            left, right, out = runs[at], runs[at + 1] if at + 1 < len(runs) else [], []
            while left or right:
                source = right if right and (not left or less(right[0], left[0])) else left
                out.append(source[0])
                del source[0]
            merged.append(out)
        runs = merged
    return runs[0] if runs else []


def sorted_lanes(arrays, axis, less):
    dims = arrays[0].shape
    results = [np.empty(dims, x.dtype) for x in arrays]
    for lane in product(*(range(size) for d, size in enumerate(dims) if d != axis)):
        places = [(*lane[:axis], i, *lane[axis:]) for i in range(dims[axis])]
        items = merge_sorted([tuple(x[place] for x in arrays) for place in places], less)
        for place, item in zip(places, items, strict=True):
            for result, element in zip(results, item, strict=True):
                result[place] = element
    return results


def check_sort(kinds, dims, axis, comparator, chooser, *, stable=None, few=True):
    text, less = comparator
    arrays = [values(kind, dims, chooser) for kind in kinds]
    if few:  # so that there are ties
        for x in arrays:
            palette = x.reshape(-1)[:4].copy()
            for index in product(*map(range, dims)):
                x[index] = chooser.choice(list(palette))
    with np.errstate(all="ignore"):
        want = sorted_lanes(arrays, axis, less)
    operands = ", ".join(f"p{number}" for number in range(len(kinds)))
    shapes = [shape_of(kind, dims) for kind in kinds]
    result = shapes[0] if len(kinds) == 1 else f"({', '.join(shapes)})"
    flag = "" if stable is None else f", is_stable={str(stable).lower()}"
    module = entry(
        f"{result} sort({operands}), dimensions={{{axis}}}{flag}, to_apply=less", shapes, text
    )
    check(module, arrays, want)


ORDERED = [name for name in ELEMENTS if not DTYPES[name].is_complex]
lanes = st.one_of(drawn_dims(1, 3, max_size=6), st.tuples(st.integers(0, 40)))


@given(
    st.sampled_from(ORDERED),
    lanes,
    st.sampled_from(["LT", "GT", "LE", "GE"]),
    st.booleans(),
    st.sampled_from([None, True, False]),
    seeds,
    st.data(),
)
@settings(max_examples=examples(70))
def test_sort_by_one_comparison(kind, dims, direction, total, stable, chooser, data):
    """Any type and dimension, in total or partial order: ties keep their order, but where ``LE`` and
    ``GE`` say that the right one goes first; NaNs go where the comparison leaves them.
    """
    axis = data.draw(st.integers(0, len(dims) - 1))
    total = total and DTYPES[kind].is_float
    few = chooser.random() < 0.7
    comparator = single([kind], direction, total)
    check_sort([kind], dims, axis, comparator, chooser, stable=stable, few=few)


@given(
    st.lists(st.sampled_from(ELEMENTS), min_size=1, max_size=3),
    st.sampled_from(["f32", "s32", "bf16", "u8", "f64", "pred", "s4"]),
    lanes,
    st.sampled_from(["LT", "GT"]),
    seeds,
    st.data(),
)
@settings(max_examples=examples(40))
def test_sort_moves_all_operands_together(kinds, key, dims, direction, chooser, data):
    """Operands of any types follow the one that is compared, whichever that is."""
    axis = data.draw(st.integers(0, len(dims) - 1))
    at = data.draw(st.integers(0, len(kinds)))
    kinds = [*kinds[:at], key, *kinds[at:]]
    comparator = single(kinds, direction, total=DTYPES[key].is_float, key=at)
    check_sort(kinds, dims, axis, comparator, chooser)


@given(
    st.sampled_from(["f32", "s32", "bf16", "u8", "pred"]),
    st.sampled_from(["f32", "s8", "f16", "u64"]),
    lanes,
    st.sampled_from(["LT", "GT"]),
    st.sampled_from(["LT", "GT"]),
    st.booleans(),
    st.sampled_from(["or", "select"]),
    seeds,
    st.data(),
)
@settings(max_examples=examples(60))
def test_sort_by_two_keys(first, second, dims, one, two, total, form, chooser, data):
    """The second key decides between elements whose first keys are equal; with NaNs, as comparisons say."""
    axis = data.draw(st.integers(0, len(dims) - 1))
    if total and not (DTYPES[first].is_float and DTYPES[second].is_float):
        total = False
    kinds = [first, second, "s32"]
    check_sort(kinds, dims, axis, lexicographic(kinds, one, two, total, form), chooser)


@given(
    st.sampled_from(["s8", "s32", "f32", "bf16", "f64"]),
    lanes,
    st.sampled_from([nearest, differing, "true", "false"]),
    seeds,
    st.data(),
)
@settings(max_examples=examples(60))
def test_sort_by_any_computation(kind, dims, comparator, chooser, data):
    """Also one that is no order: runs are merged head by head, from single elements upwards."""
    axis = data.draw(st.integers(0, len(dims) - 1))
    kinds = [kind, "u8"]
    made = constant(kinds, comparator) if isinstance(comparator, str) else comparator(kinds)
    check_sort(kinds, dims, axis, made, chooser)


@given(st.sampled_from(["s32", "u8"]), st.integers(2, 60), seeds)
@settings(max_examples=examples(40))
def test_sort_by_a_circle_compares_what_merging_compares(kind, count, chooser):
    """What is no order at all still has one result."""
    check_sort([kind, "s32"], (count,), 0, cyclic([kind, "s32"]), chooser, few=False)


@given(st.lists(st.sampled_from([1.0, -0.0, 0.0, 2.5, -3.0, math.inf]), max_size=40), st.booleans())
@settings(max_examples=examples(40))
def test_sort_is_pythons_stable_sort_where_the_comparator_is_an_order(numbers, descending):
    """Without NaNs ``<`` is one; equal zeros keep their order."""
    order = sorted(range(len(numbers)), key=lambda i: -numbers[i] if descending else numbers[i])
    kinds = ["f32", "s32"]
    text, _ = single(kinds, "GT" if descending else "LT", total=False)
    shapes = [shape_of(kind, [len(numbers)]) for kind in kinds]
    module = entry(
        f"({', '.join(shapes)}) sort(p0, p1), dimensions={{0}}, to_apply=less", shapes, text
    )
    x, places = np.array(numbers, np.float32), np.arange(len(numbers), dtype=np.int32)
    want = [np.array([numbers[i] for i in order], np.float32), np.array(order, np.int32)]
    check(module, [x, places], want)


def test_sort_agrees_with_functools_on_a_comparator_with_keys_and_code():
    """Canonical zeros and NaNs last, as JAX writes its comparators."""
    less = """less {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  zero = f32[] constant(0)
  none = f32[] constant(nan)
  xz = pred[] compare(x, zero), direction=EQ
  yz = pred[] compare(y, zero), direction=EQ
  xs = f32[] select(xz, zero, x)
  ys = f32[] select(yz, zero, y)
  xn = pred[] compare(x, x), direction=NE
  yn = pred[] compare(y, y), direction=NE
  xk = f32[] select(xn, none, xs)
  yk = f32[] select(yn, none, ys)
  ROOT r = pred[] compare(xk, yk), direction=LT, type=TOTALORDER
}"""
    numbers = [math.nan, 0.0, -0.0, 3.0, -math.inf, -math.nan, 0.0, -2.0, math.inf, -0.0]

    def compare(a, b):
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) - math.isnan(b)
        return (a > b) - (a < b)

    want = np.array(sorted(numbers, key=functools.cmp_to_key(compare)), np.float32)
    module = entry("f32[10] sort(p0), dimensions={0}, to_apply=less", ["f32[10]"], less)
    check(module, [np.array(numbers, np.float32)], want)


@given(st.sampled_from(ORDERED), lanes, st.booleans(), seeds, st.data())
@settings(max_examples=examples(60))
def test_topk_takes_the_first_in_total_order_and_their_indices(kind, dims, largest, chooser, data):
    """Along the last dimension; of equal elements the one at the lower index comes first."""
    k = data.draw(st.integers(0, dims[-1]))
    x = values(kind, dims, chooser)
    want, indices = np.empty((*dims[:-1], k), x.dtype), np.empty((*dims[:-1], k), np.int32)
    for lane in product(*map(range, dims[:-1])):
        ranks = [rank(x[(*lane, i)], kind) for i in range(dims[-1])]
        order = sorted(range(dims[-1]), key=lambda i, r=ranks: -r[i] if largest else r[i])
        for place, i in enumerate(order[:k]):
            want[(*lane, place)], indices[(*lane, place)] = x[(*lane, i)], i
    result = f"({shape_of(kind, want.shape)}, {shape_of('s32', want.shape)})"
    text = f"{result} topk(p0), k={k}, largest={str(largest).lower()}"
    check(entry(text, [shape_of(kind, dims)]), [x], [want, indices])


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("kind", ORDERED)
def test_topk_of_few_out_of_many_is_the_beginning_of_the_sorted_ones(kind, largest):
    """In every type, also where the elements are picked before they are sorted."""
    x = values(kind, (2, 60), random.Random(len(kind)))
    want, indices = np.empty((2, 3), x.dtype), np.empty((2, 3), np.int32)
    for lane in range(2):
        ranks = [rank(element, kind) for element in x[lane]]
        order = sorted(range(60), key=lambda i, r=ranks: -r[i] if largest else r[i])[:3]
        want[lane], indices[lane] = [x[lane, i] for i in order], order
    text = f"({kind}[2,3], s32[2,3]) topk(p0), k=3, largest={str(largest).lower()}"
    check(entry(text, [f"{kind}[2,60]"]), [x], [want, indices])


@pytest.mark.parametrize("region", ["bf16", "f32"])
def test_sort_converts_to_the_precision_of_its_comparator(region):
    """A comparator may take its elements in another float type than they have."""
    operand = "f32" if region == "bf16" else "bf16"
    text, _ = single([region], "LT", total=False)
    numbers = [1.001, 1.002, 1.0, 2.0, 1.003, 0.5]
    x = np.array(numbers, np.float32).astype(DTYPES[operand].numpy)
    keys = [stored(float(e), region) for e in x]
    want = np.array([x[i] for i in sorted(range(6), key=lambda i: keys[i])], x.dtype)
    module = entry(
        f"{operand}[6] sort(p0), dimensions={{0}}, to_apply=less", [f"{operand}[6]"], text
    )
    check(module, [x], want)
