"""How far results move where XLA drops the rounding of a pair of conversions."""

from __future__ import annotations

import re

import pytest

import hloopt

PAIRS = """HloModule m
ENTRY main {
  x = f32[256] parameter(0)
  a = bf16[256] convert(x)
  b = f32[256] convert(a)
  c = f32[256] {middle}
  d = bf16[256] convert(c)
  e = f32[256] convert(d)
  ROOT r = f32[256] negate(e)
}
"""


def said(text: str) -> list[str]:
    """The causes that are found."""
    found = hloopt.why(hloopt.parse(text), kinds=["inexact-rewrite"])
    return [row.why for row in found.rows]


def test_the_move_of_one_pair_is_that_of_its_rounding() -> None:
    """bf16 has 8 digits: 2^-8 of a value at most, and of 256 random values one comes near it."""
    text = PAIRS.replace("d = bf16[256] convert(c)", "d = f32[256] negate(c)").replace(
        "e = f32[256] convert(d)", "e = f32[256] abs(d)"
    )
    (why,) = said(text.replace("{middle}", "negate(b)"))
    (percent,) = re.findall(r"it moves results by up to ([\d.]+)% of their value", why)
    assert 0.3 < float(percent) <= 100 / 256


def test_all_pairs_are_dropped_together() -> None:
    """XLA drops each of them, so that the move is of all."""
    whys = said(PAIRS.replace("{middle}", "multiply(b, x)"))
    assert whys
    for why in whys:
        (percent,) = re.findall(
            r"all 2 such roundings together move results by up to ([\d.]+)%", why
        )
        assert 100 / 256 < float(percent) < 2 * 100 / 256


@pytest.mark.parametrize("narrow", ["f64", "f32"])
def test_a_pair_that_rounds_nothing_is_not_spoken_of(narrow: str) -> None:
    """It moves nothing."""
    text = PAIRS.replace("{middle}", "negate(b)").replace("bf16[256]", f"{narrow}[256]")
    assert not said(text)
