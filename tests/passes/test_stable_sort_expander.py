"""``stable-sort-expander``: ties are broken by position, to the same values."""

from __future__ import annotations

import numpy as np

import hloopt
from hloopt.passes.expand.stable_sort_expander import StableSortExpander
from tests.passes.proof import check

LESS = (
    "HloModule m\nless { a = s32[] parameter(0)\n b = s32[] parameter(1)\n%s"
    " e = s32[] constant(3)\n f = s32[] divide(a, e)\n g = s32[] divide(b, e)\n"
    " ROOT r = pred[] compare(f, g), direction=LT }\n"
)
REST = " c = u8[] parameter(2)\n d = u8[] parameter(3)\n"


def sorts(module: hloopt.Module) -> list[tuple[int, bool]]:
    """How many operands each sort has, and whether it is stable."""
    return [
        (len(entry.operands), bool(entry.attributes.get("is_stable")))
        for entry in module.instructions()
        if entry.opcode == "sort"
    ]


def test_positions_break_ties() -> None:
    """Keys that compare alike though they differ stay in their order, along any dimension."""
    for dim in (0, 1):
        text = LESS % REST + (
            "ENTRY e { x = s32[5,7] parameter(0)\n y = u8[5,7] parameter(1)\n"
            f"ROOT r = (s32[5,7], u8[5,7]) sort(x, y), dimensions={{{dim}}}, is_stable=true, "
            "to_apply=less }"
        )
        better, log = check(text, StableSortExpander())
        assert log.hits["expand sort"] == 1
        assert sorts(better) == [(3, False)]


def test_a_sort_of_one_operand() -> None:
    """Its result is the first of two."""
    text = LESS % "" + (
        "ENTRY e { x = s32[40] parameter(0)\n"
        "ROOT r = s32[40] sort(x), dimensions={0}, is_stable=true, to_apply=less }"
    )
    better, _ = check(text, StableSortExpander())
    assert sorts(better) == [(2, False)]
    keys = np.random.default_rng(3).integers(0, 9, 40, np.int32)
    (result,) = hloopt.evaluate(better, [keys])
    assert (result == keys[np.argsort(keys // 3, kind="stable")]).all()


def test_an_iota_is_used_again() -> None:
    """One of s32 along the sorted dimension; others do not tell positions."""
    rest = " c = %s[] parameter(2)\n d = %s[] parameter(3)\n"
    for element, along, count in (("s32", 1, 2), ("s32", 0, 3), ("u32", 1, 3)):
        text = LESS % (rest % (element, element)) + (
            f"ENTRY e {{ x = s32[5,7] parameter(0)\n i = {element}[5,7] iota(), "
            f"iota_dimension={along}\n ROOT r = (s32[5,7], {element}[5,7]) sort(x, i), "
            "dimensions={1}, is_stable=true, to_apply=less }"
        )
        better, _ = check(text, StableSortExpander())
        assert sorts(better) == [(count, False)]


def test_other_sorts_stay() -> None:
    """One that need not be stable."""
    text = LESS % "" + (
        "ENTRY e { x = s32[40] parameter(0)\n"
        "ROOT r = s32[40] sort(x), dimensions={0}, to_apply=less }"
    )
    better, log = check(text, StableSortExpander(), changes=False)
    assert not log.hits
    assert sorts(better) == [(1, False)]
