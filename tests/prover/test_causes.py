"""Rules that explain a difference: each is named where it holds, and not where something else differs."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.prover.compare import ModulesCompared

MODULE = """HloModule m
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
LINES
"""


def compared(before: str, after: str, **options: object) -> ModulesCompared:
    one, other = (
        hloopt.parse(MODULE.replace("LINES", f"ENTRY e {{ {body} }}").replace("; ", "\n"), name)
        for name, body in (("a", before), ("b", after))
    )
    return hloopt.compare(one, other, **options)  # type: ignore[arg-type]


X = "x = f32[64] parameter(0); "
XY = X + "y = f32[64] parameter(1); "
CASES = [
    ("sign of zero", X + "z = f32[] constant(0); b = f32[64] broadcast(z), dimensions={}; ROOT r = f32[64] multiply(x, b)",
     X + "z = f32[] constant(0); ROOT r = f32[64] broadcast(z), dimensions={}", {"bitwise": True}),
    ("excess precision", X + "h = bf16[64] convert(x); ROOT r = f32[64] convert(h)",
     X + "ROOT r = f32[64] copy(x)", {"ulp": 0}),
    ("what was left out", X + "e = f32[64] exponential(x); ROOT r = f32[64] log(e)",
     X + "ROOT r = f32[64] copy(x)", {"special": ("largest",)}),
    ("division by a constant as a product",
     X + "c = f32[] constant(3); b = f32[64] broadcast(c), dimensions={}; ROOT r = f32[64] divide(x, b)",
     X + "c = f32[] constant(0.33333334); b = f32[64] broadcast(c), dimensions={}; ROOT r = f32[64] multiply(x, b)", {"ulp": 0}),
    ("rounding through a narrower type", XY + "ROOT r = f32[64] add(x, y)",
     XY + "s = f32[64] add(x, y); ROOT r = f32[64] reduce-precision(s), exponent_bits=8, mantissa_bits=7", {}),
    ("special values", X + "ROOT r = f32[64] subtract(x, x)",
     X + "z = f32[] constant(0); ROOT r = f32[64] broadcast(z), dimensions={}", {"special": ("nan",)}),
    ("fused multiply-add", XY + "p = f32[64] multiply(x, y); ROOT r = f32[64] add(p, x)",
     XY + "a = f64[64] convert(x); b = f64[64] convert(y); p = f64[64] multiply(a, b); q = f64[64] add(p, a); ROOT r = f32[64] convert(q)",
     {"ulp": 0}),
    ("reassociation", X + "z = f32[] constant(0); ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=sum",
     X + "z = f32[] constant(0); m = f32[8,8] reshape(x); h = f32[8] reduce(m, z), dimensions={0}, to_apply=sum; ROOT r = f32[] reduce(h, z), dimensions={0}, to_apply=sum",
     {"bitwise": True, "special": ("cancelling",)}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "before", "after", "options"), CASES)
def test_the_rule_is_named(name: str, before: str, after: str, options: dict[str, object]) -> None:
    found = compared(before, after, **options)
    assert found.verdict == "differ"
    assert found.first is not None
    assert found.first.cause is not None
    assert found.first.cause.name == name


WRONG = [
    (XY + "ROOT r = f32[64] add(x, y)", XY + "ROOT r = f32[64] subtract(x, y)"),
    (XY + "ROOT r = f32[64] divide(x, y)", XY + "ROOT r = f32[64] multiply(x, y)"),
    (X + "ROOT r = f32[64] negate(x)", X + "ROOT r = f32[64] abs(x)"),
    (XY + "p = f32[64] multiply(x, y); ROOT r = f32[64] add(p, x)", XY + "ROOT r = f32[64] multiply(x, y)"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), WRONG)
def test_an_error_is_not_explained_away(before: str, after: str) -> None:
    found = compared(before, after)
    assert found.first is not None
    assert found.first.cause is None


def test_the_first_trial_that_differs_ends_the_comparison() -> None:
    found = compared(X + "ROOT r = f32[64] maximum(x, x)", X + "ROOT r = f32[64] copy(x)", trials=3)
    assert (found.equal, len(found.trials)) == (True, 3)
    found = compared(
        X + "ROOT r = f32[64] subtract(x, x)",
        X + "z = f32[] constant(0); ROOT r = f32[64] broadcast(z), dimensions={}",
        special=("all",),
    )
    assert not found.equal
    assert found.trials[-1].inputs.endswith("infinite")
    assert np.isinf(found.given.arrays[0][0]).any()


def test_operands_are_those_of_the_element() -> None:
    """Of a movement the element that it came from, of a sum all of its terms."""
    moved = "m = f32[8,8] reshape(x); t = f32[8,8] transpose(m), dimensions={1,0}; "
    found = compared(
        X + moved + "ROOT r = f32[8,8] negate(t)", X + moved + "ROOT r = f32[8,8] abs(t)"
    )
    assert found.first is not None
    (pair,) = found.first.operands
    assert pair.index == found.first.index
    assert pair.agree
    fold = "z = f32[] constant(0); m = f32[8,8] reshape(x); "
    found = compared(
        X + fold + "ROOT r = f32[8] reduce(m, z), dimensions={0}, to_apply=sum",
        X + fold + "ROOT r = f32[8] reduce(m, z), dimensions={1}, to_apply=sum",
    )
    assert found.first is not None
    assert found.first.operands[0].want.startswith("8 elements, sum ")
    assert found.first.operands[0].agree


def test_results_in_the_other_order_are_not_the_sign_of_zero() -> None:
    first, second = (
        XY
        + f"a = f32[64] add(x, y); m = f32[64] multiply(x, y); ROOT r = (f32[64], f32[64]) tuple({order})"
        for order in ("a, m", "m, a")
    )
    found = compared(first, second)
    assert found.verdict == "differ"
    assert found.first is None or found.first.cause is None
