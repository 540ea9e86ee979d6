"""Scans along every dimension, forwards and backwards, with several inputs, outputs and carries."""

from __future__ import annotations

import pytest

from tests.codegen.harness import check_kernel, planned

TEXT = """HloModule m

middle {
  x = f32[3,5] parameter(0)
  c = f32[3,5] parameter(1)
  s = f32[3,5] add(x, c)
  ROOT t = (f32[3,5], f32[3,5]) tuple(s, s)
}

outer {
  x = f32[9,5] parameter(0)
  c = f32[9,5] parameter(1)
  s = f32[9,5] add(x, c)
  ROOT t = (f32[9,5], f32[9,5]) tuple(s, s)
}

two {
  x = f32[] parameter(0)
  y = s32[] parameter(1)
  c = f32[] parameter(2)
  k = s32[] parameter(3)
  f = f32[] convert(y)
  m = f32[] multiply(x, f)
  d = f32[] add(c, m)
  n = s32[] subtract(y, k)
  ROOT t = (f32[], s32[], f32[], s32[]) tuple(d, k, m, n)
}

slices {
  x = f32[5] parameter(0)
  c = f32[5] parameter(1)
  h = f32[] constant(0.5)
  b = f32[5] broadcast(h), dimensions={}
  d = f32[5] multiply(c, b)
  s = f32[5] add(d, x)
  ROOT t = (f32[5], f32[5]) tuple(s, s)
}

ENTRY main {
  p = f32[3,9,5] parameter(0)
  i = f32[3,5] parameter(1)
  a = (f32[3,9,5], f32[3,5]) scan(p, i), dimensions={1}, num_carries=1, to_apply=middle
  a0 = f32[3,9,5] get-tuple-element(a), index=0
  a1 = f32[3,5] get-tuple-element(a), index=1
  z = f32[9,5] parameter(2)
  b = (f32[3,9,5], f32[9,5]) scan(p, z), dimensions={0}, is_reverse=true, num_carries=1, to_apply=outer
  b0 = f32[3,9,5] get-tuple-element(b), index=0
  b1 = f32[9,5] get-tuple-element(b), index=1
  v = f32[40] parameter(3)
  w = s32[40] parameter(4)
  f = f32[] parameter(5)
  g = s32[] parameter(6)
  c = (f32[40], s32[40], f32[], s32[]) scan(v, w, f, g), dimensions={0}, num_carries=2, to_apply=two
  c0 = f32[40] get-tuple-element(c), index=0
  c1 = s32[40] get-tuple-element(c), index=1
  c2 = f32[] get-tuple-element(c), index=2
  c3 = s32[] get-tuple-element(c), index=3
  q = f32[4,5] parameter(7)
  r = f32[5] parameter(8)
  d = (f32[4,5], f32[5]) scan(q, r), dimensions={0}, num_carries=1, to_apply=slices
  d0 = f32[4,5] get-tuple-element(d), index=0
  d1 = f32[5] get-tuple-element(d), index=1
  ROOT out = (f32[3,9,5], f32[3,5], f32[3,9,5], f32[9,5], f32[40], /*index=5*/s32[40], f32[], s32[], f32[4,5], f32[5]) tuple(a0, a1, b0, b1, c0, /*index=5*/c1, c2, c3, d0, d1)
}
"""


def test_every_row_is_scanned() -> None:
    """Along the middle and the first dimension, backwards, of several values, of whole slices."""
    check_kernel(TEXT, "scan")


def test_slices_that_mix_their_elements_are_refused() -> None:
    """A thread has one element of each slice."""
    text = TEXT.replace(
        "s = f32[5] add(d, x)", "e = f32[5] reverse(d), dimensions={0}\n  s = f32[5] add(e, x)"
    )
    with pytest.raises(AssertionError, match="no kernel fits"):
        planned(text, "scan")
