"""Sums that are rounded to a narrow float at each step: which stop growing, and which do not."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.findings import Finding, kind_examples

LOOP = """HloModule total
body {{
  state = (s32[], {type}[8], {type}[{steps},8]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  total = {type}[8] get-tuple-element(state), index=1
  xs = {type}[{steps},8] get-tuple-element(state), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  next = s32[] add(i, one)
  cut = {type}[1,8] dynamic-slice(xs, i, zero), dynamic_slice_sizes={{1,8}}
  x = {type}[8] reshape(cut)
  e = {type}[8] exponential(x)
  sum = {type}[8] {update}
  ROOT r = (s32[], {type}[8], {type}[{steps},8]) tuple(next, sum, xs)
}}
cond {{
  state = (s32[], {type}[8], {type}[{steps},8]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant({steps})
  ROOT less = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  xs = {type}[{steps},8] parameter(0)
  start = {type}[8] parameter(1)
  zero = s32[] constant(0)
  state = (s32[], {type}[8], {type}[{steps},8]) tuple(zero, start, xs)
  loop = (s32[], {type}[8], {type}[{steps},8]) while(state), condition=cond, body=body
  ROOT out = {type}[8] get-tuple-element(loop), index=1
}}
"""


def found(text: str) -> tuple[Finding, ...]:
    """The findings of this kind on a GPU."""
    return hloopt.why(hloopt.parse(text), kinds=["narrow-sum"]).rows


@pytest.mark.parametrize(("kind", "times"), [("bf16", "256"), ("f16", "2,048")])
def test_a_loop_that_carries_a_sum(kind: str, times: str) -> None:
    """In f32 no element of the result is off, as sums in f64 say."""
    (row,) = found(LOOP.format(type=kind, steps=10_000, update="add(e, total)"))
    assert row.instruction == "loop"
    assert f"from about {times} times an update" in row.why
    assert row.gain.after == 0
    assert row.gain.before > 0
    assert row.gain.verdict in ("equal", "within tolerance")
    assert row.gain.reason == "compared with sums in f64"


@pytest.mark.parametrize(
    ("kind", "steps", "update"),
    [
        ("f32", 4096, "add(total, e)"),
        ("bf16", 8, "add(total, e)"),
        ("bf16", 4096, "multiply(total, e)"),
        ("bf16", 4096, "add(total, total)"),
    ],
)
def test_what_is_no_sum_or_not_rounded(kind: str, steps: int, update: str) -> None:
    """A wide sum, one of few steps, and what else a loop may carry."""
    assert not found(LOOP.format(type=kind, steps=steps, update=update))


def test_a_sum_that_is_read_inside() -> None:
    """It is more than a sum to the loop, which would compute in another type then."""
    text = LOOP.format(type="bf16", steps=4096, update="add(total, e)")
    assert found(text)
    assert not found(text.replace("exponential(x)", "multiply(x, total)"))


def test_what_cannot_be_run_is_not_counted() -> None:
    """Nothing is known of its results, and nothing said."""
    text = kind_examples()["narrow-sum"].example
    power = "power = bf16[4096,8] exponential(x)"
    assert power in text
    own = 'power = bf16[4096,8] custom-call(x), custom_call_target="mine"'
    assert not found(text.replace(power, own))
