"""Matrix products that are written as broadcast, multiply and sum: found in every order, not where they are none."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.findings import Findings

SUM = """HloModule sum
add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }}
ENTRY main {{
  x = {x} parameter(0)
  y = {y} parameter(1)
  xs = {dtype}[{dims}] broadcast(x), dimensions={{{at_x}}}
  ys = {dtype}[{dims}] broadcast(y), dimensions={{{at_y}}}
  p = {dtype}[{dims}] multiply(xs, ys)
{wide}  start = f32[] constant({start})
  ROOT r = f32[{result}] reduce({summed}, start), dimensions={{{over}}}, to_apply=add
}}
"""
PLAIN = {
    "x": "f32[64,32]",
    "y": "f32[32,48]",
    "dims": "64,32,48",
    "at_x": "0,1",
    "at_y": "1,2",
    "result": "64,48",
    "over": "1",
    "dtype": "f32",
    "wide": "",
    "summed": "p",
    "start": "0",
}
SWAPPED = {"dims": "48,64,32", "at_x": "1,2", "at_y": "2,0", "result": "48,64", "over": "2"}
BATCH = {
    "x": "f32[64,4,32]",
    "y": "f32[4,32,48]",
    "dims": "64,4,32,48",
    "at_x": "0,1,2",
    "at_y": "1,2,3",
    "result": "64,4,48",
    "over": "2",
}
WIDENED = {
    "x": "bf16[64,32]",
    "y": "bf16[32,48]",
    "dtype": "bf16",
    "wide": "  w = f32[64,32,48] convert(p)\n",
    "summed": "w",
}


def found(**changes: str) -> Findings:
    """What is found on the host of a sum of products."""
    text = SUM.format(**{**PLAIN, **changes})
    return hloopt.why(hloopt.parse(text), "host", kinds=["summed-product"])


@pytest.mark.parametrize("changes", [{}, BATCH, WIDENED], ids=["plain", "batch", "widened"])
def test_it_is_found_and_its_results_are_those_of_the_dot(changes: dict[str, str]) -> None:
    """The cause names the sizes of the product; the change was compared and takes less time."""
    (row,) = found(**changes).rows
    assert "M=64, N=48, K=32" in row.why
    assert row.gain.verdict == "within tolerance"
    assert row.gain.after < row.gain.before * 0.7


def test_factors_may_stand_in_any_order() -> None:
    """The second factor's rows come first in the result, which is a transposed dot."""
    changes = {**SWAPPED, "y": "f32[48,32]", "at_y": "0,2"}
    (row,) = found(**changes).rows
    assert row.gain.verdict == "within tolerance"


@pytest.mark.parametrize(
    "changes",
    [
        {"start": "1"},
        {"x": "f32[32]", "at_x": "1"},
        {"y": "f32[32,4]", "dims": "64,32,4", "result": "64,4"},
        {"over": "0", "result": "32,48"},
    ],
    ids=["start", "one-vector", "short", "outer"],
)
def test_what_is_no_product_of_matrices_is_no_candidate(changes: dict[str, str]) -> None:
    """Another start, a factor without rows of its own, a short side, a sum over one factor alone."""
    answer = found(**changes)
    assert not answer.rows
    assert "summed-product" not in {one.kind for one in answer.useless}
