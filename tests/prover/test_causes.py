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
less { a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT l = pred[] compare(a, b), direction=LT }
later { a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  l = pred[] compare(a, b), direction=LT
  e = pred[] compare(a, b), direction=EQ
  g = pred[] compare(c, d), direction=GT
  n = pred[] and(e, g)
  ROOT o = pred[] or(l, n) }
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
HALF = X + "h = f32[] constant(0.5); b = f32[64] broadcast(h), dimensions={}; "
FLUSHED = (
    "m = f32[64] multiply(x, b); a = f32[64] abs(m); n = f32[] constant(1.1754944e-38); "
    "l = f32[64] broadcast(n), dimensions={}; z = f32[] constant(0); y = f32[64] broadcast(z), dimensions={}; "
    "s = pred[64] compare(a, l), direction=LT; ROOT r = f32[64] select(s, y, m)"
)
SORTED = (
    X + "i = s32[64] iota(), iota_dimension=0; s = (f32[64], s32[64]) sort(x, i), dimensions={0}, "
    "is_stable=true, to_apply=ORDER; ROOT r = s32[64] get-tuple-element(s), index=1"
)
GATHERED = (
    X
    + "i = s32[8] parameter(1); ROOT g = f32[8] gather(x, i), offset_dims={}, collapsed_slice_dims={0}, "
    "start_index_map={0}, index_vector_dim=1, slice_sizes={1}"
)
FILLED = (
    "; z = s32[] constant(0); zs = s32[8] broadcast(z), dimensions={}; m = s32[] constant(64); "
    "ms = s32[8] broadcast(m), dimensions={}; a = pred[8] compare(i, zs), direction=GE; "
    "b = pred[8] compare(i, ms), direction=LT; c = pred[8] and(a, b); n = f32[] constant(nan); "
    "ns = f32[8] broadcast(n), dimensions={}; ROOT r = f32[8] select(c, g, ns)"
)
N = "n = s32[64] parameter(0); "
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
    ("flushing of subnormals", HALF + "ROOT r = f32[64] multiply(x, b)", HALF + FLUSHED,
     {"bitwise": True, "special": ("subnormal",)}),
    ("NaN in minimum and maximum", XY + "ROOT r = f32[64] maximum(x, y)",
     XY + "c = pred[64] compare(x, y), direction=GT; ROOT r = f32[64] select(c, x, y)", {"special": ("nan",)}),
    ("ties", SORTED.replace("ORDER", "less"), SORTED.replace("ORDER", "later"), {"special": ("tied",)}),
    ("indices out of bounds", GATHERED, GATHERED.replace("ROOT g", "g") + FILLED, {"special": ("stray",)}),
    ("integer overflow", N + "ROOT r = s32[64] multiply(n, n)",
     N + "h = s16[64] convert(n); m = s16[64] multiply(h, h); ROOT r = s32[64] convert(m)", {"special": ("wide",)}),
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


LOG = X + "e = f32[64] exponential(x); ROOT r = f32[64] log(e)"
COPY = X + "ROOT r = f32[64] copy(x)"


def test_special_values_are_tried_unasked() -> None:
    """All but those on which results depend on the order of operations."""
    found = compared(LOG, COPY)
    assert found.verdict == "differ"
    assert found.trials[0].verdict != "differ"
    assert found.trials[-1].inputs.endswith("cancelling")
    assert not compared(LOG, COPY, trials=1).untried
    assert compared(LOG, COPY, trials=1).equal
    found = compared(LOG, LOG)
    assert (found.verdict, found.untried) == (
        "equal",
        ("largest", "opposite", "huge", "tiny", "same"),
    )
    assert len(found.trials) == 9


def test_special_values_for_which_there_is_no_time_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hloopt.prover.compare._LONG", 0.0)
    found = compared(LOG, COPY)
    assert found.equal
    assert len(found.trials) == 1
    assert {"nan", "cancelling", "zero"} <= set(found.untried)


ENDLESS = """HloModule m
on { s = (f32[]) parameter(0)
  v = f32[] get-tuple-element(s), index=0
  z = f32[] constant(0)
  ROOT c = pred[] compare(v, z), direction=NE }
back { s = (f32[]) parameter(0)
  v = f32[] get-tuple-element(s), index=0
  h = f32[] constant(1e-20)
  w = f32[] multiply(v, h)
  ROOT t = (f32[]) tuple(w) }
ENTRY e { x = f32[] parameter(0)
  t = (f32[]) tuple(x)
  l = (f32[]) while(t), condition=on, body=back
  ROOT r = f32[] get-tuple-element(l), index=0 }
"""


def test_special_values_on_which_a_loop_does_not_end_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hloopt.prover.compare._SHORTEST", 0.2)
    monkeypatch.setattr("hloopt.prover.compare._TIMES", 1)
    module = hloopt.parse(ENDLESS)
    found = hloopt.compare(module, module)
    assert found.equal
    assert {"nan", "infinite"} <= set(found.untried)
    assert any("nan left out" in note for note in found.notes)
    assert set(hloopt.compare(module, module, "cpu").untried) >= {"zero", "nan"}


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


XYZ = XY + "z = f32[64] parameter(2); "


@pytest.mark.parametrize("op", ["add", "multiply"])
def test_a_sum_in_another_order_is_shown_where_both_have_all_terms(op: str) -> None:
    """And not where both have a part of it that the other lacks, though these look alike."""
    first = f"{XYZ}s = f32[64] {op}(x, y); t = f32[64] {op}(s, z); ROOT r = f32[64] {op}(t, x)"
    other = f"{XYZ}s = f32[64] {op}(y, z); t = f32[64] {op}(x, x); ROOT r = f32[64] {op}(t, s)"
    found = compared(first, other, bitwise=True).first
    assert found is not None
    assert found.cause is not None
    assert found.before is not None
    assert (found.before.name, found.after.name) == ("r", "r")
    what = "terms" if op == "add" else "factors"
    assert (found.cause.name, found.cause.evidence) == (
        "reassociation",
        f"both have the same 4 {what}",
    )
    wrong = compared(first, other.replace("(y, z)", "(y, x)"), bitwise=True).first
    assert wrong is not None
    assert wrong.cause is None


def test_a_zero_of_the_other_sign_explains_infinities() -> None:
    """1 / (x + 0) is not 1 / x where x is -0."""
    one = "o = f32[] constant(1); u = f32[64] broadcast(o), dimensions={}; "
    zero = "n = f32[] constant(0); z = f32[64] broadcast(n), dimensions={}; s = f32[64] add(x, z); "
    found = compared(
        f"{X}{one}{zero}ROOT r = f32[64] divide(u, s)",
        f"{X}{one}ROOT r = f32[64] divide(u, x)",
        special=("zero",),
    ).first
    assert found is not None
    assert found.cause is not None
    assert found.cause.name == "sign of zero"
    assert found.cause.evidence.startswith(
        "operand 1 is 0 in one module and -0 in the other in all"
    )


def test_flushing_is_found_though_other_roundings_would_hide_it() -> None:
    """And no other order of one result is."""
    found = compared(
        f"{XY}ROOT r = f32[64] multiply(x, y)",
        XY.replace("y = ", "b = ") + FLUSHED,
        special=("subnormal",),
        seed=3,
    )
    assert found.verdict == "differ"
    assert found.first is not None
    assert found.first.cause is not None
    assert found.first.cause.name == "flushing of subnormals"
