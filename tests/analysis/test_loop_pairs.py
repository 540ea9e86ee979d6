"""Groups of a loop's state that have nothing to do with each other: work items own an index of each."""

from __future__ import annotations

import hloopt
from hloopt.analysis.parallel_loop import ParallelLoop, parallel_loop


def loop(other: int, *, extra: str = "", state: str = "", following: str = "") -> ParallelLoop:
    """``x`` of 24 elements and ``y`` of ``other``, each turned by itself."""
    shape = f"(s32[], f32[24], f32[{other}]{state})"
    text = f"""HloModule m
body {{
  s = {shape} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[24] get-tuple-element(s), index=1
  y = f32[{other}] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  next_x = f32[24] cosine(x)
  next_y = f32[{other}] sine(y)
{extra}
  ROOT r = {shape} tuple(next, next_x, next_y{following})
}}
condition {{
  s = {shape} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  most = s32[] constant(9)
  ROOT c = pred[] compare(i, most), direction=LT
}}
ENTRY e {{
  init = {shape} parameter(0)
  ROOT w = {shape} while(init), condition=condition, body=body
}}
"""
    module = hloopt.parse(text)
    hloopt.verify(module)
    return parallel_loop(module.entry.root)


def test_groups_of_one_size_are_one_axis() -> None:
    """Neither group waits for the other, and none is computed by every work item."""
    found = loop(24)
    assert found.sizes == (24,)
    assert [one.role for one in found.carried] == ["uniform", "owned", "owned"]


def test_groups_of_other_sizes_stay_apart() -> None:
    """There is no work item for every index of both: one of them has the axis."""
    found = loop(25)
    assert found.sizes == (25,)
    assert [one.role for one in found.carried] == ["uniform", "uniform", "owned"]


def test_dimensions_of_one_value_stay_apart() -> None:
    """Where some value lies along both, a work item that owns an index of each would own its diagonal only."""
    found = loop(
        24,
        extra="""
  m = f32[24,24] get-tuple-element(s), index=3
  bx = f32[24,24] broadcast(next_x), dimensions={0}
  by = f32[24,24] broadcast(next_y), dimensions={1}
  xy = f32[24,24] multiply(bx, by)
  next_m = f32[24,24] add(m, xy)""",
        state=", f32[24,24]",
        following=", next_m",
    )
    (matrix,) = (one for one in found.carried if one.shape.rank == 2)
    assert matrix.axes.count(0) == 1


def test_a_mixed_group_stays_apart() -> None:
    """What is turned round is nobody's own; the other group keeps its axis."""
    found = loop(24, extra="  back = f32[24] reverse(next_y), dimensions={0}")
    assert found.sizes == (24,)
    assert [one.role for one in found.carried] == ["uniform", "owned", "uniform"]
    assert [one.words for one in found.mixing] == [
        "reverse back mixes the 24 elements of dimension 0 of next_y"
    ]
