"""What loop-fusion says of a loop does not depend on whether its body was fused before."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import hloopt
from hloopt.fusion.history import FusionPlan
from hloopt.fusion.loop_fusion import LoopFusion
from hloopt.fusion.loop_opened import opened
from hloopt.ir import Instruction, Module
from tests.helpers.random_loops import inputs, loop_text
from tests.helpers.support import invoke

FUSE = "priority-fusion,cse,dce,multi-output-fusion,cse,dce"

ROOTED = """HloModule m

inner_body {
  s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  v = f32[64] get-tuple-element(s), index=1
  u = f32[64] sine(v)
  ROOT t = (s32[], f32[64]) tuple(next, u)
}

inner_condition {
  s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  four = s32[] constant(4)
  part = s32[] remainder(i, four)
  three = s32[] constant(3)
  ROOT goes_on = pred[] compare(part, three), direction=NE
}

body {
  s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  v = f32[64] get-tuple-element(s), index=1
  w = f32[64] multiply(v, v)
  u = f32[64] cosine(w)
  t = (s32[], f32[64]) tuple(next, u)
  ROOT inner = (s32[], f32[64]) while(t), condition=inner_condition, body=inner_body
}

condition {
  s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  most = s32[] constant(20)
  ROOT goes_on = pred[] compare(i, most), direction=LT
}

ENTRY main {
  x = f32[64] parameter(0)
  zero = s32[] constant(0)
  init = (s32[], f32[64]) tuple(zero, x)
  loop = (s32[], f32[64]) while(init), condition=condition, body=body
  ROOT r = f32[64] get-tuple-element(loop), index=1
}
"""


def loop_of(module: Module) -> Instruction:
    """The loop of the entry."""
    return next(one for one in module.entry if one.opcode == "while")


def said(plan: FusionPlan) -> list[object]:
    """All that was said of the loops."""
    refused = sorted(str(refusal.decision) for refusal in plan.refusals)
    return [
        (row.loop, row.kernel, row.iterations, row.mappings, row.profit) for row in plan.loops
    ] + refused


def test_a_body_that_ends_in_a_loop_is_given_a_tuple() -> None:
    """The outer loop is one kernel, the inner one part of it; the result is what it was."""
    module = hloopt.parse(ROOTED)
    plan = LoopFusion().fuse(module)
    assert [(row.loop, row.kernel) for row in plan.loops] == [("loop", "while-per-thread")]
    hloopt.verify(module)
    x = np.linspace(0, 3, 64, dtype=np.float32)
    (want,), (got,) = (hloopt.evaluate(one, [x]) for one in (hloopt.parse(ROOTED), module))
    np.testing.assert_array_equal(got, want)


def test_a_loop_that_is_refused_keeps_its_computations() -> None:
    """Of the copies that were looked at nothing is left."""
    module = hloopt.optimize(hloopt.parse(ROOTED), FUSE)
    body = loop_of(module).attributes["body"]
    before = set(module.computations), list(body)
    assert any(one.opcode == "fusion" for one in body)
    plan = LoopFusion(fuel=0).fuse(module)
    assert [row.kernel for row in plan.loops] == ["", ""]
    assert (set(module.computations), list(body)) == before
    assert loop_of(module).attributes["body"] is body
    hloopt.verify(module)


@pytest.mark.parametrize("seed", [5, 13, 30, 59])
def test_a_fused_body_is_judged_like_the_body(seed: int) -> None:
    """Ways, times, gains and refusals are the same, and so are the results."""
    source = loop_text(random.Random(seed))
    plain = hloopt.optimize(hloopt.parse(source), "fix(simplify,tuple-simplifier,cse,dce)")
    fused = hloopt.optimize(plain, FUSE)
    assert any(one.opcode == "fusion" for one in loop_of(fused).attributes["body"])
    given = inputs([entry.array.dims for entry in plain.entry.parameters])
    want = hloopt.evaluate(plain, given)
    assert said(LoopFusion().fuse(fused)) == said(LoopFusion().fuse(plain))
    hloopt.verify(fused)
    for one, other in zip(hloopt.evaluate(fused, given), want, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_lock_file_speaks_of_the_loop_as_it_was_given(tmp_path: Path) -> None:
    """What was written for a fused body can be read for it again."""
    given, lock = tmp_path / "given.hlo", tmp_path / "fusions.lock"
    first, second = tmp_path / "first.hlo", tmp_path / "second.hlo"
    given.write_text(invoke("optimize", "--passes", FUSE, "-", stdin=ROOTED).stdout)
    words = ("optimize", str(given), "--passes", "loop-fusion")
    assert invoke(*words, "--write-lock", str(lock), "-o", str(first)).exit_code == 0
    assert "[[loop]]" in lock.read_text()
    result = invoke(*words, "--lock", str(lock), "--frozen", "-o", str(second))
    assert result.exit_code == 0, result.stderr
    assert second.read_text() == first.read_text()


def test_nothing_is_copied_where_nothing_is_fused() -> None:
    """A loop without fusions that ends in a tuple is looked at as it is."""
    module = hloopt.parse(loop_text(random.Random(5)))
    loop = loop_of(module)
    before = loop.attributes["body"]
    assert not opened(loop).before
    assert loop.attributes["body"] is before
