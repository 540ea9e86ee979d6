"""Dots that XLA computes as multiply and reduce: the rule, its limit, the type of the sum and both prices."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.findings import ReducedDot

DOT = """HloModule vector
ENTRY main {{
  x = {dtype}[{rows},1024] parameter(0)
  w = {dtype}[1024,{columns}] parameter(1)
  ROOT r = {dtype}[{rows},{columns}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""


def reduced(
    rows: int, columns: int, *, dtype: str = "f16", target: str = "h200"
) -> ReducedDot | None:
    """What is said of a product with 1,024 elements in each sum."""
    module = hloopt.parse(DOT.format(rows=rows, columns=columns, dtype=dtype))
    return hloopt.why(module, target, kinds=["copy"]).reduced


@pytest.mark.parametrize(("dtype", "summed"), [("f16", "f32"), ("f64", "f64")])
def test_a_dot_with_a_vector_is_a_sum(dtype: str, summed: str) -> None:
    """Both plans have a price, and the reason has the figure and the limit."""
    row = reduced(10, 1, dtype=dtype)
    assert row is not None
    assert row.summed == summed
    assert "(M + N) * K = 11264 is at most max_work=10000000" in row.reason
    assert row.others == 0
    assert min(row.seconds) > 0
    assert row.seconds[0] != row.seconds[1]
    assert row.to_json()["seconds_as_dot"] == row.seconds[1]


def test_other_dots_and_other_compilers_keep_theirs() -> None:
    """Two matrices, a vector above the limit, the host."""
    assert reduced(10, 8) is None
    assert reduced(10_000, 1) is None
    assert reduced(10, 1, target="host") is None
