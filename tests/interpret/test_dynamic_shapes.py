"""Bounded dynamic dimensions: elementwise ops, sizes, control flow, movement.

The values expected are those XLA's CPU compiler gives, where it gives any.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.semantics.bounded_modules import LINE, X, Y, both, fails, run

# ---- elementwise ops -------------------------------------------------------------------------------


def test_equal_sizes_meet_element_by_element():
    """Two dynamic operands of one size give a result of that size."""
    assert run("ROOT r = s32[<=6] add(dx, dy)", 3, 3) == [[11, 22, 33]]


def test_a_static_operand_is_cut_to_the_size_of_the_dynamic_one():
    """On either side, down to no elements and to one: a static operand does not broadcast."""
    assert run("ROOT r = s32[<=6] add(dx, y)", 2) == [[11, 22]]
    assert run("ROOT r = s32[<=6] subtract(y, dx)", 1) == [[9]]
    assert run("ROOT r = s32[<=6] add(dx, y)", 0) == [[]]


def test_a_size_of_one_broadcasts_against_another_dynamic_size():
    """XLA's implicit broadcast, between two operands that are both dynamic; against none it is none."""
    assert run("ROOT r = s32[<=6] add(dx, dy)", 4, 1) == [[11, 12, 13, 14]]
    assert run("ROOT r = s32[<=6] subtract(dx, dy)", 1, 3) == [[-9, -19, -29]]
    assert run("ROOT r = s32[<=6] add(dx, dy)", 0, 1) == [[]]
    assert run("ROOT r = s32[<=6] map(dx, dy), dimensions={0}, to_apply=plus", 3, 1) == [
        [11, 12, 13]
    ]


def test_other_sizes_that_differ_stop_with_both():
    """The error has the place, the instruction, and both operands' names and sizes."""
    assert fails("ROOT r = s32[<=6] add(dx, dy)", 4, 3) == (
        f"m.hlo:{LINE}:6: r: dimension 0 of operand 0 (dx) has size 4, dimension 0 of operand 1 (dy) "
        "has size 3; they must be equal"
    )


def test_select_does_not_broadcast():
    """Three operands have one size; a static predicate or a static choice is cut."""
    body = "p = pred[6] compare(x, y), direction=GT\nROOT r = s32[<=6] select(p, dx, dy)"
    assert run(body, 2, 2) == [[10, 20]]
    assert "operand 1 (dx) has size 4, dimension 0 of operand 2 (dy) has size 1" in fails(
        body, 4, 1
    )
    body = "p = pred[<=6] compare(dx, y), direction=LT\nROOT r = s32[<=6] select(p, x, y)"
    assert run(body, 4) == [[1, 2, 3, 4]]


def test_clamp_has_the_sizes_of_its_middle_operand():
    """Bounds are cut to it, and must not be shorter."""
    assert run("ROOT r = s32[<=6] clamp(dy, dx, y)", 2, 4) == [[10, 20]]
    message = fails("ROOT r = s32[6] clamp(dx, y, y)", 4)
    assert "operand 1 (y) has size 6, dimension 0 of operand 0 (dx) has size 4" in message


# ---- sizes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [-1, 7])
def test_a_size_is_within_the_bound(size):
    """0 and the bound are sizes; anything else stops."""
    assert fails("ROOT r = s32[<=6] negate(dx)", size) == (
        f"m.hlo:{LINE - 2}:3: dx: size {size} of dimension 0 is not in [0, 6]"
    )


def test_a_larger_size_shows_what_a_smaller_one_hid():
    """As in XLA, which only notes sizes; also through other dimensions, tuples and updates in place."""
    grow = "ROOT r = s32[<=6] set-dimension-size(dx, m), dimensions={0}"
    assert run(grow, 2, 5) == [[1, 2, 3, 4, 5]]
    through = (
        "t = (s32[<=6]) tuple(dx)\n o = (s32[<=6]) opt-barrier(t)\n"
        "g = s32[<=6] get-tuple-element(o), index=0\n"
        "ROOT r = s32[<=6] set-dimension-size(g, m), dimensions={0}"
    )
    assert run(through, 2, 5) == [[1, 2, 3, 4, 5]]
    update = (
        "u = s32[2] slice(y), slice={[0:2]}\n k = s32[] constant(3)\n"
        "q = s32[<=6] dynamic-update-slice(dx, u, k)\n"
        "ROOT r = s32[<=6] set-dimension-size(q, m), dimensions={0}"
    )
    assert run(update, 4, 5) == [[1, 2, 3, 10, 20]]
    assert run(update, 1, 5) == [[1, 2, 3, 10, 20]]


def test_a_larger_size_may_not_show_what_nothing_has_computed():
    """What lies beyond the sizes of other ops' results is left to chance in XLA."""
    body = "a = s32[<=6] negate(dx)\nROOT r = s32[<=6] set-dimension-size(a, m), dimensions={0}"
    assert run(body, 3, 3) == [[-1, -2, -3]]
    assert fails(body, 2, 5) == (
        f"m.hlo:{LINE + 1}:6: r: size 5 of dimension 0 brings elements to light that nothing has "
        "computed: 2 are known"
    )


def test_set_to_the_bound_makes_a_dimension_static_again():
    """The static result has all elements, or the evaluation stops."""
    body = "six = s32[] constant(6)\nROOT r = s32[6] set-dimension-size(dx, six), dimensions={0}"
    assert run(body, 2) == [[1, 2, 3, 4, 5, 0]]


def test_a_stack_grows_in_a_loop():
    """A buffer of no elements gets one more each trip, set and then written."""
    text = """
cond { s = (s32[<=4], s32[]) parameter(0)
  b = s32[<=4] get-tuple-element(s), index=0
  n = s32[] get-dimension-size(b), dimensions={0}
  last = s32[] get-tuple-element(s), index=1
  ROOT r = pred[] compare(n, last), direction=LT }
body { s = (s32[<=4], s32[]) parameter(0)
  b = s32[<=4] get-tuple-element(s), index=0
  last = s32[] get-tuple-element(s), index=1
  n = s32[] get-dimension-size(b), dimensions={0}
  one = s32[] constant(1)
  more = s32[] add(n, one)
  grown = s32[<=4] set-dimension-size(b, more), dimensions={0}
  square = s32[] multiply(more, more)
  new = s32[1] reshape(square)
  next = s32[<=4] dynamic-update-slice(grown, new, n)
  ROOT r = (s32[<=4], s32[]) tuple(next, last) }
ENTRY e {
  x = s32[4] parameter(0)
  last = s32[] parameter(1)
  zero = s32[] constant(0)
  empty = s32[<=4] set-dimension-size(x, zero), dimensions={0}
  t = (s32[<=4], s32[]) tuple(empty, last)
  w = (s32[<=4], s32[]) while(t), condition=cond, body=body
  ROOT r = s32[<=4] get-tuple-element(w), index=0
}"""
    for iterations in range(5):
        want = [[(k + 1) ** 2 for k in range(iterations)]]
        assert both(text, np.full(4, 9, np.int32), np.int32(iterations)) == want


def test_a_conditional_has_the_size_of_the_branch_taken():
    """One branch is static, the other one makes the array smaller."""
    text = """
less { x = s32[6] parameter(0)
  n = s32[] constant(2)
  ROOT r = s32[<=6] set-dimension-size(x, n), dimensions={0} }
all { ROOT x = s32[6] parameter(0) }
ENTRY e { p = pred[] parameter(0)
  x = s32[6] parameter(1)
  c = s32[<=6] conditional(p, x, x), true_computation=less, false_computation=all
  n = s32[] get-dimension-size(c), dimensions={0}
  ROOT t = (s32[<=6], s32[]) tuple(c, n) }"""
    assert both(text, np.True_, X) == [[1, 2], 2]
    assert both(text, np.False_, X) == [X.tolist(), 6]


def test_calls_and_fusions_pass_sizes_in_and_out():
    """A computation is evaluated with the sizes it is given, each time anew."""
    text = """
twice { x = s32[<=6] parameter(0)
  ROOT r = s32[<=6] add(x, x) }
fused { x = s32[<=6] parameter(0)
  a = s32[<=6] negate(x)
  ROOT r = s32[<=6] reverse(a), dimensions={0} }
ENTRY e {
  x = s32[<=6] parameter(0)
  y = s32[<=6] parameter(1)
  a = s32[<=6] call(x), to_apply=twice
  b = s32[<=6] call(y), to_apply=twice
  c = s32[<=6] fusion(y), kind=kLoop, calls=fused
  ROOT t = (s32[<=6], s32[<=6], s32[<=6]) tuple(a, b, c)
}"""
    assert both(text, X[:2], Y[:3]) == [[2, 4], [20, 40, 60], [-30, -20, -10]]


# ---- movement ----------------------------------------------------------------------------------------


def test_slices_take_what_is_there_of_them():
    """The part within the size; one element is static, and has to be there or be known."""
    assert run("ROOT r = s32[<=2] slice(dx), slice={[1:5:2]}", 4) == [[2, 4]]
    assert run("ROOT r = s32[<=3] slice(dx), slice={[3:6]}", 2) == [[]]
    assert run("ROOT r = s32[1] slice(dx), slice={[2:3]}", 1) == [[3]]
    one = "a = s32[<=6] negate(dx)\nROOT r = s32[1] slice(a), slice={[2:3]}"
    assert run(one, 3) == [[-3]]
    assert fails(one, 2) == (
        f"m.hlo:{LINE + 1}:6: r: element 2 of dimension 0 of operand 0 (a) is read, whose size is 2"
    )


def test_dynamic_slices_are_clamped_to_the_bound():
    """Not to the size: XLA knows the bound alone.  What is read has to be there."""
    body = (
        "a = s32[<=6] negate(dx)\n i = s32[] multiply(m, m)\n"
        "ROOT r = s32[2] dynamic-slice(a, i), dynamic_slice_sizes={2}"
    )
    assert run(body, 4, 1) == [[-2, -3]]
    assert run(body, 6, 3) == [[-5, 0]]
    assert "element 5 of dimension 0 of operand 0 (a) is read, whose size is 5" in fails(body, 5, 3)
    whole = "ROOT r = s32[<=6] dynamic-slice(dx, m), dynamic_slice_sizes={6}"
    assert run(whole, 4, 2) == [[1, 2, 3, 4]]


def test_updates_bring_their_size_or_leave_it():
    """An update of the operand's bound has the result's size; a smaller one is a part of it."""
    whole = "ROOT r = s32[<=6] dynamic-update-slice({}, dy, n)"
    assert run(whole.format("dx"), 4, 3) == [[10, 20, 30]]
    assert run(whole.format("x"), 4, 3) == [[10, 20, 30]]
    part = (
        "y2 = s32[2] slice(y), slice={[0:2]}\n"
        "d2 = s32[<=2] set-dimension-size(y2, m), dimensions={0}\n"
        "ROOT r = s32[6] dynamic-update-slice(x, d2, n)"
    )
    assert run(part, 3, 1) == [[1, 2, 3, 10, 5, 0]]
    assert run(part, 6, 1) == [[1, 2, 3, 4, 10, 0]]


def test_broadcast_keeps_the_operands_sizes():
    """A dimension has the operand's size or, where it is new, the bound."""
    assert run("ROOT r = s32[<=6,2] broadcast(dx), dimensions={0}", 2) == [[[1, 1], [2, 2]]]
    assert run("ROOT r = s32[<=6] broadcast(n), dimensions={}", 2) == [[2] * 6]


@pytest.mark.parametrize(
    ("source", "target", "size", "want"),
    [
        ("<=6", "<=3,2", 4, [[1, 2], [3, 4]]),
        ("<=6", "2,<=3", 4, [[1, 2], [3, 4]]),
        ("<=6", "<=6,1", 2, [[1], [2]]),
        ("<=6", "1,<=3,2", 2, [[[1, 2]]]),
        ("2,<=3", "<=6", 2, [1, 2, 4, 5]),
        ("2,<=3", "2,<=3,1", 2, [[[1], [2]], [[4], [5]]]),
        ("<=3,2", "<=6", 2, [1, 2, 3, 4]),
        ("<=3,2", "2,<=3", 2, [[1, 2], [3, 4]]),
        ("<=3,2", "<=3,2", 2, [[1, 2], [3, 4]]),
    ],
)
def test_reshape_puts_elements_within_the_sizes_in_order(source, target, size, want):
    """The dynamic dimension of the result takes up what there is; nothing beyond the sizes shows."""
    bounds = source.replace("<=", "")
    dim = source.split(",").index(next(part for part in source.split(",") if "<" in part))
    text = f"""ENTRY e {{ x = s32[{bounds}] parameter(0)
      n = s32[] parameter(1)
      d = s32[{source}] set-dimension-size(x, n), dimensions={{{dim}}}
      ROOT r = s32[{target}] reshape(d) }}"""
    shape = [int(part) for part in bounds.split(",")]
    x = np.arange(1, 7, dtype=np.int32).reshape(shape)
    assert both(text, x, np.int32(size)) == [want]


def test_reshape_of_sizes_that_are_one_or_none():
    """Dimensions of bound 1 may be dynamic, and there may be no elements at all."""
    text = """ENTRY e {{ x = s32{} parameter(0)
      r = s32{} reshape(x)
      ROOT n = s32[] get-dimension-size(r), dimensions={{{}}} }}"""
    assert both(text.format("[<=1,4,1]", "[1,4,<=1]", 2), np.zeros((0, 4, 1), np.int32)) == [0]
    assert both(text.format("[<=1,4,1]", "[1,4,<=1]", 2), np.zeros((1, 4, 1), np.int32)) == [1]
    assert both(text.format("[<=4,0]", "[<=4,0]", 0), np.zeros((3, 0), np.int32)) == [3]
    assert both(text.format("[<=4,<=2]", "[<=4,1,<=2]", 2), np.zeros((3, 0), np.int32)) == [0]


def test_reshape_with_an_inferred_dimension():
    """``inferred_dimension`` says which of several dynamic dimensions adapts."""
    text = """ENTRY e { x = s32[<=3,<=4] parameter(0)
      ROOT r = s32[<=4,<=3] reshape(x), inferred_dimension=1 }"""
    assert both(text, np.arange(8, dtype=np.int32).reshape(2, 4)) == [
        [[0, 1], [2, 3], [4, 5], [6, 7]]
    ]


def test_a_reshape_that_does_not_come_out_even_stops():
    """Elements left over are nobody's."""
    assert fails("ROOT r = s32[2,<=3] reshape(dx)", 5) == (
        f"m.hlo:{LINE}:6: r: sizes [5] cannot be reshaped to s32[2,<=3]"
    )
    assert "sizes [5] cannot be reshaped" in fails("ROOT r = s32[3,2] reshape(dx)", 5)


def test_dynamic_reshape_needs_as_many_elements():
    """The sizes given hold what there is, no more and no less."""
    assert run("ROOT r = s32[<=2,<=3] dynamic-reshape(dx, m, m)", 4, 2) == [[[1, 2], [3, 4]]]
    assert fails("ROOT r = s32[<=6] dynamic-reshape(dx, m)", 4, 5) == (
        f"m.hlo:{LINE}:6: r: 4 elements cannot be reshaped to sizes [5]"
    )
    assert "size 9 of dimension 0 is not in [0, 6]" in fails(
        "k = s32[] constant(9)\nROOT r = s32[<=6] dynamic-reshape(dx, k)", 4
    )


def test_pad_goes_by_the_size():
    """Edges are added to what is there, and cut from it; a size below 0 stops."""
    assert run("ROOT r = s32[<=9] pad(dx, m), padding=-1_-1_1", 3, 4) == [[4, 2, 4]]
    assert fails("ROOT r = s32[<=2] pad(dx, m), padding=-2_-2", 3) == (
        f"m.hlo:{LINE}:6: r: padding makes dimension 0 of size 3 negative"
    )


def test_concatenate_leaves_no_gap():
    """Pieces follow each other by their sizes; other dimensions have one size."""
    assert run("ROOT r = s32[<=12] concatenate(dx, dy), dimensions={0}", 2, 1) == [[1, 2, 10]]
    assert run("ROOT r = s32[<=12] concatenate(dx, y), dimensions={0}", 1) == [[1, *Y.tolist()]]
    rows = (
        "a = s32[<=6,1] reshape(dx)\n b = s32[<=6,1] reshape(dy)\n"
        "ROOT r = s32[<=6,2] concatenate(a, b), dimensions={1}"
    )
    assert run(rows, 2, 2) == [[[1, 10], [2, 20]]]
    assert "operand 0 (a) has size 2, dimension 0 of operand 1 (b) has size 1" in fails(rows, 2, 1)


def test_reverse_and_transpose_move_what_is_there():
    """Nothing from beyond the size comes to the front."""
    assert run("ROOT r = s32[<=6] reverse(dx), dimensions={0}", 3) == [[3, 2, 1]]
    text = "b = s32[<=6,2] broadcast(dx), dimensions={0}\n"
    assert run(f"{text}ROOT r = s32[2,<=6] transpose(b), dimensions={{1,0}}", 2) == [
        [[1, 2], [1, 2]]
    ]
