"""Conditions that ask all elements: which loops let each work item stop by itself, and why others do not."""

from __future__ import annotations

import pytest

from hloopt.analysis.parallel_loop import ParallelLoop
from tests.analysis.parallel_loop.loop_module import loop_module
from tests.analysis.parallel_loop.unit_proof import EVERY_AXIS, early, found_in

ANY = """  limit = f32[64] broadcast(nought), dimensions={}
  more = pred[64] compare(x1, limit), direction=GT
  ROOT r = pred[] reduce(more, no), dimensions={0}, to_apply=any"""

MORE = """  limit = f32[64] broadcast(nought), dimensions={}
  more = pred[64] compare(x1, limit), direction=GT
  less = f32[64] subtract(x1, x2)
"""


def stopping(
    body: str,
    *following: str,
    condition: str = ANY,
    results: tuple[int, ...] = (),
    element: str = "f32",
) -> ParallelLoop:
    """Two arrays of 64 elements, of which the condition asks the first."""
    state = [f"{element}[64]"] * 2
    return found_in(loop_module(state, body, following, condition=condition, results=results))


def test_a_unit_that_is_done_and_keeps_its_state_stops() -> None:
    """``select(more, new, old)`` for all that changes: as ``jax.vmap`` of a loop makes it."""
    found = stopping(MORE + "  y = f32[64] select(more, less, x1)", "y", "x2")
    iterations = found.iterations
    assert (found.sizes, iterations.kind, iterations.most) == ((64,), "element", None)
    assert iterations.own is not None
    assert (iterations.own.name, [one.name for one in iterations.reduces]) == ("more", ["r"])


def test_the_mask_may_be_the_opposite() -> None:
    """``select(done, old, new)`` says the same, where done is not ``more``."""
    body = MORE + "  done = pred[64] not(more)\n  y = f32[64] select(done, x1, less)"
    assert stopping(body, "y", "x2").iterations.kind == "element"


def test_the_opposite_of_a_comparison_of_floats_is_no_mask() -> None:
    """``x <= 0`` is not ``not (x > 0)``: a NaN is neither."""
    body = (
        MORE
        + "  done = pred[64] compare(x1, limit), direction=LE\n  y = f32[64] select(done, x1, less)"
    )
    found = stopping(body, "y", "x2")
    assert (found.sizes, found.iterations.kind) == ((), "gathered")
    why = "select y still changes element 1 of the state of work items that are done"
    assert found.iterations.words == why
    assert found.mixing[0].words == f"reduce r mixes the 64 elements of dimension 0 of more; {why}"


WHOLE = """  limit = s32[64] broadcast(one), dimensions={}
  more = pred[64] compare(x1, limit), direction=NE
  ROOT r = pred[] reduce(more, no), dimensions={0}, to_apply=any"""


def test_what_is_a_number_when_done_is_known() -> None:
    """Collatz: at 1 the value stays 1, and steps are counted no more."""
    body = """  limit = s32[64] broadcast(one), dimensions={}
  at = pred[64] compare(x1, limit), direction=EQ
  three = s32[] constant(3)
  threes = s32[64] broadcast(three), dimensions={}
  up = s32[64] multiply(x1, threes)
  y = s32[64] select(at, limit, up)
  more = pred[64] compare(limit, x1), direction=NE
  step = s32[64] convert(more)
  z = s32[64] add(x2, step)"""
    assert stopping(body, "y", "z", condition=WHOLE, element="s32").iterations.kind == "element"


def test_adding_a_mask_to_floats_may_change_them() -> None:
    """-0.0 + 0.0 is 0.0: not the same bits; -0.0 - 0.0 is."""
    body = (
        MORE
        + """  step = f32[64] convert(more)
  y = f32[64] select(more, less, x1)
  z = f32[64] add(x2, step)"""
    )
    assert stopping(body, "y", "z").iterations.kind == "gathered"
    assert stopping(body.replace("add(x2", "subtract(x2"), "y", "z").iterations.kind == "element"


def test_bounds_of_integers_follow_from_comparisons() -> None:
    """Done is ``x <= 0``; then ``x < 1`` as well, and ``x >= 1`` not."""
    condition = """  limit = s32[64] broadcast(zero), dimensions={}
  more = pred[64] compare(x1, limit), direction=GT
  ROOT r = pred[] reduce(more, no), dimensions={0}, to_apply=any"""
    body = """  limit = s32[64] broadcast(one), dimensions={}
  less = s32[64] subtract(x1, limit)
  on = pred[64] compare(x1, limit), direction=GE
  y = s32[64] select(on, less, x1)
  off = pred[64] compare(x1, limit), direction=LT
  z = s32[64] select(off, x2, x1)"""
    assert stopping(body, "y", "z", condition=condition, element="s32").iterations.kind == "element"


CAPPED = (
    ANY.replace("ROOT r =", "ask =")
    + """
  most = s32[] constant(50)
  early = pred[] compare(i, most), direction=LT
  ROOT r = pred[] and(early, ask)"""
)


def test_a_counter_that_nobody_reads_may_go_on() -> None:
    """The cap is the same for every work item, which counts by itself."""
    body = MORE + "  y = f32[64] select(more, less, x1)"
    found = stopping(body, "y", "x2", condition=CAPPED)
    assert (found.iterations.kind, found.iterations.most, found.iterations.own) == (
        "element",
        50,
        None,
    )
    assert [one.name for one in found.iterations.reduces] == ["ask"]


def test_a_counter_that_is_a_result_tells_the_difference() -> None:
    """It counts the trips of the work item that runs longest."""
    body = MORE + "  y = f32[64] select(more, less, x1)"
    found = stopping(body, "y", "x2", condition=CAPPED, results=(0, 1))
    assert (found.sizes, found.iterations.kind) == ((), "gathered")
    assert (
        found.iterations.words
        == "add k still changes element 0 of the state of work items that are done"
    )


def test_what_a_done_unit_depends_on_must_stay_itself() -> None:
    """Where the mask depends on a counter, a work item may go on again."""
    condition = """  now = f32[] convert(i)
  nows = f32[64] broadcast(now), dimensions={}
  more = pred[64] compare(x1, nows), direction=GT
  ROOT r = pred[] reduce(more, no), dimensions={0}, to_apply=any"""
    body = """  now = f32[] convert(i)
  nows = f32[64] broadcast(now), dimensions={}
  more = pred[64] compare(x1, nows), direction=GT
  less = f32[64] subtract(x1, x2)
  y = f32[64] select(more, less, x1)"""
    assert stopping(body, "y", "x2", condition=condition).iterations.kind == "gathered"


REFUSED = {
    "while all go on": (
        ANY.replace("no)", "yes)").replace("=any", "=every"),
        "it continues only while all work items do",
    ),
    "the greatest float": (
        """  top = f32[] reduce(x1, nought), dimensions={0}, to_apply=most
  ROOT r = pred[] compare(top, nought), direction=GT""",
        "one work item's NaN of f32 would decide for all",
    ),
    "two answers compared": (
        ANY.replace("ROOT r =", "ask =") + """
  other = pred[64] compare(x2, limit), direction=GT
  asked = pred[] reduce(other, no), dimensions={0}, to_apply=any
  ROOT r = pred[] compare(ask, asked), direction=GT""",
        "compare r compares values of work items",
    ),
    "an exclusive or": (
        ANY.replace("ROOT r =", "ask =") + "\n  ROOT r = pred[] xor(ask, yes)",
        "xor r combines values of work items in an unsupported way",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_other_questions_are_everybodys(name: str) -> None:
    """The condition would be another one for a work item alone; the reason says in what way."""
    condition, why = REFUSED[name]
    found = stopping(MORE + "  y = f32[64] select(more, less, x1)", "y", "x2", condition=condition)
    assert (found.sizes, found.iterations.kind, found.iterations.words) == ((), "gathered", why)


def test_all_done_and_how_many_are_left_are_the_same_question() -> None:
    """``not all(done)`` and ``sum(more) > 0`` let work items stop; each runs as long alone."""
    for condition in (
        """  limit = s32[64] broadcast(zero), dimensions={}
  done = pred[64] compare(x1, limit), direction=LE
  all = pred[] reduce(done, yes), dimensions={0}, to_apply=every
  ROOT r = pred[] not(all)""",
        """  limit = s32[64] broadcast(zero), dimensions={}
  more = pred[64] compare(x1, limit), direction=GT
  ones = s32[64] convert(more)
  left = s32[] reduce(ones, zero), dimensions={0}, to_apply=count
  ROOT r = pred[] compare(left, zero), direction=NE""",
        """  least = s32[] constant(-2147483648)
  top = s32[] reduce(x1, least), dimensions={0}, to_apply=most_s
  ROOT r = pred[] compare(top, zero), direction=GT""",
    ):
        body = """  ones = s32[64] broadcast(one), dimensions={}
  limit = s32[64] broadcast(zero), dimensions={}
  more = pred[64] compare(x1, limit), direction=GT
  less = s32[64] subtract(x1, ones)
  y = s32[64] select(more, less, x1)
  more_of = s32[64] add(x2, x1)
  z = s32[64] select(more, more_of, x2)"""
        text = loop_module(["s32[64]"] * 2, body, ["y", "z"], condition=condition)
        found = found_in(text, EVERY_AXIS)
        assert (found.iterations.kind, len(found.iterations.reduces)) == ("element", 1)
        assert early(text, lambda count: count // 2 + 1 if count > 2 else 0) == []


def test_a_unit_with_several_elements_asks_all_of_them() -> None:
    """Rows are work items where columns are mixed; a row goes on while one of its elements does."""
    condition = """  limit = f32[64,3] broadcast(nought), dimensions={}
  more = pred[64,3] compare(x1, limit), direction=GT
  ROOT r = pred[] reduce(more, no), dimensions={0,1}, to_apply=any"""
    body = """  limit = f32[64,3] broadcast(nought), dimensions={}
  more = pred[64,3] compare(x1, limit), direction=GT
  row = pred[64] reduce(more, no), dimensions={1}, to_apply=any
  rows = pred[64,3] broadcast(row), dimensions={0}
  back = f32[64,3] reverse(x1), dimensions={1}
  less = f32[64,3] subtract(back, x2)
  y = f32[64,3] select(rows, less, x1)"""
    text = loop_module(["f32[64,3]"] * 2, body, ["y", "x2"], condition=condition)
    found = found_in(text)
    assert (found.sizes, found.iterations.kind, found.iterations.own) == ((64,), "element", None)


def test_a_loop_inside_whose_units_stop_by_themselves_leaves_the_axis() -> None:
    """``jax.vmap`` of a loop inside a scan: each work item of the scan runs its own."""
    shape = "(f32[64], f32[64])"
    called = f"""inner_condition {{
  s = {shape} parameter(0)
  x1 = f32[64] get-tuple-element(s), index=0
  no = pred[] constant(false)
  nought = f32[] constant(0)
{ANY}
}}
inner_body {{
  s = {shape} parameter(0)
  x1 = f32[64] get-tuple-element(s), index=0
  x2 = f32[64] get-tuple-element(s), index=1
  nought = f32[] constant(0)
{MORE}
  y = f32[64] select(more, less, x1)
  ROOT r = {shape} tuple(y, x2)
}}"""
    body = f"""  both = {shape} tuple(x1, x2)
  inner = {shape} while(both), condition=inner_condition, body=inner_body
  y = f32[64] get-tuple-element(inner), index=0
  z = f32[64] add(y, x2)"""
    text = loop_module(["f32[64]"] * 2, body, ["z", "x2"], called=called)
    found = found_in(text)
    assert (found.sizes, found.iterations.kind) == ((64,), "known")
    ((inner, parts),) = found.nested.items()
    assert (inner.name, parts.sizes, parts.iterations.kind) == ("inner", (64,), "element")
    everybody = found_in(text.replace("select(more, less, x1)", "subtract(x1, x2)"))
    assert everybody.sizes == ()
    assert everybody.mixing[0].words.startswith(
        "reduce r mixes the 64 elements of dimension 0 of more"
    )
