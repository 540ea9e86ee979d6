"""Searches for the update that wrote a part of an array."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.ir import edit
from hloopt.simplify.update_chains import UpdateChains, written_box

TEXT = """HloModule m

ENTRY e {
  x = f32[8,4] parameter(0)
  u = f32[2,4] parameter(1)
  v = f32[1,2] parameter(2)
  i = s32[] parameter(3)
  zero = s32[] constant(0)
  two = s32[] constant(2)
  far = s32[] constant(9)
  a = f32[8,4] dynamic-update-slice(x, u, two, zero)
  b = f32[8,4] dynamic-update-slice(a, v, i, two)
  c = f32[8,4] dynamic-update-slice(b, u, far, i)
  d = f32[8,4] dynamic-update-slice(a, u, zero, zero)
  ROOT t = (f32[8,4], f32[8,4]) tuple(c, d)
}
"""


@pytest.mark.parametrize(
    ("array", "first", "limit", "writer"),
    [
        ("c", (6, 0), (7, 1), "c"),
        ("c", (2, 0), (6, 1), "a"),
        ("c", (0, 2), (1, 3), "b"),
        ("b", (6, 0), (8, 2), "x"),
        ("c", (0, 0), (2, 2), "x"),
        ("d", (0, 3), (1, 4), "d"),
        ("d", (2, 3), (3, 4), "a"),
        ("a", (4, 0), (8, 4), "x"),
        ("x", (0, 0), (8, 4), "x"),
    ],
)
def test_the_last_update_that_meets_a_box(
    array: str, first: tuple[int, ...], limit: tuple[int, ...], writer: str
) -> None:
    """Starts are clamped, an unknown one may be any, and two chains may begin alike."""
    names = hloopt.parse(TEXT).entry.by_name
    chains = UpdateChains()
    for one in ("b", "d", array):
        chains.writer(names[one], ([0, 0], [8, 4]))
    assert chains.writer(names[array], (list(first), list(limit))) is names[writer]


def test_a_writer_that_was_replaced_is_not_found_again() -> None:
    """What takes its place is."""
    module = hloopt.parse(TEXT)
    names = module.entry.by_name
    chains = UpdateChains()
    box = [2, 0], [3, 1]
    assert chains.writer(names["c"], box) is names["a"]
    edit.replace_uses(names["a"], names["x"])
    edit.remove(names["a"])
    assert chains.writer(names["c"], box) is names["x"]


def test_boxes() -> None:
    """Only of updates with a start for each dimension."""
    names = hloopt.parse(TEXT).entry.by_name
    assert written_box(names["c"]) == ([6, 0], [8, 4])
    assert written_box(names["b"]) == ([0, 2], [8, 4])
    assert written_box(names["x"]) is None
