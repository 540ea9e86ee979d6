"""Trip counts: closed forms, invariant bounds, annotations, evaluation, and what has no count."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloopt
from hloopt.analysis.trip_count import count_trips, trip_count
from hloopt.ir import Instruction
from hloopt.types import dtype


def _while(module: hloopt.Module) -> Instruction:
    return next(entry for entry in module.entry if entry.opcode == "while")


def _loop(
    *,
    kind: str = "s32",
    start: str = "0",
    bound: str = "10",
    test: str = "compare(i, n), direction=LT",
    step: str = "add(i, k)",
    amount: str = "1",
    config: str = "",
) -> int | None:
    text = f"""HloModule m
cond {{
  s = ({kind}[], f32[4]) parameter(0)
  i = {kind}[] get-tuple-element(s), index=0
  n = {kind}[] constant({bound})
  ROOT c = pred[] {test}
}}
body {{
  s = ({kind}[], f32[4]) parameter(0)
  i = {kind}[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  k = {kind}[] constant({amount})
  j = {kind}[] {step}
  y = f32[4] add(x, x)
  ROOT r = ({kind}[], f32[4]) tuple(j, y)
}}
ENTRY e {{
  x = f32[4] parameter(0)
  z = {kind}[] constant({start})
  t = ({kind}[], f32[4]) tuple(z, x)
  ROOT w = ({kind}[], f32[4]) while(t), condition=cond, body=body{config}
}}
"""
    return trip_count(_while(hloopt.parse(text)))


@pytest.mark.parametrize(
    ("start", "bound", "test", "step", "amount", "expected"),
    [
        ("0", "10", "compare(i, n), direction=LT", "add(i, k)", "1", 10),
        ("0", "10", "compare(i, n), direction=LT", "add(k, i)", "3", 4),
        ("0", "10", "compare(i, n), direction=LE", "add(i, k)", "1", 11),
        ("0", "9", "compare(i, n), direction=LE", "add(i, k)", "3", 4),
        ("0", "10", "compare(n, i), direction=GT", "add(i, k)", "1", 10),
        ("0", "10", "compare(n, i), direction=GE", "add(i, k)", "1", 11),
        ("10", "0", "compare(i, n), direction=GT", "add(i, k)", "-1", 10),
        ("10", "0", "compare(i, n), direction=GE", "subtract(i, k)", "3", 4),
        ("10", "0", "compare(n, i), direction=LT", "subtract(i, k)", "1", 10),
        ("0", "12", "compare(i, n), direction=NE", "add(i, k)", "4", 3),
        ("12", "0", "compare(n, i), direction=NE", "subtract(i, k)", "4", 3),
        ("10", "10", "compare(i, n), direction=LT", "add(i, k)", "1", 0),
        ("5", "5", "compare(i, n), direction=NE", "add(i, k)", "1", 0),
        ("7", "3", "compare(i, n), direction=LE", "add(i, k)", "1", 0),
    ],
)
def test_closed_forms(
    start: str, bound: str, test: str, step: str, amount: str, expected: int
) -> None:
    """Every direction, both operand orders, steps of both signs, and loops that never start."""
    found = _loop(start=start, bound=bound, test=test, step=step, amount=amount)
    assert found == expected


@pytest.mark.parametrize(
    ("start", "bound", "test", "step", "amount"),
    [
        ("0", "100000", "compare(i, n), direction=LT", "subtract(i, k)", "1"),
        ("0", "1000000", "compare(i, n), direction=NE", "add(i, k)", "3"),
        ("0", "100000", "compare(i, n), direction=LT", "add(i, k)", "0"),
        ("0", "100000", "compare(i, n), direction=LT", "subtract(k, i)", "1"),
        ("0", "2147483647", "compare(i, n), direction=LE", "add(i, k)", "1"),
        ("1", "0", "compare(i, i), direction=EQ", "add(i, k)", "1"),
    ],
)
def test_loops_without_a_count(start: str, bound: str, test: str, step: str, amount: str) -> None:
    """Wrong way, missed bound, no step, wrap-around: nothing is claimed."""
    assert _loop(start=start, bound=bound, test=test, step=step, amount=amount) is None


def test_wrap_around_is_no_closed_form_but_may_be_evaluated() -> None:
    """``i <= 125`` in s8 with step 3 reaches 126 and ends; with step 5 from 121 it wraps below."""
    assert _loop(kind="s8", start="120", bound="125", test="compare(i, n), direction=LE",
                 amount="3") == 2  # fmt: skip
    assert _loop(kind="s8", start="0", bound="127", test="compare(i, n), direction=LE") is None


def test_unsigned_subtraction_by_a_wrapped_constant() -> None:
    """Adding 255 to u8 wraps: small loops are counted by running them."""
    found = _loop(kind="u8", start="5", bound="0", test="compare(i, n), direction=GT", amount="255")
    assert found == 5


def test_small_loops_are_run() -> None:
    """``i *= 2`` has no closed form here; 10 trips are few enough to run."""
    assert _loop(start="1", bound="1000", step="multiply(i, k)", amount="2") == 10
    assert _loop(start="1", bound="1000000000", step="add(i, i)") == 30
    assert _loop(start="1", bound="1000", step="multiply(i, k)", amount="1") is None


def test_annotation_wins() -> None:
    """XLA's own count in the backend_config is believed."""
    config = ', backend_config={"known_trip_count":{"n":"42"}}'
    assert _loop(step="multiply(i, k)", config=config) == 42


INVARIANT = """HloModule m
cond {{
  s = (s32[], s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  ROOT c = pred[] compare(i, n), direction=LT
}}
body {{
  s = (s32[], s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  k = s32[] get-tuple-element(s), index=2
  ic = s32[] copy(i)
  j = s32[] add(ic, k)
  ROOT r = (s32[], s32[], s32[]) tuple(j, {passed}, k)
}}
ENTRY e {{
  p = s32[] parameter(0)
  z = s32[] constant(0)
  n = s32[] constant(12)
  k = s32[] constant(5)
  t = (s32[], s32[], s32[]) tuple(z, {bound}, k)
  ROOT w = (s32[], s32[], s32[]) while(t), condition=cond, body=body
}}
"""


def test_invariant_state_is_as_good_as_a_constant() -> None:
    """Bound and step handed on unchanged are read from the initial state."""
    assert trip_count(_while(hloopt.parse(INVARIANT.format(passed="n", bound="n")))) == 3


@pytest.mark.parametrize(("passed", "bound"), [("j", "n"), ("n", "p")])
def test_a_bound_that_changes_or_is_an_input_gives_nothing(passed: str, bound: str) -> None:
    """The body writes the bound, or the caller chooses it."""
    assert trip_count(_while(hloopt.parse(INVARIANT.format(passed=passed, bound=bound)))) is None


def test_scalar_state() -> None:
    """A loop whose state is the induction variable itself."""
    text = """HloModule m
cond { i = u32[] parameter(0) n = u32[] constant(7) ROOT c = pred[] compare(i, n), direction=LT }
body { i = u32[] parameter(0) k = u32[] constant(2) ROOT j = u32[] add(i, k) }
ENTRY e { z = u32[] constant(1) ROOT w = u32[] while(z), condition=cond, body=body }
"""
    assert trip_count(_while(hloopt.parse(text))) == 3


def test_a_condition_that_is_false_or_true_whatever_the_state() -> None:
    """Never entered is 0; endless has no count."""
    text = """HloModule m
cond {{ i = f32[] parameter(0) ROOT c = pred[] constant({}) }}
body {{ i = f32[] parameter(0) ROOT j = f32[] add(i, i) }}
ENTRY e {{ z = f32[] parameter(0) ROOT w = f32[] while(z), condition=cond, body=body }}
"""
    assert trip_count(_while(hloopt.parse(text.format("false")))) == 0
    assert trip_count(_while(hloopt.parse(text.format("true")))) is None


def test_a_float_condition_has_no_count() -> None:
    """Only integers are counted."""
    text = """HloModule m
cond { i = f32[] parameter(0) n = f32[] constant(7) ROOT c = pred[] compare(i, n), direction=LT }
body { i = f32[] parameter(0) k = f32[] constant(2) ROOT j = f32[] add(i, k) }
ENTRY e { z = f32[] constant(1) ROOT w = f32[] while(z), condition=cond, body=body }
"""
    assert trip_count(_while(hloopt.parse(text))) is None


_BYTE = st.integers(-128, 127)


@given(
    _BYTE, _BYTE, st.integers(-9, 9).filter(bool), st.sampled_from(["LT", "LE", "GT", "GE", "NE"])
)
def test_the_closed_form_is_what_running_gives(
    start: int, bound: int, step: int, direction: str
) -> None:
    """Counting by running an s8 loop that does not wrap gives the same number."""
    compare = {
        "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge,
        "NE": operator.ne,
    }[direction]  # fmt: skip
    value, trips, wrapped = start, 0, False
    while compare(value, bound) and not wrapped:
        value += step
        trips += 1
        wrapped = not -128 <= value <= 127
    expected = None if wrapped else trips
    assert count_trips(start, bound, step, direction, dtype("s8")) == expected
