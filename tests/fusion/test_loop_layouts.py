"""loop-fusion where a loop's state has other layouts outside of its body than inside."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.analysis.parallel_loop import fused_loop
from hloopt.fusion.loop_fusion import LoopFusion
from hloopt.ir import Module


def module(outside: str, inside: str) -> Module:
    text = f"""HloModule m
body {{
  s = (s32[], f32[32,64]{inside}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[32,64]{inside} get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[32,64]{inside} cosine(x)
  ROOT r = (s32[], f32[32,64]{inside}) tuple(next, y)
}}
condition {{
  s = (s32[], f32[32,64]{inside}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(10)
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  x = f32[32,64]{outside} parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[32,64]{outside}) tuple(zero, x)
  w = (s32[], f32[32,64]{outside}) while(t), condition=condition, body=body
  ROOT r = f32[32,64]{outside} get-tuple-element(w), index=1
}}
"""
    found = hloopt.parse(text)
    hloopt.verify(found)
    return found


@pytest.mark.parametrize("inside", ["{1,0}", "{0,1}", ""])
@pytest.mark.parametrize("outside", ["{1,0}", "{0,1}", ""])
def test_a_kernel_has_the_layouts_of_the_body(outside: str, inside: str) -> None:
    """What others read in another layout they copy, and the fusion stays one, made ready for a device too."""
    given = module(outside, inside)
    fused = hloopt.optimize(given, LoopFusion(always=True))
    hloopt.verify(fused)
    x = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)
    (wanted,) = hloopt.evaluate(given, [x])
    for one in (fused, hloopt.optimize(fused, "device")):
        assert [entry.name for entry in one.instructions() if fused_loop(entry) is not None]
        np.testing.assert_array_equal(hloopt.evaluate(one, [x])[0], wanted)
    copies = [entry for entry in fused.instructions() if entry.opcode == "copy"]
    assert len(copies) == (0 if {outside or "{1,0}"} == {inside or "{1,0}"} else 2)
