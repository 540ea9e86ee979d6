"""Padding and views of bits that are planned give the interpreter's bits."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hloopt.backends.numpy import padding
from tests.helpers.planned import assert_planned
from tests.helpers.rarely import examples
from tests.semantics.elements import drawn_dims, seeds, shape_of, values


@settings(max_examples=examples(100), deadline=None)
@given(
    st.sampled_from(["f32", "bf16", "s4", "pred", "c64"]),
    drawn_dims(1, 3, 0, 4),
    st.booleans(),
    st.sampled_from(["parameter(1)", "constant(0)", "constant(1)"]),
    seeds,
    st.data(),
)
def test_padding_agrees(kind, dims, by_borders, given_, chooser, data):
    """Edges that are cut off, gaps, values known and not; large arrays have only their borders filled."""
    edges = st.integers(-3, 3)
    fields, result = [], []
    for size in dims:
        gap = data.draw(st.integers(0, 2))
        whole = size + max(size - 1, 0) * gap
        low = data.draw(edges)
        high = max(data.draw(edges), -whole - low)
        fields.append(f"{low}_{high}_{gap}")
        result.append(whole + low + high)
    if kind == "pred":
        given_ = given_.replace("(0)", "(false)").replace("constant(1)", "constant(true)")
    if kind == "c64" and "constant" in given_:
        given_ = "constant((1,2))"
    attribute = f", padding={'x'.join(fields)}"
    text = f"""HloModule m
ENTRY e {{
  x = {shape_of(kind, dims)} parameter(0)
  v = {kind}[] {given_}
  ROOT r = {shape_of(kind, result)} pad(x, v){attribute}
}}
"""
    inputs = [values(kind, dims, chooser)] + [values(kind, (), chooser)] * ("parameter" in given_)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(padding, "_LARGE", 0 if by_borders else 1 << 30)
        assert_planned(text, inputs)


@pytest.mark.parametrize(
    ("source", "target", "planned"),
    [
        ("f32[3,2]", "s32[3,2]", True),
        ("f32[]", "u32[]", True),
        ("u64[3]", "u8[3,8]", True),
        ("s16[3,4]", "f64[3]", True),
        ("bf16[2,2]", "f32[2]", True),
        ("s4[4,2]", "u8[4]", False),
        ("pred[4]", "s8[4]", False),
    ],
)
def test_views_of_bits_agree(source, target, planned):
    """Of a transposed array, too; elements that share a byte are put together by the evaluator."""
    kind, _, rest = source.partition("[")
    dims = tuple(int(size) for size in rest[:-1].split(",") if size)
    order = ",".join(map(str, reversed(range(len(dims)))))
    turned = shape_of(kind, dims[::-1])
    text = f"""HloModule m
ENTRY e {{
  x = {turned} parameter(0)
  y = {source} transpose(x), dimensions={{{order}}}
  ROOT r = {target} bitcast-convert(y)
}}
"""
    x = values(kind, dims[::-1], random.Random(1))
    for excess in (False, True):
        left = not planned or (excess and kind == "bf16")
        assert_planned(
            text, [np.asarray(x)], evaluated=["bitcast-convert"] * left, excess_precision=excess
        )
