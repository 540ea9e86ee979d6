"""Which dimensions become axes, what each work item owns, and what is collected."""

from __future__ import annotations

import pytest

from hloopt.analysis.parallel_loop import ParallelLoop, Sharing
from tests.analysis.parallel_loop.loop_module import loop_module
from tests.analysis.parallel_loop.unit_proof import found_in


def roles(found: ParallelLoop) -> list[str]:
    """What becomes of each element of the state but the counter."""
    return [one.role for one in found.carried[1:]]


TURN = "  y = f32[2048] sine(x1)"

SUM = """  total = f32[] reduce(x1, nought), dimensions={0}, to_apply=add
  row = f32[1] reshape(total)
  out = f32[5] dynamic-update-slice(x2, row, i)
  y = f32[2048] sine(x1)"""


def test_elements_that_are_turned_one_by_one_are_units() -> None:
    """The dimension is an axis, the counter is everybody's, and no more is said."""
    found = found_in(
        loop_module(["f32[2048]", "f32[2048]"], "  y = f32[2048] add(x1, x2)", ["y", "x2"])
    )
    assert found.sizes == (2048,)
    assert [(one.role, one.axes) for one in found.carried] == [
        ("uniform", ()),
        ("owned", (0,)),
        ("invariant", (None,)),
    ]
    assert (found.work_items, found.mixing, found.iterations.kind, found.iterations.count) == (
        2048,
        (),
        "known",
        5,
    )
    assert (found.counters[0].first, found.counters[0].step) == (0, 1)


def test_two_dimensions_are_two_axes_in_the_order_of_the_state() -> None:
    """Each has its number wherever it lies."""
    body = "  t = f32[48,64] transpose(x2), dimensions={1,0}\n  y = f32[48,64] add(x1, t)"
    body += "\n  z = f32[64,48] transpose(y), dimensions={1,0}"
    found = found_in(loop_module(["f32[48,64]", "f32[64,48]"], body, ["y", "z"]))
    assert found.sizes == (48, 64)
    assert [one.axes for one in found.carried[1:]] == [(0, 1), (1, 0)]


@pytest.mark.parametrize("size", [0, 1])
def test_a_dimension_of_one_element_or_none_is_no_axis(size: int) -> None:
    """Every work item has all of it; there is one work item."""
    found = found_in(loop_module([f"f32[{size}]"], f"  y = f32[{size}] sine(x1)", ["y"]))
    assert (found.sizes, found.work_items, roles(found)) == ((), 1, ["uniform"])


def test_a_loop_of_scalars_has_one_unit() -> None:
    """Nothing is mixed, and there is nothing to share."""
    found = found_in(loop_module(["f32[]"], "  y = f32[] sine(x1)", ["y"]))
    assert (found.sizes, roles(found), found.mixing) == ((), ["uniform"], ())


def test_a_key_of_a_generator_is_free_and_its_bits_may_be_turned_round() -> None:
    """Any work item may compute any random number: reversing and cutting them mixes nothing."""
    body = """  g = (u64[2], u32[4096]) rng-bit-generator(x2), algorithm=rng_philox
  next = u64[2] get-tuple-element(g), index=0
  bits = u32[4096] get-tuple-element(g), index=1
  back = u32[4096] reverse(bits), dimensions={0}
  part = u32[2048] slice(back), slice={[100:2148]}
  numbers = f32[2048] convert(part)
  y = f32[2048] add(x1, numbers)"""
    found = found_in(
        loop_module(["f32[2048]", "u64[2]"], body, ["y", "next"]), Sharing(repeated=1 << 20)
    )
    assert (found.sizes, roles(found)) == ((2048,), ["owned", "uniform"])


def test_a_large_free_value_that_all_units_would_compute_whole_is_weighed() -> None:
    """A sum of all random numbers is a sum of them for each work item: too much, said by its instruction."""
    body = """  places = f32[65536] iota(), iota_dimension=0
  now = f32[] convert(i)
  nows = f32[65536] broadcast(now), dimensions={}
  waves = f32[65536] multiply(places, nows)
  turned = f32[65536] sine(waves)
  total = f32[] reduce(turned, nought), dimensions={0}, to_apply=add
  totals = f32[2048] broadcast(total), dimensions={}
  y = f32[2048] add(x1, totals)"""
    found = found_in(loop_module(["f32[2048]"], body, ["y"]))
    assert found.sizes == ()
    assert (
        "each of 2048 work items along dimension 0 of element 1 of the state would repeat"
        in found.mixing[0].words
    )


def test_rows_are_units_where_columns_are_mixed() -> None:
    """A small dot for each row runs in the work item that owns the row."""
    body = "  y = f32[2048,4] dot(x1, x2), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    found = found_in(loop_module(["f32[2048,4]", "f32[4,4]"], body, ["y", "x2"]))
    assert (found.sizes, found.carried[1].axes) == ((2048,), (0, None))
    assert [one.words for one in found.mixing] == [
        "dot y mixes the 4 elements of dimension 1 of x1"
    ]


def test_columns_of_what_is_only_written_make_no_axis() -> None:
    """Where everything else is computed by all, a column of the output is no parallelism."""
    body = """  y = f32[8,8] dot(x1, x1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  part = f32[1,8] slice(y), slice={[0:1], [0:8]}
  flat = f32[8] reshape(part)
  doubled = f32[8] add(flat, x3)
  row = f32[1,8] reshape(doubled)
  out = f32[5,8] dynamic-update-slice(x2, row, i, zero)"""
    found = found_in(loop_module(["f32[8,8]", "f32[5,8]", "f32[8]"], body, ["y", "out", "x3"]))
    assert (found.sizes, roles(found)) == ((), ["uniform", "streamed", "invariant"])


def test_a_loop_that_only_writes_has_the_columns_as_units() -> None:
    """Where each column of the output is computed by itself, columns are work items."""
    body = """  now = f32[] convert(i)
  nows = f32[2048] broadcast(now), dimensions={}
  y = f32[2048] multiply(x2, nows)
  z = f32[2048] cosine(y)
  row = f32[1,2048] reshape(z)
  out = f32[5,2048] dynamic-update-slice(x1, row, i, zero)"""
    found = found_in(loop_module(["f32[5,2048]", "f32[2048]"], body, ["out", "x2"]))
    assert (found.sizes, found.carried[1].axes, roles(found)) == (
        (2048,),
        (None, 0),
        ["streamed", "invariant"],
    )


def test_units_do_not_repeat_a_large_dot() -> None:
    """An accumulator along an axis is left alone where every work item would compute what it takes."""
    body = """  y = f32[64,64] dot(x2, x3), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  part = f32[1,64] slice(y), slice={[0:1], [0:64]}
  flat = f32[64] reshape(part)
  rows = f32[32,64] broadcast(flat), dimensions={1}
  sums = f32[32,64] add(x1, rows)"""
    found = found_in(
        loop_module(["f32[32,64]", "f32[64,64]", "f32[64,64]"], body, ["sums", "y", "x3"])
    )
    assert found.sizes == ()
    assert any("would repeat" in one.words and one.words.endswith("dot y") for one in found.mixing)


def test_a_sum_over_units_that_only_goes_out_is_collected() -> None:
    """The axis stays, and what follows from the sum is named, the update with it."""
    found = found_in(loop_module(["f32[2048]", "f32[5]"], SUM, ["y", "out"]))
    assert (found.sizes, roles(found)) == ((2048,), ["owned", "streamed"])
    assert [one.name for one in found.collected] == ["total"]
    assert {one.name for one in found.after} == {"row", "out"}


def test_a_block_does_not_collect() -> None:
    """Asked for a block, the sum keeps the dimension in it."""
    found = found_in(loop_module(["f32[2048]", "f32[5]"], SUM, ["y", "out"]), collect=False)
    assert (found.sizes, found.collected) == ((), ())
    assert found.mixing[0].words == "reduce total mixes the 2048 elements of dimension 0 of x1"


REFUSED = {
    "a later step needs it": (
        SUM.replace("sine(x1)", "sine(x1)\n  all = f32[2048] broadcast(total), dimensions={}")
        + "\n  z = f32[2048] add(y, all)",
        ["z", "out"],
        "broadcast all needs the result before the loop ends",
    ),
    "order matters": (
        SUM.replace("to_apply=add", "to_apply=minus"),
        ["y", "out"],
        "its reducer minus may depend on the order of elements",
    ),
    "what follows reads the state": (
        SUM.replace("reshape(total)", "reshape(plus)").replace(
            "  row", "  at = f32[1] slice(x3), slice={[0:1]}\n  one_of = f32[] reshape(at)\n"
            "  plus = f32[] add(total, one_of)\n  row",
        ),
        ["y", "out"],
        "add plus needs one_of, which is not known after the loop",
    ),
    "parts overlap": (
        SUM.replace("row, i)", "row, zero)"),
        ["y", "out"],
        "the parts that dynamic-update-slice out writes may overlap",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_sum_that_is_not_collected_says_why(name: str) -> None:
    """The dimension is mixed, by the sum, and the reason is behind it."""
    body, following, why = REFUSED[name]
    follow = "  more = f32[32] sine(x3)\n"
    text = loop_module(["f32[2048]", "f32[5]", "f32[32]"], follow + body, [*following, "more"])
    found = found_in(text)
    assert found.collected == ()
    assert f"reduce total mixes the 2048 elements of dimension 0 of x1; {why}" in [
        one.words for one in found.mixing
    ]


def test_a_sum_over_a_loop_of_unknown_length_is_not_collected() -> None:
    """Nobody knows how many values there will be."""
    condition = """  n = s32[] get-tuple-element(s), index=3
  ROOT r = pred[] compare(i, n), direction=LT"""
    text = loop_module(
        ["f32[2048]", "f32[5]", "s32[]"], SUM, ["y", "out", "x3"], condition=condition
    )
    found = found_in(text)
    assert (found.iterations.kind, found.collected) == ("scalar", ())
    assert found.mixing[0].words.endswith("; how often the loop runs is not known before")


def test_local_dimensions_of_a_collected_reduce_may_be_reduced_or_kept() -> None:
    """Columns of three stay with their work item; sums by column are three values a trip."""
    body = """  back = f32[2048,3] reverse(x1), dimensions={1}
  totals = f32[3] reduce(x1, nought), dimensions={0}, to_apply=add
  row = f32[1,3] reshape(totals)
  out = f32[5,3] dynamic-update-slice(x2, row, i, zero)
  most = f32[] reduce(x1, nought), dimensions={0,1}, to_apply=most
  one_most = f32[1] reshape(most)
  out2 = f32[5] dynamic-update-slice(x3, one_most, i)"""
    found = found_in(
        loop_module(["f32[2048,3]", "f32[5,3]", "f32[5]"], body, ["back", "out", "out2"])
    )
    assert found.sizes == (2048,)
    assert [one.name for one in found.collected] == ["totals", "most"]


def test_a_sum_over_one_of_two_axes_makes_the_other_the_only_one() -> None:
    """What is collected is over all axes: the dimension that is summed stays with its work item."""
    body = """  y = f32[64,32] sine(x1)
  sums = f32[64] reduce(y, nought), dimensions={1}, to_apply=add
  row = f32[1,64] reshape(sums)
  out = f32[5,64] dynamic-update-slice(x2, row, i, zero)"""
    found = found_in(loop_module(["f32[64,32]", "f32[5,64]"], body, ["y", "out"]))
    assert (found.sizes, found.collected) == ((64,), ())
    assert found.mixing[0].words == "reduce sums mixes the 32 elements of dimension 1 of y"


def test_two_units_with_much_of_their_own_may_repeat_something() -> None:
    """A gain of 1.8 is most of the 2 that there are to gain."""
    body = """  y = f32[2,128] dot(x1, x2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[70] dot(x3, x4), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  part = f32[1] slice(z), slice={[0:1]}
  number = f32[] reshape(part)
  numbers = f32[2,128] broadcast(number), dimensions={}
  w = f32[2,128] add(y, numbers)"""
    state = ["f32[2,128]", "f32[128,128]", "f32[70]", "f32[70,70]"]
    found = found_in(loop_module(state, body, ["w", "x2", "z", "x4"]))
    assert (found.sizes, roles(found)) == ((2,), ["owned", "invariant", "uniform", "invariant"])
