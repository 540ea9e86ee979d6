"""Reductions that are planned give the interpreter's bits."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.planned import assert_planned
from tests.helpers.rarely import examples
from tests.semantics.combiners import arg_by, binary
from tests.semantics.elements import drawn_dims, moderate, seeds, shape_of, values

OPS = (
    *(("add", kind) for kind in ("f32", "f64", "bf16", "f16", "f8e5m2", "c64", "s8", "u32", "s64")),
    *(("multiply", kind) for kind in ("f32", "bf16", "s16", "u64")),
    *(("maximum", kind) for kind in ("f32", "f64", "bf16", "f16", "s32", "u8", "pred")),
    *(("minimum", kind) for kind in ("f32", "bf16", "s64", "pred")),
    *((name, kind) for name in ("and", "or", "xor") for kind in ("pred", "s32", "u8")),
)


def reduce_text(opcode: str, kind: str, dims: tuple[int, ...], axes: list[int], init: str) -> str:
    left = tuple(size for axis, size in enumerate(dims) if axis not in axes)
    return f"""HloModule m
{binary(opcode, kind).text}
ENTRY e {{
  x = {shape_of(kind, dims)} parameter(0)
  i = {kind}[] {init}
  ROOT r = {shape_of(kind, left)} reduce(x, i), dimensions={{{",".join(map(str, axes))}}}, to_apply=combine
}}
"""


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(OPS), drawn_dims(max_rank=4), st.data(), seeds, st.booleans())
def test_reductions_agree(op, dims, data, chooser, excess):
    """Any axes, empty ones too; initial values that are known and others."""
    opcode, kind = op
    axes = data.draw(st.lists(st.sampled_from(range(len(dims))), unique=True)) if dims else []
    given_ = data.draw(st.booleans())
    known = {"pred": "true"}.get(kind, "1") if kind[0] != "c" else "(1,2)"
    text = reduce_text(opcode, kind, dims, axes, "parameter(1)" if given_ else f"constant({known})")
    inputs = [values(kind, dims, chooser)] + [values(kind, (), chooser)] * given_
    assert_planned(text, inputs, excess_precision=excess)


@pytest.mark.every_value
@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        ("add", "f32"),
        ("add", "f64"),
        ("add", "bf16"),
        ("maximum", "f32"),
        ("minimum", "f64"),
        ("maximum", "bf16"),
    ],
)
@pytest.mark.parametrize("width", [1, 2, 4, 7, 8])
def test_short_rows_agree(opcode, kind, width):
    """Columns added to each other, or NumPy's loop where it adds in pairs: the same bits."""
    chooser = random.Random(width)
    dims = (4, 640, width)
    for draw in (moderate, values):
        x = draw(kind, dims, chooser)
        assert_planned(reduce_text(opcode, kind, dims, [2], "constant(0)"), [x])


def test_a_sum_of_nothing_but_negative_zeros_starts_where_it_is_told():
    x = np.full((3000, 3), -0.0, np.float32)
    for init, negative in (("-0", True), ("0", False)):
        (total,) = assert_planned(
            reduce_text("add", "f32", (3000, 3), [1], f"constant({init})"), [x]
        )
        assert np.signbit(total).all() == negative


def test_a_product_of_f16_and_general_regions_are_folded_by_the_evaluator():
    for opcode, kind, is_folded in (
        ("multiply", "f16", True), ("multiply", "c64", False), ("add", "pred", True),
    ):  # fmt: skip
        text = reduce_text(opcode, kind, (6, 5), [0], "parameter(1)")
        inputs = [values(kind, (6, 5), random.Random(0)), values(kind, (), random.Random(1))]
        assert_planned(text, inputs, evaluated=["reduce"] * is_folded)
    x = moderate("f16", (6, 5), random.Random(0))
    assert_planned(
        reduce_text("multiply", "f16", (6, 5), [0], "constant(1)"), [x], evaluated=["reduce"]
    )
    x = moderate("f32", (6, 5), random.Random(0))
    assert_planned(
        reduce_text("subtract", "f32", (6, 5), [0], "constant(1)"), [x], evaluated=["reduce"]
    )


def arg_text(
    direction: str,
    kind: str,
    dims: tuple[int, ...],
    axis: int,
    init: str,
    index: str,
    first: str = "0",
) -> str:
    left = tuple(size for at, size in enumerate(dims) if at != axis)
    result = f"({shape_of(kind, left)}, {shape_of('s32', left)})"
    return f"""HloModule m
pick {{
  v = {kind}[] parameter(0)
  i = s32[] parameter(1)
  w = {kind}[] parameter(2)
  j = s32[] parameter(3)
  wins = pred[] compare(v, w), direction={direction}
  none = pred[] compare(v, v), direction=NE
  value = pred[] or(wins, none)
  tie = pred[] compare(v, w), direction=EQ
  lower = pred[] compare(i, j), direction=LT
  both = pred[] and(tie, lower)
  at = pred[] or(value, both)
  x = {kind}[] select(value, v, w)
  k = s32[] select(at, i, j)
  ROOT t = ({kind}[], s32[]) tuple(x, k)
}}
ENTRY e {{
  x = {shape_of(kind, dims)} parameter(0)
  i = {shape_of("s32", dims)} {index}
  c = {kind}[] constant({init})
  z = s32[] constant({first})
  ROOT r = {result} reduce(x, i, c, z), dimensions={{{axis}}}, to_apply=pick
}}
"""


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(["f32", "f64", "bf16", "s32", "u8"]),
    st.booleans(),
    drawn_dims(1, 3, 1, 6),
    seeds,
    st.booleans(),
    st.data(),
)
def test_arg_extrema_agree(kind, largest, dims, chooser, few, data):
    """The first NaN, else the first of the best; zeros are equal."""
    axis = data.draw(st.sampled_from(range(len(dims))))
    bounds = {"s32": ("-2147483648", "2147483647"), "u8": ("0", "255")}.get(kind, ("-inf", "inf"))
    text = arg_text(
        "GT" if largest else "LT",
        kind,
        dims,
        axis,
        bounds[not largest],
        f"iota(), iota_dimension={axis}",
    )
    x = values(kind, dims, chooser)
    if few:
        x = np.where(x.astype(np.float64) > 0, 1, 0).astype(x.dtype)
    assert_planned(text, [x])


@pytest.mark.parametrize(("dims", "axis"), [((3, 0), 0), ((0, 3), 0), ((0, 3), 1), ((0, 0), 1)])
def test_arg_extrema_of_no_elements(dims, axis):
    """Whether it is the reduced dimension that is empty, or the other, or both."""
    text = arg_text("GT", "f32", dims, axis, "-inf", f"iota(), iota_dimension={axis}")
    assert_planned(text, [np.zeros(dims, np.float32)], evaluated=["reduce"])


def test_arg_extrema_of_other_indices_and_initial_values_are_folded():
    """Indices that do not increase, an initial value that may win, one whose index is another."""
    x = values("f32", (4, 5), random.Random(3))
    for text in (
        arg_text("GT", "f32", (4, 5), 0, "-inf", "iota(), iota_dimension=1"),
        arg_text("GT", "f32", (4, 5), 1, "0", "iota(), iota_dimension=1"),
        arg_text("GT", "f32", (4, 5), 1, "inf", "iota(), iota_dimension=1"),
        arg_text("GT", "f32", (4, 5), 1, "-inf", "iota(), iota_dimension=1", "7"),
    ):
        assert_planned(text, [x], evaluated=["reduce"])


def test_regions_that_treat_nan_as_a_number_like_any_other_are_folded():
    """Without ``v != v`` a NaN loses against what comes after it."""
    text = f"""HloModule m
{arg_by("GE", "f32", "s32").text}
ENTRY e {{
  x = f32[40] parameter(0)
  i = s32[40] iota(), iota_dimension=0
  c = f32[] constant(-inf)
  z = s32[] constant(0)
  ROOT r = (f32[], s32[]) reduce(x, i, c, z), dimensions={{0}}, to_apply=combine
}}
"""
    x = moderate("f32", (40,), random.Random(0))
    x[[0, 7]] = np.nan
    assert_planned(text, [x], evaluated=["reduce"])
