"""Gathers and scatters that are planned give the interpreter's bits, whatever is known of their indices."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hloopt.interpret import duplicates
from tests.helpers.planned import assert_planned
from tests.helpers.rarely import examples
from tests.semantics.combiners import Combiner, argmax, binary, chosen
from tests.semantics.elements import moderate, seeds, shape_of, values
from tests.semantics.places import Places, gather_text, places, scatter_text, start_indices


def known(text: str, number: int, indices: np.ndarray) -> str:
    """A module's text with one of its parameters as a constant."""
    regions, entry, text = text.partition("ENTRY")
    before, _, after = text.partition(f" parameter({number})")
    for at in range(number + 1, 9):
        after = after.replace(f"parameter({at})", f"parameter({at - 1})")
    listed = str(indices.tolist()).replace("[", "{").replace("]", "}")
    return f"{regions}{entry}{before} constant({listed if indices.ndim else indices.item()}){after}"


@settings(max_examples=examples(120), deadline=None)
@given(
    places(),
    st.sampled_from(["f32", "bf16", "pred", "s4", "c64"]),
    st.sampled_from(["s32", "u8", "s64", "u64", "s4"]),
    st.booleans(),
    seeds,
)
def test_gathers_agree(case, kind, index, constant, chooser):
    x, indices = values(kind, case.dims, chooser), start_indices(index, case.indices, chooser)
    text = gather_text(case, kind, index)
    if constant and indices.size:
        assert_planned(known(text, 1, indices), [x])
    else:
        assert_planned(text, [x, indices])


REGIONS = (
    binary("add", "f32"),
    binary("add", "s8"),
    binary("add", "bf16"),
    binary("multiply", "f32"),
    binary("maximum", "f32"),
    binary("minimum", "f64"),
    binary("subtract", "s32"),
    chosen(0, "f32"),
    chosen(1, "f32"),
    argmax("f32", "s32"),
)


def scattered(
    case: Places, region: Combiner, index: str, constant: bool, chooser: random.Random
) -> None:
    count = len(region.kinds)
    arrays = [values(kind, case.dims, chooser) for kind in region.kinds]
    updates = [values(kind, case.result, chooser) for kind in region.kinds]
    indices = start_indices(index, case.indices, chooser)
    text = scatter_text(case, region, index)
    if constant and indices.size:
        assert_planned(known(text, count, indices), [*arrays, *updates])
    else:
        assert_planned(text, [*arrays, indices, *updates])


@settings(max_examples=examples(150), deadline=None)
@given(
    places(), st.sampled_from(REGIONS), st.sampled_from(["s32", "u8", "u64"]), st.booleans(), seeds
)
def test_scatters_agree(case, region, index, constant, chooser):
    scattered(case, region, index, constant, chooser)


@pytest.mark.every_value
@pytest.mark.parametrize("region", REGIONS, ids=str)
@pytest.mark.parametrize("block", [1, 3, 80])
def test_many_updates_of_few_places_agree(region, block):
    """Extrema of zeros of both signs, and blocks that are combined in several parts."""
    chooser = random.Random(block)
    kinds = region.kinds
    case = Places((4, block), (1, block), (0,), (0,), (), (), 1, (60, 1), (1,), (60, block))
    text = scatter_text(case, region, "s32")
    indices = np.array([[chooser.randint(-1, 4)] for _ in range(60)], np.int32)
    for draw in (values, moderate):
        arrays = [draw(kind, case.dims, chooser) for kind in kinds]
        updates = [draw(kind, case.result, chooser) for kind in kinds]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(duplicates, "_AT_ONCE", 256)
            assert_planned(text, [*arrays, indices, *updates])


LOOP = """HloModule m
put {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] FUNCTION(a, b)
}
body {
  s = (s32[], f32[6,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[6,4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  row = s32[1] reshape(i)
  took = f32[1,4] gather(x, row), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}
  new = f32[1,4] add(took, took)
  y = f32[6,4] scatter(x, row, new), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=put
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[6,4]) tuple(next, y)
}
condition {
  s = (s32[], f32[6,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(9)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[6,4] parameter(0)
  zero = s32[] constant(-2)
  start = (s32[], f32[6,4]) tuple(zero, x)
  loop = (s32[], f32[6,4]) while(start), condition=condition, body=body
  out = f32[6,4] get-tuple-element(loop), index=1
  ROOT t = (f32[6,4], f32[6,4]) tuple(out, x)
}
"""


@pytest.mark.parametrize("function", ["add", "maximum", "subtract"])
def test_a_row_is_updated_in_place_in_a_loop(function):
    """Rows outside are read as the nearest one and not written; the loop's operand stays as it was."""
    x = values("f32", (6, 4), random.Random(4))
    assert_planned(LOOP.replace("FUNCTION", function), [x])


def test_an_operand_that_is_needed_later_is_copied():
    text = """HloModule m
put {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY e {
  x = f32[5] parameter(0)
  i = s32[3,1] parameter(1)
  u = f32[3] parameter(2)
  d = f32[5] add(x, x)
  y = f32[5] scatter(d, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=put
  z = f32[5] scatter(y, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=put
  ROOT t = (f32[5], f32[5]) tuple(d, z)
}
"""
    chooser = random.Random(1)
    indices = np.array([[1], [1], [4]], np.int32)
    assert_planned(text, [moderate("f32", (5,), chooser), indices, moderate("f32", (3,), chooser)])


@pytest.mark.parametrize("order", ["0,1,2", "2,0,1"])
def test_operands_that_do_not_lie_in_order(order):
    """Rows of a transposed array are read without a copy of it, and written through one."""
    dims = {"0,1,2": (7, 5, 3), "2,0,1": (3, 7, 5)}[order]
    text = f"""HloModule m
put {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}
ENTRY e {{
  p = f32[7,5,3] parameter(0)
  i = s32[8,2] parameter(1)
  n = f32[7,5,3] negate(p)
  x = {shape_of("f32", dims)} transpose(n), dimensions={{{order}}}
  g = {shape_of("f32", (8, dims[1]))} gather(x, i), offset_dims={{1}}, collapsed_slice_dims={{0,2}}, start_index_map={{0,2}}, index_vector_dim=1, slice_sizes={{1,{dims[1]},1}}
  r = {shape_of("f32", (8, dims[2]))} gather(x, i), offset_dims={{1}}, collapsed_slice_dims={{0,1}}, start_index_map={{0,1}}, index_vector_dim=1, slice_sizes={{1,1,{dims[2]}}}
  y = {shape_of("f32", dims)} scatter(x, i, g), update_window_dims={{1}}, inserted_window_dims={{0,2}}, scatter_dims_to_operand_dims={{0,2}}, index_vector_dim=1, to_apply=put
  ROOT t = ({shape_of("f32", dims)}, {shape_of("f32", (8, dims[1]))}, {shape_of("f32", (8, dims[2]))}) tuple(y, g, r)
}}
"""
    chooser = random.Random(0)
    indices = np.array([[chooser.randint(-1, 8) for _ in range(2)] for _ in range(8)], np.int32)
    assert_planned(text, [values("f32", (7, 5, 3), chooser), indices])
