"""Large arrays between kernels: the refusal that keeps each in memory, with both prices."""

from __future__ import annotations

import re

import hloopt
from hloopt.findings import kind_examples

SUMS = """HloModule sums
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY main {
  x = f32[1000,1000] parameter(0)
  y = f32[1000,1000] parameter(1)
  z = f32[1000,1000] parameter(2)
  xy = f32[1000,1000] add(x, y)
  xyz = f32[1000,1000] multiply(xy, z)
  zero = f32[] constant(0)
  ROOT r = f32[1000] reduce(xyz, zero), dimensions={0}, to_apply=add
}
"""


def test_a_refusal_that_is_right_is_named_with_both_prices() -> None:
    """It is no finding: fused takes longer."""
    found = hloopt.why(hloopt.parse(kind_examples()["temporary"].example), kinds=["copy"])
    assert not found.rows
    (row,) = found.arrays
    assert (row.name, row.pass_name, row.code) == ("e", "priority-fusion", "slower")
    assert row.byte_size == 500 * 700 * 4
    assert row.fused is not None
    assert row.apart is not None
    assert row.fused > row.apart
    assert row.to_json()["fused_us"] == row.fused


def test_a_limit_is_named_with_its_value_and_the_option_that_lifts_it() -> None:
    """The pass has no price for the pair, the cost model has; with the option it is fused."""
    tight = "priority-fusion{max_operands=3}"
    row, other = hloopt.why(hloopt.parse(SUMS), kinds=["copy"], pipeline=tight).arrays
    assert (row.name, row.writer, row.readers) == ("xy", "xy", ("xyz",))
    assert other.name == "xyz"
    assert (row.code, row.limit) == ("operands", 3)
    assert row.actual is not None
    assert row.actual > 3
    assert row.fused is not None
    assert row.apart is not None
    assert row.fused < row.apart
    (change,) = row.changes
    lifted = hloopt.why(hloopt.parse(SUMS), kinds=["copy"], pipeline=change).arrays
    assert "xy" not in [one.name for one in lifted]


def test_what_is_fused_is_not_named() -> None:
    """All of it is one kernel."""
    text = kind_examples()["temporary"].counterexample
    assert hloopt.why(hloopt.parse(text), kinds=["copy"]).arrays == ()


def test_none_are_found_on_the_host() -> None:
    """Other passes decide there what is in memory."""
    text = kind_examples()["temporary"].example
    (found, *_) = hloopt.why(hloopt.parse(text), kinds=["temporary"]).rows
    assert re.search(r"and read by %\S+ \(\S+\): ", found.why)
    assert not hloopt.why(hloopt.parse(text), "host", kinds=["temporary"]).rows


def test_small_arrays_are_not_named() -> None:
    """They cost no more than the launch of the second kernel."""
    text = kind_examples()["temporary"].example.replace("500", "50").replace("700", "70")
    assert hloopt.why(hloopt.parse(text), kinds=["copy"]).arrays == ()
