"""The one form of a loop inside a fusion."""

from __future__ import annotations

import hloopt
from hloopt.analysis.parallel_loop import fused_loop

TEXT = """HloModule m
condition {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT
}
body {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  k = s32[] add(i, one)
  y = f32[8] sine(x)
  ROOT r = (s32[], f32[8]) tuple(k, y)
}
loop {
  p = f32[] parameter(0)
  first = f32[8] broadcast(p), dimensions={}
  zero = s32[] constant(0)
  state = (s32[], f32[8]) tuple(zero, first)
  w = (s32[], f32[8]) while(state), condition=condition, body=body
  x = f32[8] get-tuple-element(w), index=1
  i = s32[] get-tuple-element(w), index=0
  ROOT r = (f32[8], s32[]) tuple(x, i)
}
ENTRY e {
  p = f32[] parameter(0)
  ROOT f = (f32[8], s32[]) fusion(p), kind=kCustom, calls=loop
}
"""


def test_the_loop_of_a_fusion_is_found_with_its_results_and_first_state() -> None:
    """Results may be in any order; each names its element of the state."""
    fusion = hloopt.parse(TEXT).entry.root
    found = fused_loop(fusion)
    assert found is not None
    assert (found.fusion, found.loop.name, found.results) == (fusion, "w", (1, 0))
    assert [found.init(number).name for number in (0, 1)] == ["zero", "first"]


def test_one_result_may_be_alone() -> None:
    """The root is the element of the state then."""
    text = TEXT.replace("ROOT r = (f32[8], s32[]) tuple(x, i)", "ROOT last = f32[8] copy(x)")
    text = text.replace("ROOT f = (f32[8], s32[])", "ROOT f = f32[8]")
    assert fused_loop(hloopt.parse(text).entry.root) is None
    alone = text.replace("  x = f32[8] get-tuple-element(w), index=1\n", "").replace(
        "ROOT last = f32[8] copy(x)", "ROOT last = f32[8] get-tuple-element(w), index=1"
    )
    found = fused_loop(hloopt.parse(alone).entry.root)
    assert found is not None
    assert found.results == (1,)


def test_other_fusions_have_no_loop() -> None:
    """Neither one of another kind, nor one whose root is more than elements of the state."""
    assert fused_loop(hloopt.parse(TEXT.replace("kCustom", "kLoop")).entry.root) is None
    more = TEXT.replace("tuple(x, i)", "tuple(first, i)")
    assert fused_loop(hloopt.parse(more).entry.root) is None
    assert fused_loop(hloopt.parse(TEXT).entry.parameters[0]) is None
