"""Outputs of scans of which the last is read: what is carried then, and in which loops it is not the last."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.findings import Finding, kind_examples

KIND = "stacked-output"
TEXT = kind_examples()[KIND].example


def _found(text: str) -> list[Finding]:
    return list(hloopt.why(hloopt.parse(text), kinds=[KIND]).rows)


def _replaced(*changes: tuple[str, str]) -> str:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def test_an_output_that_is_not_carried_becomes_an_element_of_the_carry() -> None:
    (row,) = _found(TEXT)
    assert "100 iterations of %loop, 6.25 MiB, and %last reads the last" in row.why
    assert "return the value in the carry" in row.remedies[0].text
    assert row.gain.verdict in ("equal", "within tolerance")


def test_an_output_that_is_carried_already_is_read_from_there() -> None:
    (row,) = _found(_replaced(("reshape(s)", "reshape(t)"), ("  s = f32[64,256] sine(y)\n", "")))
    assert "has the value of ys[-1]" in row.remedies[0].text
    assert row.gain.verdict in ("equal", "within tolerance")


def test_an_index_that_jax_lets_count_from_the_end_is_followed() -> None:
    index = """below = pred[] compare(i, zero), direction=LT
  size = s32[] constant(100)
  other = s32[] add(i, size)
  at = s32[] select(below, other, i)
  written"""
    assert _found(_replaced(("written = ", f"{index} = "), ("row, i, zero", "row, at, zero")))


@pytest.mark.parametrize(
    "changes",
    [
        # In reverse: the last place is from the first iteration.
        [
            ("written = ", "top = s32[] constant(99)\n  at = s32[] subtract(top, i)\n  written = "),
            ("row, i, zero", "row, at, zero"),
        ],
        # The loop ends before the last place.
        [("n = s32[] constant(100)", "n = s32[] constant(90)")],
        [("[99:100]", "[98:99]")],
        # All outputs are read, too.
        [
            ("ROOT out = f32[1,64,256] negate(last)", "ROOT out = (f32[1,64,256], f32[100,64,256]) tuple(last, all)"),
        ],
        # The body reads what it has written.
        [("s = f32[64,256] sine(y)", "old = f32[1,64,256] slice(ys), slice={[0:1], [0:64], [0:256]}\n  flat = f32[64,256] reshape(old)\n  s = f32[64,256] add(y, flat)"),
         ("  ys = f32[100,64,256] get-tuple-element(state), index=2\n", ""),
         ("  i = s32[] get-tuple-element(state), index=0\n  one", "  i = s32[] get-tuple-element(state), index=0\n  ys = f32[100,64,256] get-tuple-element(state), index=2\n  one")],
    ],
)  # fmt: skip
def test_other_loops_are_left_alone(changes: list[tuple[str, str]]) -> None:
    assert not _found(_replaced(*changes))
