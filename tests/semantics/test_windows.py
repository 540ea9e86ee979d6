"""reduce-window and select-and-scatter: windows that slide over arrays, one position at a time."""

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
from tests.semantics.combiners import argmax, binary, chosen, crossed, python, stored, twice_less
from tests.semantics.elements import entry, moderate, seeds, shape_of, values
from tests.semantics.slides import Slide, reduce_window_text, slides, window_text
from tests.semantics.statement import check

OPCODES = ("reduce-window", "select-and-scatter")


def met(slides_, place):
    """The indices of the elements that the window meets at a place, in row-major order of the window."""
    for position in product(*(range(s.window) for s in slides_)):
        index = [s.element(o, w) for s, o, w in zip(slides_, place, position, strict=True)]
        if None not in index:
            yield tuple(index)


def windows_reduced(arrays, inits, slides_, combiner):
    """acc = combine(acc, element) over the elements a window meets; padding never takes part."""
    output = tuple(s.output for s in slides_)
    results = [np.empty(output, x.dtype) for x in arrays]
    for place in product(*map(range, output)):
        acc = [python(x[()], kind) for x, kind in zip(inits, combiner.kinds, strict=True)]
        for index in met(slides_, place):
            new = [python(x[index], kind) for x, kind in zip(arrays, combiner.kinds, strict=True)]
            acc = combiner.function(acc, new)
        for result, number in zip(results, acc, strict=True):
            result[place] = number
    return results


COMBINERS = (
    binary("add", "s8"),
    binary("add", "u4"),
    binary("multiply", "s16"),
    binary("multiply", "f32"),
    binary("multiply", "bf16"),
    binary("maximum", "f32"),
    binary("maximum", "bf16", swapped=True),
    binary("maximum", "u8"),
    binary("minimum", "f16"),
    binary("minimum", "s4"),
    binary("and", "pred"),
    binary("or", "u32"),
    binary("xor", "s64"),
    binary("subtract", "f64"),
    binary("subtract", "s32", swapped=True),
    chosen(0, "f8e5m2"),
    chosen(1, "c64"),
    twice_less("s32"),
    twice_less("bf16"),
    crossed("s16", "u8"),
    argmax("f32", "s32"),
    argmax("bf16", "s8", "LT"),
)


@given(slides(), st.sampled_from(COMBINERS), seeds)
@settings(max_examples=examples(90))
def test_reduce_window_folds_what_its_window_meets(slides_, combiner, chooser):
    """Strides, padding of either sign, both dilations, any initial value, any computation."""
    dims = [s.size for s in slides_]
    arrays = [moderate(kind, dims, chooser) for kind in combiner.kinds]
    inits = [values(kind, (), chooser) for kind in combiner.kinds]
    want = windows_reduced(arrays, inits, slides_, combiner)
    check(reduce_window_text(slides_, combiner), [*arrays, *inits], want)


LARGE = (
    (Slide(90, 90, 1, 89, 0, 1, 1),),
    (Slide(70, 70, 1, 0, 69, 1, 1), Slide(2, 1, 1, 0, 0, 1, 1)),
    (Slide(40, 70, 3, 31, 40, 2, 1),),
    (Slide(75, 74, 1, 73, 0, 1, 1),),
    (Slide(10, 70, 1, 75, 75, 1, 1),),
    (Slide(30, 9, 2, -1, 5, 1, 4), Slide(12, 8, 1, 7, -2, 1, 1)),
)


@pytest.mark.every_value
@pytest.mark.parametrize("combiner", COMBINERS, ids=str)
@pytest.mark.parametrize("case", range(len(LARGE)))
def test_reduce_window_of_many_positions_is_the_same_fold(case, combiner):
    """Windows as long as the array (cumulative sums, products, maxima), and of many positions in all."""
    chooser, slides_ = random.Random(case), LARGE[case]
    dims = [s.size for s in slides_]
    arrays = [moderate(kind, dims, chooser) for kind in combiner.kinds]
    inits = [moderate(kind, (), chooser) for kind in combiner.kinds]
    want = windows_reduced(arrays, inits, slides_, combiner)
    check(reduce_window_text(slides_, combiner), [*arrays, *inits], want)


@given(
    st.sampled_from(["f32", "bf16", "f16", "f8e4m3fn"]),
    st.one_of(slides(), st.sampled_from(LARGE)),
    seeds,
)
@settings(max_examples=examples(40))
def test_reduce_window_sums_floats_in_double_and_rounds_once(name, slides_, chooser):
    """As reduce does: the exact sum of terms that a double holds, rounded to the element type."""
    dims = [s.size for s in slides_]
    # Multiples of 1/64 below 2: their sums are exact in a double, not in the element type.
    x = np.empty(dims, DTYPES[name].numpy)
    for index in product(*map(range, dims)):
        x[index] = stored(chooser.randint(-128, 128) / 64, name)
    init = np.asarray(stored(chooser.randint(-128, 128) / 64, name)).astype(x.dtype)
    output = tuple(s.output for s in slides_)
    want = np.empty(output, x.dtype)
    for place in product(*map(range, output)):
        terms = [Fraction(float(x[index])) for index in met(slides_, place)]
        want[place] = stored(float(sum(terms, Fraction(float(init)))), name)
    text = reduce_window_text(slides_, binary("add", name))
    check(text, [x, init], want, signed_zeros=False)


def test_a_sum_of_infinities_is_only_where_its_window_meets_them():
    """An infinity makes no NaN in windows that do not meet it, also where sums are made by doubling."""
    x = np.ones(100, np.float32)
    x[40], x[60] = math.inf, -math.inf
    slides_ = (Slide(100, 70, 1, 69, 0, 1, 1),)
    want = np.empty(100, np.float32)
    for o in range(100):
        want[o] = sum(float(x[index]) for index in met(slides_, (o,)))
    check(reduce_window_text(slides_, binary("add", "f32")), [x, np.zeros((), np.float32)], want)


SELECTS = {
    "GE": lambda a, b: a >= b,
    "GT": lambda a, b: a > b,
    "LE": lambda a, b: a <= b,
    "LT": lambda a, b: a < b,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
}


def scatters(kind):
    return (
        binary("add", kind),
        binary("multiply", kind),
        binary("subtract", kind),
        binary("subtract", kind, swapped=True),
        binary("maximum", kind),
        chosen(0, kind),
        chosen(1, kind),
        twice_less(kind),
    )


def scattered(x, source, init, slides_, select, combiner):
    """The first element of a window is selected until it loses to a later one; what is selected gets
    combine(current, source), one place after the other.
    """
    (kind,) = combiner.kinds
    result = np.empty(x.shape, x.dtype)
    for index in product(*map(range, x.shape)):
        result[index] = init[()]
    for place in product(*map(range, source.shape)):
        selected = None
        for index in met(slides_, place):
            if selected is None or not select(python(x[selected], kind), python(x[index], kind)):
                selected = index
        if selected is not None:
            pair = [python(result[selected], kind)], [python(source[place], kind)]
            (result[selected],) = combiner.function(*pair)
    return result


@given(
    slides(),
    st.sampled_from(sorted(SELECTS)),
    st.sampled_from(["f32", "bf16", "s32", "u8", "s4", "f64"]),
    st.booleans(),
    seeds,
    st.data(),
)
@settings(max_examples=examples(90))
def test_select_and_scatter_combines_into_what_each_window_selects(
    slides_, direction, kind, special, chooser, data
):
    """Ties go as the comparison says, a NaN is selected or not as comparisons with it are false; windows
    overlap, or meet nothing.
    """
    combiner = data.draw(st.sampled_from(scatters(kind)))
    dims, output = [s.size for s in slides_], [s.output for s in slides_]
    if special:
        x = values(kind, dims, chooser)
    else:
        x = np.empty(dims, DTYPES[kind].numpy)
        for index in product(*map(range, dims)):
            x[index] = chooser.randint(0, 2)
    source, init = moderate(kind, output, chooser), moderate(kind, (), chooser)
    want = scattered(x, source, init, slides_, SELECTS[direction], combiner)
    regions = f"""{combiner.text}
select {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT c = pred[] compare(a, b), direction={direction}
}}"""
    text = (
        f"{shape_of(kind, dims)} select-and-scatter(p0, p1, p2), "
        f"{window_text(slides_)}select=select, scatter=combine"
    )
    shapes = [shape_of(kind, dims), shape_of(kind, output), shape_of(kind, ())]
    check(entry(text, shapes, regions), [x, source, init], want)


def test_select_and_scatter_has_a_computation_of_any_kind_select():
    """The nearest to 5, by a computation that is no comparison of its parameters."""
    regions = (
        """
select {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  five = s32[] constant(5)
  d = s32[] subtract(a, five)
  e = s32[] subtract(b, five)
  f = s32[] abs(d)
  g = s32[] abs(e)
  ROOT c = pred[] compare(f, g), direction=LE
}
"""
        + binary("add", "s32").text
    )
    x = np.array([1, 4, 6, 9, 5, 5], np.int32)
    source = np.array([10, 20, 30], np.int32)
    text = (
        "s32[6] select-and-scatter(p0, p1, p2), window={size=2 stride=2}, "
        "select=select, scatter=combine"
    )
    want = np.array([1, 11, 21, 1, 31, 1], np.int32)
    one = np.array(1, np.int32)
    check(entry(text, ["s32[6]", "s32[3]", "s32[]"], regions), [x, source, one], want)
