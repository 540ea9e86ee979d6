"""Which regions of pairs are known to choose by value first, and what by."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.interpret import EVALUATORS
from hloopt.interpret.interpreter import Interpreter
from hloopt.interpret.pairs import PairChoice, choice_of

PARAMETERS = """
    xv = {0}[] parameter(0)
    xi = {1}[] parameter(1)
    yv = {0}[] parameter(2)
    yi = {1}[] parameter(3)"""
LOWER = """
    better = pred[] compare(xv, yv), direction={0}
    equal = pred[] compare(xv, yv), direction=EQ
    lower = pred[] compare(xi, yi), direction={1}
    tie = pred[] and(equal, lower)
    first = pred[] or(better, tie)
    v = f32[] select(better, xv, yv)
    i = s32[] select(first, xi, yi)
    ROOT r = (f32[], s32[]) tuple(v, i)"""
SIMPLE = """
    take = pred[] compare({0}), direction={1}
    v = f32[] select(take, xv, yv)
    i = s32[] select(take, xi, yi)
    ROOT r = (f32[], s32[]) tuple(v, i)"""


def choice(body, kinds=("f32", "s32")):
    text = PARAMETERS.format(*kinds) + body
    module = hloopt.parse(
        f"HloModule m\nregion {{{text}\n}}\nENTRY e {{ ROOT c = s32[] constant(0) }}"
    )
    return choice_of(module.computations["region"], Interpreter(module, EVALUATORS))


@pytest.mark.parametrize(("direction", "largest"), [("GT", True), ("LT", False)])
@pytest.mark.parametrize(("order", "ties"), [("LT", "lower"), ("GT", "higher")])
def test_ties_by_index(direction, largest, order, ties):
    """Of equal values the lower or the higher index."""
    assert choice(LOWER.format(direction, order)) == PairChoice(largest, ties)


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        ("GT", PairChoice(True, "last")),
        ("GE", PairChoice(True, "first")),
        ("LT", PairChoice(False, "last")),
        ("LE", PairChoice(False, "first")),
    ],
)
def test_ties_by_place(direction, expected):
    """Of equal values the accumulated or the new one, as the comparison says."""
    assert choice(SIMPLE.format("xv, yv", direction)) == expected


@pytest.mark.parametrize(
    "body",
    [
        SIMPLE.format("xi, yi", "LT"),
        SIMPLE.format("xv, yv", "EQ"),
        SIMPLE.format("xv, xv", "NE"),
        SIMPLE.format("xv, yv", "GT").replace("GT", "GT, type=TOTALORDER"),
        SIMPLE.format("xv, yv", "GT").replace("select(take, xi, yi)", "select(take, yi, xi)"),
        "\n    s = f32[] add(xv, yv)\n    i = s32[] maximum(xi, yi)\n    ROOT r = (f32[], s32[]) tuple(s, i)",
    ],
)
def test_other_regions_choose_nothing_that_is_known(body):
    """Chosen by index, by equality, in total order, crosswise; or no choice at all."""
    assert choice(body) is None


def test_values_compared_with_indices_are_not_understood():
    """Types may agree, lanes do not."""
    body = SIMPLE.format("xv, yi", "GT").replace("f32", "s32")
    assert choice(body, ("s32", "s32")) is None
