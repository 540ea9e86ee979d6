"""Reducers whose two sides are not alike."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.analysis.commuting import order_example
from hloopt.ir import Computation
from tests.codegen.reducing import Case


def _computation(text: str, name: str) -> Computation:
    module = hloopt.parse(f"HloModule m\n{text}\nENTRY main {{ ROOT p = f32[] parameter(0) }}\n")
    return module.computations[name]


def _scalar(kind: str, *lines: str) -> Computation:
    body = "\n".join([f"a = {kind}[] parameter(0)", f"b = {kind}[] parameter(1)", *lines])
    return _computation(f"f {{\n{body}\n}}", "f")


@pytest.mark.parametrize(
    "case",
    [
        Case("f32", (), (), "argmax"),
        Case("s8", (), (), "argmax"),
        Case("bf16", (), (), "wide-add"),
        Case("f64", (), (), "moments"),
        Case("c64", (), (), "multiply"),
        Case("u8", (), (), "add"),
        Case("pred", (), (), "xor"),
    ],
    ids=lambda case: f"{case.reducer}-{case.kind}",
)
def test_either_side_first(case: Case) -> None:
    """Sums, best places with ties, several outputs at once: both sides are alike."""
    name, text = case.computation
    assert order_example(_computation(text, name)) == ""


def test_not_a_number_on_both_sides() -> None:
    """Two NaN are the same result."""
    assert order_example(_scalar("f32", "p = f32[] multiply(a, b)", "ROOT r = f32[] log(p)")) == ""


@pytest.mark.parametrize(
    ("kind", "line", "example"),
    [
        ("f32", "ROOT r = f32[] copy(b)", "of (-2.0) and (-1.0) it makes -1.0, swapped -2.0"),
        ("s32", "ROOT r = s32[] subtract(a, b)", "of (-2) and (-1) it makes -1, swapped 1"),
        ("u8", "ROOT r = u8[] shift-left(a, b)", "of (2) and (0) it makes 2, swapped 0"),
        ("pred", "ROOT r = pred[] copy(a)", "of (False) and (True) it makes False, swapped True"),
    ],
)
def test_one_side_first(kind: str, line: str, example: str) -> None:
    """The last of two, a difference, a shift: an example shows that the order matters."""
    found = order_example(_scalar(kind, line))
    assert found == example


def test_ties_by_place() -> None:
    """A best place that does not look at places returns one of equals by their order."""
    name, text = Case("f32", (), (), "argmax").computation
    text = text.replace("pred[] or(larger, tie)", "pred[] copy(larger)")
    assert order_example(_computation(text, name)) == (
        "of (0.0, 0) and (0.0, 1) it makes 1, swapped 0"
    )
