"""A maximum beside its place: one reduction, with the simplifier, cse and dce together."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from tests.passes.proof import identical

BOTH = """HloModule both

max {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b)
}

choose {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  above = pred[] compare(a, b), direction=GT
  unequal = pred[] compare(a, a), direction=NE
  first = pred[] or(above, unequal)
  equal = pred[] compare(a, b), direction=EQ
  sooner = pred[] compare(i, j), direction=LT
  tie = pred[] and(equal, sooner)
  take = pred[] or(first, tie)
  value = f32[] select(first, a, b)
  place = s32[] select(take, i, j)
  ROOT r = (f32[], s32[]) tuple(value, place)
}

ENTRY main {
  x = f32[4,8] parameter(0)
  least = f32[] constant(-inf)
  zero = s32[] constant(0)
  at = s32[4,8] iota(), iota_dimension=1
  pair = (f32[4], s32[4]) reduce(x, at, least, zero), dimensions={1}, to_apply=choose
  where = s32[4] get-tuple-element(pair), index=1
  most = f32[4] reduce(x, least), dimensions={1}, to_apply=max
  ROOT r = (s32[4], f32[4]) tuple(where, most)
}
"""


@pytest.mark.parametrize("is_first", [True, False])
def test_one_reduction_has_both(is_first: bool) -> None:
    """Whichever is written first; the rule for a value that is read alone does not part them again."""
    text = BOTH
    if is_first:
        line = "  most = f32[4] reduce(x, least), dimensions={1}, to_apply=max\n"
        text = text.replace(line, "").replace("  at = ", f"{line}  at = ")
    module = hloopt.optimize(hloopt.parse(text), "fix(simplify{fast_math=true},cse,dce)")
    assert [one.opcode for one in module.entry].count("reduce") == 1


def test_a_value_that_is_read_alone_is_reduced_alone() -> None:
    """Where nothing reads the places."""
    text = BOTH.replace(
        "ROOT r = (s32[4], f32[4]) tuple(where, most)",
        "ROOT r = f32[4] get-tuple-element(pair), index=0",
    )
    module = hloopt.parse(text)
    better = hloopt.optimize(module, "fix(simplify,cse,dce)")
    (reduce,) = (one for one in better.entry if one.opcode == "reduce")
    assert len(reduce.operands) == 2
    x = np.float32([[1, np.nan, 3], [2, 2, -np.inf], [0, -1, -2], [-0.0, 0, 5]])
    x = np.pad(x, ((0, 0), (0, 5)), constant_values=-1)
    for one, other in zip(hloopt.evaluate(module, [x]), hloopt.evaluate(better, [x]), strict=True):
        assert identical(one, other)
