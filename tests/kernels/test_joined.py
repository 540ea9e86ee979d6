"""Concatenates after a loop's kernel: its results are written where they belong, and nothing is launched."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.kernels.costs import kernel_costs
from hloopt.kernels.selection import KernelSelection
from hloopt.rewrite import PassLog
from tests.helpers.fake_device import fake_program
from tests.helpers.plans import kernels, planned
from tests.helpers.random_loops import inputs

LOOP = """HloModule m

body {
  state = (s32[], f32[64], f32[64], f32[4], f32[4]) parameter(0)
  trip = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(trip, one)
  a = f32[64] get-tuple-element(state), index=1
  b = f32[64] get-tuple-element(state), index=2
  c = f32[4] get-tuple-element(state), index=3
  d = f32[4] get-tuple-element(state), index=4
  x = f32[64] add(a, b)
  y = f32[64] negate(a)
  z = f32[4] add(c, d)
  ROOT result = (s32[], f32[64], f32[64], f32[4], f32[4]) tuple(next, x, y, z, c)
}

condition {
  state = (s32[], f32[64], f32[64], f32[4], f32[4]) parameter(0)
  trip = s32[] get-tuple-element(state), index=0
  most = s32[] constant(5)
  ROOT goes_on = pred[] compare(trip, most), direction=LT
}

ENTRY main {
  p = f32[64] parameter(0)
  q = f32[4] parameter(1)
  zero = s32[] constant(0)
  init = (s32[], f32[64], f32[64], f32[4], f32[4]) tuple(zero, p, p, q, q)
  loop = (s32[], f32[64], f32[64], f32[4], f32[4]) while(init), condition=condition, body=body
  a = f32[64] get-tuple-element(loop), index=1
  b = f32[64] get-tuple-element(loop), index=2
  c = f32[4] get-tuple-element(loop), index=3
  d = f32[4] get-tuple-element(loop), index=4
  TAIL
}
"""
WHOLE = "ROOT w = f32[128] concatenate(a, b), dimensions={0}"


TWICE = """w = f32[128] concatenate(a, b), dimensions={0}
  x = f32[128] concatenate(b, a), dimensions={0}
  ROOT r = (f32[128], f32[128]) tuple(w, x)"""


def fused(tail: str) -> hloopt.Module:
    """The module with its loop as a kernel."""
    module = hloopt.parse(LOOP.replace("TAIL", tail))
    hloopt.verify(module)
    return hloopt.optimize(module, "loop-fusion,dce")


def steps(tail: str) -> list[str]:
    """What is launched; the plan is held against the graph, and run."""
    module = fused(tail)
    _, plan = planned(module.to_text())
    given = inputs([parameter.array.dims for parameter in module.entry.parameters])
    got, want = fake_program(module).run(given), hloopt.evaluate(module, given)
    assert [one.tobytes() for one in got] == [one.tobytes() for one in want]
    return [step.instruction.name for step in kernels(plan)]


@pytest.mark.parametrize(
    "tail",
    [
        WHOLE,
        # Others may read the parts and the whole.
        "w = f32[128] concatenate(a, b), dimensions={0}\n  ROOT r = (f32[128], f32[64]) tuple(w, f32[64] copy(a))",
        "w = f32[8] concatenate(d, c), dimensions={0}\n  ROOT r = (f32[8], f32[64]) tuple(w, f32[64] copy(a))",
        "x = f32[1,64] reshape(a)\n  y = f32[1,64] reshape(b)\n  ROOT w = f32[2,64] concatenate(x, y), dimensions={0}",
        "x = f32[1,64] reshape(a)\n  y = f32[1,64] reshape(b)\n  ROOT w = f32[1,128] concatenate(x, y), dimensions={1}",
    ],
)
def test_what_lies_one_behind_the_other_is_written_there(tail: str) -> None:
    """No kernel puts together what a loop's kernel can write into one array."""
    assert [name for name in steps(tail) if not name.startswith("copy")] == ["loop_fusion"]


def test_the_parts_are_buffers_within_the_whole() -> None:
    """The results of the kernel begin where the concatenate puts them."""
    _, plan = planned(fused(WHOLE).to_text())
    (step,) = kernels(plan)
    (whole,) = plan.results
    first, second = step.results
    assert first.allocation == second.allocation == whole.allocation
    assert (first.offset, second.offset) == (whole.offset, whole.offset + 256)


@pytest.mark.parametrize(
    "tail",
    [
        # Columns beside each other.
        "x = f32[64,1] reshape(a)\n  y = f32[64,1] reshape(b)\n  ROOT w = f32[64,2] concatenate(x, y), dimensions={1}",
        # The same part twice.
        "ROOT w = f32[128] concatenate(a, a), dimensions={0}",
        # A part of something else.
        "ROOT w = f32[128] concatenate(a, p), dimensions={0}",
        # A part is a result, too.
        "w = f32[128] concatenate(a, b), dimensions={0}\n  ROOT r = (f32[128], f32[64]) tuple(w, a)",
        # A part of two arrays, of which one has it.
        TWICE,
        # Between columns, where kernels read several elements at once.
        "e = f32[3] slice(c), slice={[0:3]}\n  ROOT w = f32[7] concatenate(e, d), dimensions={0}",
    ],
)
def test_what_cannot_lie_there_is_put_together_by_a_kernel(tail: str) -> None:
    """Interleaved, shared, foreign or misaligned parts are copied."""
    assert "w" in steps(tail) or "x" in steps(tail)


def test_selection_chooses_nothing_for_what_is_not_run() -> None:
    """The table of kernels and the plan agree."""
    log = PassLog()
    KernelSelection().run(hloopt.optimize(fused(WHOLE), "device"), log)
    assert [choice.instruction for choice in log.records] == ["loop_fusion"]  # type: ignore[attr-defined]


def test_a_part_of_one_element_needs_no_alignment() -> None:
    """Nobody reads several elements of it at once."""
    small = LOOP.replace("f32[4]", "f32[1]")
    text = small.replace("TAIL", "ROOT w = f32[2] concatenate(c, d), dimensions={0}")
    module = hloopt.optimize(hloopt.parse(text), "loop-fusion,dce")
    _, plan = planned(module.to_text())
    assert [step.instruction.name for step in kernels(plan)] == ["loop_fusion"]
    got = fake_program(module).run([np.ones(64, np.float32), np.ones(1, np.float32)])
    assert got[0].tolist() == [13.0, 8.0]


def test_predictions_count_no_launch_for_it() -> None:
    """What stats predicts has the launches of the plan."""
    module = fused(WHOLE)
    assert [row.instruction.name for row in kernel_costs(module)] == ["loop_fusion"]
