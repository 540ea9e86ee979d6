"""Trip counts: closed forms, invariant bounds, annotations, evaluation, and what has no count."""

from __future__ import annotations

import operator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloopt
from hloopt.analysis.loop_conditions import first_within
from hloopt.analysis.loop_values import wrapped
from hloopt.analysis.trip_count import (
    IterationCounts,
    TripBounds,
    counted_iterations,
    iteration_bounds,
    trip_count,
)
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
  ROOT w = ({kind}[], f32[4]) while(t), condition=cond, body=body
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
        ("0", "100000", "compare(i, n), direction=LT", "subtract(i, k)", "1", 2**31 + 1),
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
        ("0", "1000001", "compare(i, n), direction=NE", "add(i, k)", "4"),
        ("0", "100000", "compare(i, n), direction=LT", "add(i, k)", "0"),
        ("0", "100000", "compare(i, n), direction=LT", "subtract(k, i)", "1"),
        ("0", "2147483647", "compare(i, n), direction=LE", "add(i, k)", "1"),
        ("1", "0", "compare(i, i), direction=EQ", "add(i, k)", "1"),
    ],
)
def test_loops_without_a_count(start: str, bound: str, test: str, step: str, amount: str) -> None:
    """A bound that is never met, no step, a variable turned over, and one that goes round for ever."""
    assert _loop(start=start, bound=bound, test=test, step=step, amount=amount) is None


def test_a_count_that_goes_round() -> None:
    """``i <= 125`` in s8 with step 3 reaches 126 and ends; ``i <= 127`` always holds."""
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


def test_an_annotation_is_believed_by_those_who_ask_and_where_nothing_else_is_known() -> None:
    """A text may be wrong about itself: what the loop shows comes first, and is all that counts else."""
    text = STATE.format(condition=_TESTS + "ROOT r = pred[] copy(c)", go="go", more="")
    for counted, shown, believed in (
        (text.replace("copy(c)", "copy(a)"), 10, 10),
        (text, None, 42),
    ):
        annotated = counted.replace(
            "body=body", 'body=body, backend_config={"known_trip_count":{"n":"42"}}'
        )
        assert trip_count(_while(hloopt.parse(annotated))) == shown
        assert trip_count(_while(hloopt.parse(annotated)), believe=True) == believed


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


def test_a_bound_that_changes_is_followed_and_one_that_is_an_input_gives_nothing() -> None:
    """The body writes the bound, or the caller chooses it."""
    assert trip_count(_while(hloopt.parse(INVARIANT.format(passed="j", bound="n")))) == 1
    assert trip_count(_while(hloopt.parse(INVARIANT.format(passed="n", bound="p")))) is None


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


@pytest.mark.parametrize(
    ("step", "bound", "expected"),
    [("2", "7", 3), ("0.5", "7", None), ("1e-40", "1e-39", None), ("16777216", "1e30", None)],
)
def test_floats_are_counted_as_long_as_they_are_whole(
    step: str, bound: str, expected: int | None
) -> None:
    """What may be rounded, or flushed, ends at another time on another device."""
    text = f"""HloModule m
cond {{ i = f32[] parameter(0) n = f32[] constant({bound}) ROOT c = pred[] compare(i, n), direction=LT }}
body {{ i = f32[] parameter(0) k = f32[] constant({step}) ROOT j = f32[] add(i, k) }}
ENTRY e {{ z = f32[] constant(1) ROOT w = f32[] while(z), condition=cond, body=body }}
"""
    assert trip_count(_while(hloopt.parse(text))) == expected


_COMPARE = {
    "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge,
    "NE": operator.ne, "EQ": operator.eq,
}  # fmt: skip
_NARROW = ("s4", "u4", "s8", "u8")


@given(st.data())
def test_where_a_number_that_goes_round_gets_first(data: st.DataObject) -> None:
    """The least t is the one that trying all of them finds, of any modulus."""
    modulus = data.draw(st.integers(1, 300))
    start, step, low, size = (data.draw(st.integers(-400, 400)) for _ in range(4))
    wanted = {(low + more) % modulus for more in range(max(0, size + 1))}
    tried = (t for t in range(modulus) if (start + t * step) % modulus in wanted)
    assert first_within(start, step, modulus, low, low + size) == next(tried, None)


COUNTER = """HloModule m
cond {{
  s = (s32[], {kind}{dims}, s64[]) parameter(0)
  i = {kind}{dims} get-tuple-element(s), index=1
  n = {kind}[] constant({bound})
  ib = {kind}[] reshape(i)
  iw = {seen}[] convert(ib)
  nw = {seen}[] convert(n)
  ROOT c = pred[] compare({sides}), direction={direction}
}}
body {{
  s = (s32[], {kind}{dims}, s64[]) parameter(0)
  i = {kind}{dims} get-tuple-element(s), index=1
  k = {kind}[] constant({step})
  kb = {kind}{dims} broadcast(k), dimensions={{}}
  j = {kind}{dims} {opcode}(i, kb)
  other = s32[] get-tuple-element(s), index=0
  ran = s64[] get-tuple-element(s), index=2
  one = s64[] constant(1)
  more = s64[] add(ran, one)
  ROOT r = (s32[], {kind}{dims}, s64[]) tuple(other, j, more)
}}
ENTRY e {{
  p = s32[] parameter(0)
  z = {kind}[] constant({start})
  zb = {kind}{dims} broadcast(z), dimensions={{}}
  none = s64[] constant(0)
  t = (s32[], {kind}{dims}, s64[]) tuple(p, zb, none)
  w = (s32[], {kind}{dims}, s64[]) while(t), condition=cond, body=body
  ROOT ran = s64[] get-tuple-element(w), index=2
}}
"""


def _runs(start: int, step: int, kind: str, holds: object, bound: int, seen: str) -> int | None:
    """How often a counter of at most 8 bits runs; None for ever."""
    value = start
    for iterations in range(257):
        if not holds(wrapped(value, dtype(seen)), wrapped(bound, dtype(seen))):  # type: ignore[operator]
            return iterations
        value = wrapped(value + step, dtype(kind))
    return None


@given(st.data())
def test_the_count_is_how_often_the_interpreter_runs_the_body(data: st.DataObject) -> None:
    """Types, starts, steps, bounds, directions, sides and conversions of any kind, round and round."""
    kind = data.draw(st.sampled_from(_NARROW))
    seen = data.draw(st.sampled_from([kind, kind, "s8", "u8", "s32", "u16"]))
    number = st.integers(*dtype(kind).limits)
    start, bound, step = data.draw(number), data.draw(number), data.draw(number)
    direction = data.draw(st.sampled_from(list(_COMPARE)))
    turned, opcode = data.draw(st.booleans()), data.draw(st.sampled_from(["add", "subtract"]))
    text = COUNTER.format(
        kind=kind, dims=data.draw(st.sampled_from(["[]", "[1]"])), seen=seen, start=start,
        bound=bound, step=step, direction=direction, opcode=opcode,
        sides="nw, iw" if turned else "iw, nw",
    )  # fmt: skip
    module = hloopt.parse(text)
    compare = _COMPARE[direction]
    holds = (lambda a, b: compare(b, a)) if turned else compare
    expected = _runs(start, step if opcode == "add" else -step, kind, holds, bound, seen)
    assert trip_count(_while(module), limit=0) == expected
    bounds = iteration_bounds(_while(module))
    if expected is None:
        assert bounds.endless
    else:
        assert bounds == TripBounds(expected, expected)
        (ran,) = hloopt.evaluate(module, [np.int32(0)])
        assert int(ran) == expected


@pytest.mark.parametrize(
    ("kind", "start", "bound", "amount", "direction", "expected"),
    [
        ("s64", "-9223372036854775808", "9223372036854775807", "1", "LT", 2**64 - 1),
        ("u64", "0", "18446744073709551615", "2", "LE", None),
        ("u64", "0", "18446744073709551615", "3", "NE", (2**64 - 1) // 3),
        ("s32", "0", "7", "3", "NE", 2863311533),
        ("s32", "2147483647", "0", "1", "GT", 1),
        ("u32", "7", "7", "2", "EQ", 1),
    ],
)
def test_wide_counters_go_round_too(
    kind: str, start: str, bound: str, amount: str, direction: str, expected: int | None
) -> None:
    """Counts that nobody could run come from the closed form; ``u64 <= highest`` never ends."""
    test = f"compare(i, n), direction={direction}"
    assert _loop(kind=kind, start=start, bound=bound, amount=amount, test=test) == expected


STATE = """HloModule m
{more}
cond {{
  s = (s32[], u8[], pred[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  j = u8[] get-tuple-element(s), index=1
  go = pred[] get-tuple-element(s), index=2
  x = f32[] get-tuple-element(s), index=3
  {condition}
}}
body {{
  s = (s32[], u8[], pred[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  j = u8[] get-tuple-element(s), index=1
  go = pred[] get-tuple-element(s), index=2
  x = f32[] get-tuple-element(s), index=3
  one = s32[] constant(1)
  three = u8[] constant(3)
  ten = s32[] constant(10)
  no = pred[] constant(false)
  i1 = s32[] add(i, one)
  j1 = u8[] subtract(j, three)
  y = f32[] multiply(x, x)
  small = pred[] compare(i, ten), direction=LT
  ROOT r = (s32[], u8[], pred[], f32[]) tuple(i1, j1, {go}, y)
}}
ENTRY e {{
  x = f32[] parameter(0)
  n = s32[] parameter(1)
  z = s32[] constant(0)
  j = u8[] constant(200)
  yes = pred[] constant(true)
  t = (s32[], u8[], pred[], f32[]) tuple(z, j, yes, x)
  ROOT w = (s32[], u8[], pred[], f32[]) while(t), condition=cond, body=body
}}
"""
_TESTS = """
  ten = s32[] constant(10)
  hundred = u8[] constant(100)
  two = f32[] constant(2)
  a = pred[] compare(i, ten), direction=LT
  b = pred[] compare(hundred, j), direction=LT
  c = pred[] compare(x, two), direction=LT
"""


@pytest.mark.parametrize(
    ("condition", "least", "most"),
    [
        ("ROOT r = pred[] and(a, b)", 10, 10),
        ("ROOT r = pred[] or(a, b)", 34, 34),
        ("n = pred[] not(a)\n ROOT r = pred[] not(n)", 10, 10),
        ("ROOT r = pred[] and(c, b)", 0, 34),
        ("ROOT r = pred[] or(c, b)", 34, None),
        ("ROOT r = pred[] copy(go)", 11, 11),
        (
            (
                "u = u32[] bitcast-convert(i)\n m = s32[] constant(-7)\n"
                "v = u32[] bitcast-convert(m)\n d = u32[] subtract(u, v)\n"
                "w = u32[] constant(20)\n ROOT r = pred[] compare(d, w), direction=LE"
            ),
            14,
            14,
        ),
        (("t = (pred[]) tuple(a)\n o = (pred[]) opt-barrier(t)\n"
         "ROOT r = pred[] get-tuple-element(o), index=0"), 10, 10),
        (("w = s64[] convert(i)\n m = s64[] constant(4294967297)\n"
         "ROOT r = pred[] compare(w, m), direction=NE"), 0, None),
        (("w = u8[] convert(i)\n m = u8[] constant(7)\n"
         "ROOT r = pred[] compare(w, m), direction=NE"), 7, 7),
        ("w = s32[] convert(j)\n ROOT r = pred[] compare(i, w), direction=LT", 50, 50),
        (("k = s32[] constant(2)\n m = s32[] multiply(k, i)\n d = s32[] add(m, i)\n"
         "w = s32[] constant(50)\n ROOT r = pred[] compare(w, d), direction=GT"), 17, 17),
        (("v = s32[] convert(x)\n u = s32[] constant(40)\n l = s32[] constant(5)\n"
         "m = s32[] clamp(l, v, u)\n ROOT r = pred[] compare(m, i), direction=GT"), 5, 40),
    ],
)  # fmt: skip
def test_conditions_of_several_parts(condition: str, least: int, most: int | None) -> None:
    """and, or, not, a carried answer, conversions, several counters, and bounds between two numbers."""
    text = STATE.format(condition=_TESTS + condition, go="small", more="")
    found = iteration_bounds(_while(hloopt.parse(text)))
    assert (found.least, found.most) == (least, most)
    assert trip_count(_while(hloopt.parse(text))) == (least if least == most else None)


def test_a_condition_that_the_body_makes_false() -> None:
    """An element nobody knows before, which the body sets to false: at most once."""
    text = STATE.format(condition="ROOT r = pred[] copy(go)", go="no", more="")
    text = text.replace("yes = pred[] constant(true)", "yes = pred[] compare(x, x), direction=EQ")
    assert iteration_bounds(_while(hloopt.parse(text))) == TripBounds(0, 1)


def test_conditions_inside_calls_and_fusions() -> None:
    """A count is seen through the body of a fusion in the condition and of a call in the body."""
    fused = """
fused { a = s32[] parameter(1)\n b = s32[] parameter(0)\n k = s32[] constant(2)
  m = s32[] multiply(a, k)\n ROOT c = pred[] compare(m, b), direction=LT }
"""
    condition = "n = s32[] constant(31)\n ROOT r = pred[] fusion(n, i), kind=kLoop, calls=fused"
    assert (
        trip_count(_while(hloopt.parse(STATE.format(condition=condition, go="go", more=fused))))
        == 16
    )


def test_an_endless_loop_has_no_count() -> None:
    """Neither one that goes round without meeting its bound, nor one that nothing ever changes."""
    text = STATE.format(condition="ROOT r = pred[] copy(go)", go="go", more="")
    found = iteration_bounds(_while(hloopt.parse(text)))
    assert found.endless
    assert found.exact is None
    assert found.most is None
    assert _loop(bound="1000000", test="compare(i, n), direction=NE", amount="2") == 500000
    assert _loop(bound="1000001", test="compare(i, n), direction=NE", amount="2") is None


LAID_SIDE_BY_SIDE = """HloModule m
first {{
  n = s32[] parameter(0)
  many = s32[7] parameter(1)
  one = s32[1] reshape(n)
  joined = s32[8] concatenate({order}), dimensions={{0}}
  mine = s32[{size}] slice(joined), slice={{[{mine}]}}
  rest = s32[7] slice(joined), slice={{[{rest}]}}
  ROOT both = (s32[{size}], s32[7]) tuple(mine, rest)
}}
cond {{
  s = (s32[], s32[7]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(10)
  ROOT c = pred[] compare(i, n), direction=LT
}}
body {{
  s = (s32[], s32[7]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = s32[7] get-tuple-element(s), index=1
  k = s32[] constant(1)
  j = s32[] add(i, k)
  ROOT r = (s32[], s32[7]) tuple(j, x)
}}
ENTRY e {{
  x = s32[7] parameter(0)
  z = s32[] constant(4)
  f = (s32[{size}], s32[7]) fusion(z, x), kind=kInput, calls=first
  m = s32[{size}] get-tuple-element(f), index=0
  a = s32[1] slice(m), slice={{[0:1]}}
  b = s32[] reshape(a)
  y = s32[7] get-tuple-element(f), index=1
  t = (s32[], s32[7]) tuple(b, y)
  ROOT w = (s32[], s32[7]) while(t), condition=cond, body=body
}}
"""


@pytest.mark.parametrize(
    ("order", "size", "mine", "rest", "expected"),
    [
        ("one, many", 1, "0:1", "1:8", 6),
        ("many, one", 1, "7:8", "0:7", 6),
        ("many, one", 1, "6:7", "0:7", None),
        ("one, many", 2, "0:2", "1:8", None),
    ],
)
def test_results_laid_side_by_side_in_a_fusion_are_told_apart(
    order: str, size: int, mine: str, rest: str, expected: int | None
) -> None:
    """A slice within one operand of a concatenate is that operand; one of another, or of two, is not."""
    text = LAID_SIDE_BY_SIDE.format(order=order, size=size, mine=mine, rest=rest)
    assert trip_count(_while(hloopt.parse(text))) == expected


def test_horizontal_fusion_of_the_first_state_hides_no_trip_count() -> None:
    """What XLA's pipeline of 2022 makes of a rollout runs as often as before."""
    text = (Path(__file__).parents[2] / "samples" / "cartpole_rollout.hlo").read_text()
    module = hloopt.parse(text)
    counts = [
        {
            trip_count(one)
            for home in made.computations.values()
            for one in home
            if one.opcode == "while"
        }
        for made in (module, hloopt.optimize(module, "xla-gpu-2022"))
    ]
    assert None not in counts[1]
    assert max(counts[0] - {None}) == max(counts[1])


@pytest.mark.parametrize(
    ("condition", "counted", "words"),
    [
        ("less", IterationCounts(30, "exact"), "30 iterations"),
        ("both", IterationCounts(30, "at most"), "at most 30 iterations"),
        ("far", IterationCounts(1, "at least"), "at least 1 iteration"),
    ],
)
def test_what_costs_count(condition: str, counted: IterationCounts, words: str) -> None:
    """The count; else the bound; else what surely runs, once at least."""
    text = """HloModule m
condition {
  s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[] get-tuple-element(s), index=1
  n = s32[] constant(30)
  e = f32[] constant(0.5)
  less = pred[] compare(i, n), direction=LT
  far = pred[] compare(x, e), direction=GT
  both = pred[] and(less, far)
}
body {
  s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[] cosine(x)
  ROOT t = (s32[], f32[]) tuple(next, y)
}
ENTRY e {
  x = f32[] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[]) tuple(zero, x)
  ROOT w = (s32[], f32[]) while(start), condition=condition, body=body
}
"""
    found = counted_iterations(
        _while(hloopt.parse(text.replace(f"  {condition} =", f"  ROOT {condition} =")))
    )
    assert found == counted
    assert found.words == words


def test_a_bound_that_only_the_type_sets_is_none() -> None:
    """Nobody means to run four billion trips."""
    assert counted_iterations(_while(hloopt.parse(STATE_BOUND))) == IterationCounts(1, "at least")


STATE_BOUND = """HloModule m
condition {
  i = s32[] parameter(0)
  n = s32[] constant(10)
  ROOT less = pred[] compare(i, n), direction=LT
}
body {
  i = s32[] parameter(0)
  one = s32[] constant(1)
  ROOT next = s32[] add(i, one)
}
ENTRY e {
  i = s32[] parameter(0)
  ROOT w = s32[] while(i), condition=condition, body=body
}
"""
