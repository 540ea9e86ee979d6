"""Products that could be outside of their loops: each way out is found, and what it gains is compared."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.linear_algebra.output_sinking import WhileOutputSinking
from hloopt.linear_algebra.product_hoisting import WhileProductHoisting
from hloopt.linear_algebra.product_sinking import WhileProductSinking
from hloopt.rewrite import Pass


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (WhileProductHoisting, "takes its factors from arrays that the loop only reads"),
        (WhileOutputSinking, "is only collected, a row in each iteration"),
        (WhileProductSinking, "is only added up"),
    ],
)
def test_each_way_out_is_told(kind: type[Pass], said: str) -> None:
    """Of the module that is the example of the pass which goes it."""
    found = hloopt.why(hloopt.parse(kind.example), "h200", kinds=["loop-product"])
    (row,) = found.rows
    assert row.why.startswith(f"%d {said}")
    assert row.gain.saved > 0
    assert row.gain.verdict in ("equal", "within tolerance"), row.gain.reason
    assert any(one.way == "hloopt" and kind.name in one.text for one in row.remedies)


def test_a_factor_that_is_turned_within_the_loop() -> None:
    """What is only rearranged stays the same, too."""
    text = WhileProductHoisting.example.replace(
        "d = f32[4,16] dot(x, w)",
        "v = f32[16,16] transpose(w), dimensions={1,0}\n  d = f32[4,16] dot(x, v)",
    )
    found = hloopt.why(hloopt.parse(text), "h200", kinds=["loop-product"])
    assert [row.kind for row in found.rows] == ["loop-product"]


def test_nothing_is_left_to_find_where_the_passes_ran() -> None:
    """O2 makes what needs no leave."""
    for kind in (WhileProductHoisting, WhileOutputSinking, WhileProductSinking):
        module = hloopt.optimize(hloopt.parse(kind.example), "O2")
        assert not hloopt.why(module, "h200", kinds=["loop-product"]).rows
