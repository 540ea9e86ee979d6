"""Values that fusion computes several times: how often, and where that is worth a barrier."""

from __future__ import annotations

import hloopt
from hloopt.findings import Finding, kind_examples

_TWICE = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[256,512] parameter(0)
  e = f32[256,512] exponential(x)
  zero = f32[] constant(0)
  s = f32[256] reduce(e, zero), dimensions={1}, to_apply=sum
  ROOT r = (f32[256,512], f32[256]) tuple(e, s)
}
"""


def _found(text: str, target: str) -> list[Finding]:
    return list(hloopt.why(hloopt.parse(text), target, kinds=["recomputed"]).rows)


def test_the_kernels_and_the_value_are_named() -> None:
    """With how often an element is computed in all; the barrier is behind the last value that is shared."""
    (row,) = _found(kind_examples()["recomputed"].example, "h200")
    assert row.instruction == "g"
    assert "times an element" in row.why
    assert "8 MiB" in row.why
    assert set(row.blocking) == {"columns", "rows"}
    assert "optimization_barrier" in row.remedies[0].text


def test_small_gains_are_not_promised_on_the_host() -> None:
    """``native`` computes a result and its sum in one loop, which the prices of kernels do not say."""
    assert not _found(_TWICE, "host")
    assert not _found(_TWICE, "h200")
