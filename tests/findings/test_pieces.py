"""Chains of updates are written at once, whatever overlaps, and only where places are known."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.findings import Findings

HEAD = """HloModule m
ENTRY main {
  x = f32[12,64] parameter(0)
  y = f32[12,64] parameter(1)
  base = f32[12,64] negate(y)
  first = s32[] constant(0)
"""


def chain(*places: tuple[int, int], more: str = "", root: str = "") -> Findings:
    """Updates of some rows of ``x``, each with the place where it begins and its rows."""
    lines, before = [], "base"
    for number, (begin, rows) in enumerate(places):
        last = "ROOT " if number == len(places) - 1 and not root else ""
        lines += [
            f"  r{number} = f32[{rows},64] slice(x), slice={{[{number}:{number + rows}], [0:64]}}",
            f"  t{number} = f32[{rows},64] tanh(r{number})",
            f"  k{number} = s32[] constant({begin})",
            f"  {last}w{number} = f32[12,64] dynamic-update-slice({before}, t{number}, k{number}, first)",
        ]
        before = f"w{number}"
    text = "\n".join([HEAD, *lines, more, root, "}"])
    return hloopt.why(hloopt.parse(text), kinds=["written-in-pieces"])


@pytest.mark.parametrize(
    "places",
    [
        [(at, 1) for at in range(12)],
        [(0, 3), (3, 3), (6, 3), (9, 3)],
        [(0, 4), (2, 4), (4, 4), (1, 2), (2, 1)],
        [(11, 3), (-5, 2), (4, 1), (6, 1)],
    ],
    ids=["rows", "blocks", "overlapping", "clamped"],
)
def test_known_places_are_written_at_once(places: list[tuple[int, int]]) -> None:
    """The last to write a place counts, and what none writes is that of the array before."""
    (row,) = chain(*places).rows
    assert f"the last of {len(places)} updates" in row.why
    assert row.gain.verdict == "equal"
    assert row.gain.saved > 1e-6


def test_what_is_read_in_between_ends_a_chain() -> None:
    """Here after two of six updates, so that four are left."""
    found = chain(
        *((at, 1) for at in range(6)),
        more="  seen = f32[12,64] sine(w1)",
        root="  ROOT both = (f32[12,64], f32[12,64]) tuple(w5, seen)",
    )
    (row,) = found.rows
    assert "the last of 4 updates" in row.why


def test_few_updates_are_left_alone() -> None:
    """Three are a matter of taste."""
    assert not chain((0, 1), (1, 1), (2, 1)).rows
    assert not chain((0, 1), (1, 1), (2, 1)).useless


def test_long_chains_take_linear_time() -> None:
    """Neither depth nor length of a chain is a matter of recursion."""
    rows = 800
    lines = [
        f"HloModule m\nENTRY main {{\n  x = f32[1,4] parameter(0)\n  o = f32[{rows},4] parameter(1)"
    ]
    lines += ["  z = s32[] constant(0)"]
    before = "o"
    for at in range(rows):
        last = "ROOT " if at == rows - 1 else ""
        lines += [
            f"  k{at} = s32[] constant({at})",
            f"  {last}w{at} = f32[{rows},4] dynamic-update-slice({before}, x, k{at}, z)",
        ]
        before = f"w{at}"
    text = "\n".join([*lines, "}"])
    (row,) = hloopt.why(hloopt.parse(text), kinds=["written-in-pieces"]).rows
    assert "the last of 800 updates" in row.why
