"""Indices that count up are found whatever they are written with, and only those."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.findings import Findings

SCATTER = """HloModule m
combine {{ a = f32[] parameter(0) b = f32[] parameter(1) {region} }}
ENTRY main {{
  x = f32[8192,512] {array}
  u = f32[3000,512] parameter(1)
{indices}
  ROOT r = f32[8192,512] scatter(x, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
      scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=combine
}}
"""
SET, ADD = "ROOT r = f32[] copy(b)", "ROOT r = f32[] add(a, b)"
COUNT = "  n = s32[3000] iota(), iota_dimension=0\n"
START = "  k = s32[] parameter(2)\n  ks = s32[3000] broadcast(k), dimensions={}\n"
WRAPPED = """  zero = s32[] constant(0)
  zeros = s32[3000] broadcast(zero), dimensions={}
  below = pred[3000] compare(p, zeros), direction=LT
  rows = s32[] constant(8192)
  all = s32[3000] broadcast(rows), dimensions={}
  above = s32[3000] add(p, all)
  w = s32[3000] select(below, above, p)
  i = s32[3000,1] reshape(w)
"""
PLAIN = "  i = s32[3000,1] reshape(p)\n"


GIVEN = "parameter(0)"
ZEROS = "broadcast(none), dimensions={}"


def found(indices: str, region: str = ADD, array: str = GIVEN) -> Findings:
    none = "  none = f32[] parameter(0)\n" if array == ZEROS else ""
    text = SCATTER.format(indices=indices, region=region, array=array)
    text = text.replace("ENTRY main {\n", "ENTRY main {\n" + none)
    return hloopt.why(hloopt.parse(text), kinds=["indexed-range"])


@pytest.mark.every_value
@pytest.mark.parametrize(("region", "array"), [(SET, GIVEN), (ADD, ZEROS)], ids=["set", "add"])
@pytest.mark.parametrize(
    "indices",
    [
        COUNT + START + "  p = s32[3000] add(ks, n)\n" + WRAPPED,
        COUNT + START + "  p = s32[3000] subtract(ks, n)\n" + PLAIN,
        COUNT
        + START
        + "  five = s32[] constant(5)\n  fives = s32[3000] broadcast(five), dimensions={}\n"
        + "  q = s32[3000] add(n, fives)\n  p = s32[3000] add(q, ks)\n"
        + PLAIN,
    ],
    ids=["wrapped", "backwards", "moved"],
)
def test_places_from_a_start_on_are_a_slice(indices: str, region: str, array: str) -> None:
    """Where all of them are inside, the results are equal."""
    (row,) = found(indices, region, array).rows
    assert row.instruction == "r"
    assert "3,000 in a row from %k" in row.why
    assert row.gain.verdict in ("equal", "within tolerance")
    assert row.gain.saved > 5e-7


@pytest.mark.parametrize(
    "indices",
    [
        "  k = s32[3000] parameter(2)\n" + COUNT + "  p = s32[3000] add(k, n)\n" + PLAIN,
        COUNT + START + "  p = s32[3000] multiply(ks, n)\n" + PLAIN,
        COUNT + START + "  q = s32[3000] multiply(n, n)\n  p = s32[3000] add(ks, q)\n" + PLAIN,
        COUNT + START + "  p = s32[3000] subtract(n, ks)\n" + PLAIN,
    ],
    ids=["start for each", "stride", "squares", "negated start"],
)
def test_other_places_are_not(indices: str) -> None:
    """Several starts, strides that are not known, gaps."""
    assert not found(indices).rows


def test_adding_to_places_in_place_moves_as_much() -> None:
    """A slice that is read, added to and written back."""
    assert not found(COUNT + START + "  p = s32[3000] add(ks, n)\n" + PLAIN).rows


def test_known_places_are_named() -> None:
    """With their stride."""
    two = "  two = s32[] constant(2)\n  twos = s32[3000] broadcast(two), dimensions={}\n"
    (row,) = found(COUNT + two + "  p = s32[3000] multiply(n, twos)\n" + PLAIN).rows
    assert "[0:5999:2] of %x" in row.why
    assert [one.way for one in row.remedies] == ["model", "hloopt"]


def test_a_diagonal_is_named() -> None:
    """Two dimensions that count up together are no block."""
    text = """HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY main {
  x = f32[2048,2048] parameter(0)
  u = f32[2048] parameter(1)
  i = s32[2048,2] iota(), iota_dimension=0
  ROOT r = f32[2048,2048] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0,1},
      scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, to_apply=add
}
"""
    (row,) = hloopt.why(hloopt.parse(text), kinds=["indexed-range"]).rows
    assert "a diagonal of %x" in row.why


def test_the_host_needs_no_advice() -> None:
    """Its compiler has the passes that see known places."""
    text = SCATTER.format(
        indices=COUNT + "  p = s32[3000] copy(n)\n" + PLAIN, region=SET, array=GIVEN
    )
    assert not hloopt.why(hloopt.parse(text), "host", kinds=["indexed-range"]).rows
