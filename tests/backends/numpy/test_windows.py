"""Windows that are planned give the interpreter's bits; which of them are is part of it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hloopt.backends.numpy import cumulative, select_windows
from tests.helpers.planned import assert_planned
from tests.helpers.rarely import examples
from tests.semantics.combiners import argmax, binary
from tests.semantics.elements import moderate, seeds, shape_of, values
from tests.semantics.slides import Slide, reduce_window_text, slides, window_text

REGIONS = (
    binary("add", "f32"),
    binary("add", "f64"),
    binary("add", "bf16"),
    binary("add", "c64"),
    binary("add", "s8"),
    binary("multiply", "f32"),
    binary("multiply", "bf16"),
    binary("maximum", "f32"),
    binary("minimum", "f64"),
    binary("maximum", "bf16"),
    binary("minimum", "f16"),
    binary("maximum", "s32"),
    binary("and", "u8"),
    binary("or", "pred"),
)


@settings(max_examples=examples(150), deadline=None)
@given(slides(), st.sampled_from(REGIONS), st.booleans(), seeds, st.booleans())
def test_windows_agree(slides_, region, small, chooser, excess):
    (kind,) = region.kinds
    draw = moderate if small else values
    x, init = draw(kind, [s.size for s in slides_], chooser), draw(kind, (), chooser)
    nothing = any(s.output == 0 for s in slides_)
    text = reduce_window_text(slides_, region)
    evaluated = ["reduce-window"] * (nothing or "reduce-window" not in text)
    assert_planned(text, [x, init], evaluated=evaluated, excess_precision=excess)


def cumulative_slides(size: int, back: bool, other: int, axis: int) -> list[Slide]:
    low, high = (0, size - 1) if back else (size - 1, 0)
    every = [Slide(other, 1, 1, 0, 0, 1, 1)]
    every.insert(axis, Slide(size, size, 1, low, high, 1, 1))
    return every


@pytest.mark.every_value
@pytest.mark.parametrize("region", REGIONS, ids=str)
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_cumulative_windows_agree(region, back, axis, monkeypatch):
    """Sums and products from the first element on, extrema and integers from the last one, too."""
    monkeypatch.setattr(cumulative, "_LONG_ROW", 4)
    monkeypatch.setattr(cumulative, "_AT_ONCE", 64)
    (kind,) = region.kinds
    chooser = random.Random(3)
    # A sum of f64 or a product has an order; from the end it is the interpreter's.
    ordered = region.name.startswith("multiply") or (
        kind == "f64" and region.name.startswith("add")
    )
    for other in (1, 5):
        text = reduce_window_text(cumulative_slides(70, back, other, axis), region)
        dims = (other, 70) if axis else (70, other)
        for draw in (moderate, values):
            whole = draw is values or kind == "c64"
            if whole and back and region.name.startswith("add") and kind[0] in "bfc":
                continue  # the order of a sum in double precision shows where it overflows
            inputs = [draw(kind, dims, chooser), draw(kind, (), chooser)]
            left = ordered and back
            assert_planned(text, inputs, evaluated=["reduce-window"] * left)


def test_a_cumulative_sum_starts_where_it_is_told():
    """-0 stays -0 after -0 alone."""
    x = np.full((5, 1), -0.0, np.float32)
    text = reduce_window_text(cumulative_slides(5, False, 1, 0), binary("add", "f32"))
    for init, negative in ((-0.0, True), (0.0, False)):
        (total,) = assert_planned(text, [x, np.float32(init).reshape(())])
        assert np.signbit(total).all() == negative


def test_large_windows_whose_order_matters_and_general_regions_are_the_interpreters():
    chooser = random.Random(0)
    wide = [Slide(90, 70, 1, 3, 2, 1, 1)]
    x = moderate("f32", (90,), chooser)
    init = np.float32(1).reshape(())
    for region, left in ((binary("add", "f32"), 1), (binary("maximum", "f32"), 1)):
        assert_planned(
            reduce_window_text(wide, region), [x, init], evaluated=["reduce-window"] * left
        )
    pair = [x, np.arange(90, dtype=np.int32), init, np.int32(0).reshape(())]
    text = reduce_window_text([Slide(90, 3, 1, 1, 1, 1, 1)], argmax("f32", "s32"))
    assert_planned(text, pair, evaluated=["reduce-window"])


def selecting_text(slides_, direction, kind, scatter, swapped=False):
    dims, output = [s.size for s in slides_], [s.output for s in slides_]
    order = "b, a" if swapped else "a, b"
    return f"""HloModule m
{scatter.text}
select {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT c = pred[] compare({order}), direction={direction}
}}
ENTRY e {{
  x = {shape_of(kind, dims)} parameter(0)
  s = {shape_of(kind, output)} parameter(1)
  i = {kind}[] parameter(2)
  ROOT r = {shape_of(kind, dims)} select-and-scatter(x, s, i), {window_text(slides_)}select=select, scatter=combine
}}
"""


@settings(max_examples=examples(100), deadline=None)
@given(
    slides(1),
    st.sampled_from(["GE", "GT", "LE", "LT"]),
    st.booleans(),
    st.sampled_from(["f32", "f64", "bf16", "s32", "u8"]),
    st.sampled_from(["add", "subtract", "maximum"]),
    st.booleans(),
    st.sampled_from([1, 5, 1 << 17]),
    seeds,
)
def test_selections_agree(slides_, direction, swapped, kind, opcode, tied, at_once, chooser):
    """Ties, NaNs, infinities, extreme integers, windows that meet nothing and gaps between elements."""
    dims, output = [s.size for s in slides_], [s.output for s in slides_]
    x = values(kind, dims, chooser)
    if tied:
        x = np.asarray(np.sign(x))
    text = selecting_text(slides_, direction, kind, binary(opcode, kind), swapped)
    inputs = [x, moderate(kind, output, chooser), moderate(kind, (), chooser)]
    left = 0 in output or not dims
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(select_windows, "_AT_ONCE", at_once)
        assert_planned(text, inputs, evaluated=["select-and-scatter"] * left)


@pytest.mark.parametrize("at_once", [1, 13, 30, 1 << 17])
@pytest.mark.parametrize("special", [None, np.nan])
def test_leading_dimensions_are_gone_through_in_pieces(at_once, special, monkeypatch):
    """A NaN is met in one of them alone."""
    monkeypatch.setattr(select_windows, "_AT_ONCE", at_once)
    window = [Slide(3, 1, 1, 0, 0, 1, 1), Slide(5, 1, 1, 0, 0, 1, 1), Slide(7, 3, 2, 1, 1, 1, 1)]
    text = selecting_text(window, "GE", "f32", binary("add", "f32"))
    x = np.random.default_rng(2).integers(0, 3, (3, 5, 7)).astype(np.float32)
    if special is not None:
        x[1, 3, 4] = special
    updates = np.random.default_rng(3).standard_normal((3, 5, 4)).astype(np.float32)
    for given_x in (x, np.asfortranarray(x)):
        assert_planned(text, [given_x, updates, np.float32(2).reshape(())])


@pytest.mark.parametrize("form", ["pred", "total order"])
def test_selections_that_are_not_by_extrema_are_the_interpreters(form):
    window = [Slide(6, 2, 2, 0, 0, 1, 1)]
    kind = "pred" if form == "pred" else "f32"
    region = binary("or", "pred") if form == "pred" else binary("add", "f32")
    text = selecting_text(window, "GE", kind, region)
    if form != "pred":
        text = text.replace("direction=GE", "direction=GE, type=TOTALORDER")
    dtype = np.bool_ if form == "pred" else np.float32
    x = np.array([1, 0, 0, 0, 1, 1], dtype)
    inputs = [x, np.ones(3, dtype), np.zeros((), dtype)]
    assert_planned(text, inputs, evaluated=["select-and-scatter"])
