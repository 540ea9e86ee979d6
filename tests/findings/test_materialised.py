"""Values that loops carry though their bodies could make them: which they are, and what stays carried."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.findings import Findings

MASK = """ends = s32[1024,1024] broadcast(small), dimensions={0}
  places = s32[1024,1024] iota(), iota_dimension=1
  hit = pred[1024,1024] compare(places, ends), direction=LT
  made = f32[1024,1024] convert(hit)"""
OUTER = """numbers = f32[1024] convert(small)
  rows = f32[1024,1024] broadcast(numbers), dimensions={0}
  columns = f32[1024,1024] broadcast(numbers), dimensions={1}
  made = f32[1024,1024] multiply(rows, columns)"""
LOOP = """HloModule m
body {{
  state = (s32[], f32[1024,1024], f32[1024,1024]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[1024,1024] get-tuple-element(state), index=1
  v = f32[1024,1024] get-tuple-element(state), index=2
  y = f32[1024,1024] multiply(x, v)
  one = s32[] constant(1)
  step = s32[] add(i, one)
  ROOT r = (s32[], f32[1024,1024], f32[1024,1024]) tuple(step, y, {following})
}}
condition {{
  state = (s32[], f32[1024,1024], f32[1024,1024]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  most = s32[] constant(20)
  ROOT c = pred[] compare(i, most), direction=LT
}}
ENTRY main {{
  x = f32[1024,1024] parameter(0)
  small = s32[1024] parameter(1)
  large = f32[1024,1024] parameter(2)
  {making}
  zero = s32[] constant(0)
  state = (s32[], f32[1024,1024], f32[1024,1024]) tuple(zero, x, made)
  loop = (s32[], f32[1024,1024], f32[1024,1024]) while(state), condition=condition, body=body
  ROOT r = f32[1024,1024] get-tuple-element(loop), index=1
}}
"""


def found(making: str, following: str = "v") -> Findings:
    """What is found of a loop that carries what is made so."""
    module = hloopt.parse(LOOP.format(making=making, following=following))
    return hloopt.why(module, "h200", kinds=["carried-mask"])


@pytest.mark.parametrize(
    ("making", "what"),
    [
        (MASK, "a mask"),
        (MASK.replace("LT", "EQ"), "a one-hot matrix"),
        (OUTER, "an outer product"),
        (OUTER.replace("multiply(rows, columns)", "negate(columns)"), "a broadcast"),
    ],
    ids=["mask", "one-hot", "outer product", "broadcast"],
)
def test_it_is_called_what_it_is(making: str, what: str) -> None:
    """With the bytes that are read of memory, and those that make it."""
    (row,) = found(making).rows
    assert f"%made is {what} of 4 MiB" in row.why
    assert "(4 KiB)" in row.why
    assert row.gain.verdict == "equal"
    assert row.gain.saved > 0


@pytest.mark.parametrize(
    ("making", "following"),
    [
        (MASK.replace("convert(hit)", "select(hit, large, large)"), "v"),
        ("made = f32[1024,1024] sort(large), dimensions={0}, to_apply=less", "v"),
        (MASK, "y"),
    ],
    ids=["of a large array", "by an op that does not fuse", "changed by the loop"],
)
def test_what_stays_carried(making: str, following: str) -> None:
    """No candidate, so that nothing is tried."""
    less = "less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=LT }"
    text = LOOP.format(making=making, following=following)
    text = text.replace("HloModule m\n", f"HloModule m\n{less}\n") if "sort" in making else text
    answer = hloopt.why(hloopt.parse(text), "h200", kinds=["carried-mask"])
    assert not answer.rows
    assert not answer.useless
