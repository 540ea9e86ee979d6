"""Copies in loops: which element, what is written while it is read, and which change saves the copy."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

import hloopt
from hloopt.findings import Findings
from hloopt.report.findings import show_findings

LOOP = """HloModule loop{extra}
body {{
  state = (s32[], f32[100000], f32[100000]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  a = f32[100000] get-tuple-element(state), index=1
  b = f32[100000] get-tuple-element(state), index=2
  one = s32[] constant(1)
  part = f32[1] constant({{2}})
{body}
  step = s32[] add(i, one)
  ROOT r = (s32[], f32[100000], f32[100000]) tuple(step, {next})
}}
condition {{
  state = (s32[], f32[100000], f32[100000]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  most = s32[] constant(40)
  ROOT c = pred[] compare(i, most), direction=LT
}}
ENTRY main {{
  x = f32[100000] parameter(0)
  y = f32[100000] parameter(1)
  zero = s32[] constant(0)
  state = (s32[], f32[100000], f32[100000]) tuple(zero, x, y)
  loop = (s32[], f32[100000], f32[100000]) while(state), condition=condition, body=body
  a = f32[100000] get-tuple-element(loop), index=1
  b = f32[100000] get-tuple-element(loop), index=2
  ROOT r = (f32[100000], f32[100000]) tuple(a, b)
}}
"""
IN_PLACE = """  old = f32[1] dynamic-slice(a, i), dynamic_slice_sizes={1}
  new = f32[1] multiply(old, part)
  at = s32[] add(i, one)
  u = f32[100000] dynamic-update-slice(a, new, at)"""
SWAPPED = "  u = f32[100000] dynamic-update-slice(a, part, i)"
PLANNED = """  held = f32[100000] copy(a)
  u = f32[100000] dynamic-update-slice(held, part, i)
  old = f32[1] dynamic-slice(a, i), dynamic_slice_sizes={1}
  v = f32[100000] dynamic-update-slice(b, old, i)"""


def found(body: str, following: str, *, extra: str = "", target: str = "host") -> Findings:
    """What is found of copies in a loop."""
    text = LOOP.format(body=body, next=following, extra=extra)
    return hloopt.why(hloopt.parse(text), target, kinds=["loop-copy"])


@pytest.mark.parametrize("target", ["host", "h200"])
def test_values_that_change_places_need_two_iterations_in_one(target: str) -> None:
    """The cause names both elements, the gain is nearly all of it."""
    (row,) = found(SWAPPED, "b, u", target=target).rows
    assert "element 1 (%x, f32[100000]" in row.why
    assert "element 1 takes over the old value of element 2" in row.why
    assert "40 iterations, 45.8 MiB in all" in row.why
    assert "unroll=2" in row.remedies[0].text
    assert row.gain.verdict == "equal"
    assert row.gain.after < row.gain.before / 3


def test_a_read_that_a_plan_has_after_the_write_goes_before_it() -> None:
    """Of a scheduled module: the copy goes, and the reader and the writer are named."""
    (row,) = found(PLANNED, "u, v", extra=", is_scheduled=true").rows
    assert "%u writes element 1, whose old value %old still reads" in row.why
    assert {"held", "u", "old"} <= set(row.blocking)
    assert "does not order the read before the write" in row.remedies[0].text
    assert row.gain.verdict == "equal"


@pytest.mark.parametrize("target", ["host", "h200"])
def test_an_update_after_its_read_is_in_place(target: str) -> None:
    """No finding, but the loop is spoken of: how often it runs, and what a copy would cost."""
    made = found(IN_PLACE, "u, b", target=target)
    assert not made.rows
    (loop,) = made.loops
    assert (loop.loop, loop.element, loop.iterations, loop.copies) == ("loop", 1, 40, 0)
    assert loop.byte_size == 400_000
    assert loop.seconds > 0
    assert len(loop.readers) == 1
    assert made.to_json()["loops"][0]["bytes"] == 400_000


def test_a_copy_that_both_updates_need_is_no_finding() -> None:
    """Two updates of the same old value: no order avoids the copy."""
    body = """  u = f32[100000] dynamic-update-slice(a, part, i)
  v = f32[100000] dynamic-update-slice(a, part, one)"""
    made = found(body, "u, v")
    assert not [row for row in made.rows if "schedule" in row.remedies[-1].text]


def test_a_loop_is_spoken_of_beside_other_findings_about_it() -> None:
    """Unless its copies are the finding."""
    (copied,) = found(SWAPPED, "b, u").rows
    for kind, is_spoken_of in (("loop-kernels", True), ("loop-copy", False)):
        made = replace(found(IN_PLACE, "u, b"), rows=(replace(copied, kind=kind),))
        shown = StringIO()
        show_findings(made, Console(file=shown, width=80))
        assert ("in place: no copy is needed" in " ".join(shown.getvalue().split())) is is_spoken_of
