"""Custom calls that mark a place, choose the largest elements, or are somebody else's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.errors import UnsupportedError
from hloopt.interpret import plugins
from tests.helpers.rarely import examples
from tests.helpers.support import invoke
from tests.semantics.elements import ELEMENTS, drawn_dims, entry, seeds, shape_of, values
from tests.semantics.statement import check, evaluate

OPCODES = ("custom-call",)

MARKERS = (
    "LayoutConstraint",
    "MoveToDevice",
    "MoveToHost",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "ShardBarrierFrom",
    "ShardBarrierTo",
    "Sharding",
    "__xla_internal_call_marker_after",
    "__xla_internal_call_marker_before",
    "annotate_device_placement",
    "xla.sdy.FuncResultSharding",
    "xla.sdy.GlobalToLocalShape",
    "xla.sdy.LocalToGlobalShape",
    "xla.sdy.PropagationBarrier",
)


@pytest.mark.parametrize("target", MARKERS)
@given(
    parts=st.lists(
        st.tuples(st.sampled_from(ELEMENTS), drawn_dims(max_rank=2)), min_size=1, max_size=3
    ),
    chooser=seeds,
)
@settings(max_examples=6)
def test_markers_give_what_they_are_given(target, parts, chooser):
    """One array stays an array, several become the tuple of them."""
    arrays = [values(*part, chooser) for part in parts]
    shapes = [shape_of(*part) for part in parts]
    result = shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"
    operands = ", ".join(f"p{number}" for number in range(len(parts)))
    text = f'{result} custom-call({operands}), custom_call_target="{target}"'
    check(entry(text, shapes), arrays, arrays)


@pytest.mark.parametrize("target", MARKERS)
def test_markers_that_change_a_shape_are_refused(target):
    """They would cut an array for several devices."""
    text = f'f32[2] custom-call(p0), custom_call_target="{target}"'
    module = hloopt.parse(entry(text, ["f32[4]"]))
    with pytest.raises(UnsupportedError) as error:
        hloopt.evaluate(module, [np.zeros(4, np.float32)])
    assert error.value.message.startswith(f"r: {target} of (f32[4]) to f32[2]")
    assert (error.value.line, error.value.column) == (5, 8)


def test_pinned_buffers_hold_their_value():
    """Pin makes a buffer of an array, Unpin an array of a buffer."""
    text = """HloModule m
ENTRY e {
  x = s32[2] parameter(0)
  b = b(s32[2]) custom-call(x), custom_call_target="Pin", output_to_operand_aliasing={{}: (0, {})}
  ROOT r = s32[2] custom-call(b), custom_call_target="Unpin", output_to_operand_aliasing={{}: (0, {})}
}"""
    x = np.array([5, -7], np.int32)
    check(text, [x], x)


def test_a_sharding_group_says_something_and_gives_nothing():
    """Its result is the empty tuple; it has to stay, as it has a side effect."""
    text = """HloModule m
ENTRY e {
  x = f32[2] parameter(0)
  g = () custom-call(x), custom_call_target="xla.sdy.ShardingGroup", custom_call_has_side_effect=true
  ROOT r = f32[2] negate(x)
}"""
    check(text, [np.array([1, 2], np.float32)], np.array([-1, -2], np.float32))


@pytest.mark.parametrize("target", ["TopK", "__gpu$TopK"])
@given(
    rows=st.lists(st.integers(0, 3), max_size=2),
    count=st.integers(0, 8),
    chooser=seeds,
    data=st.data(),
)
@settings(max_examples=examples(20))
def test_topk_gives_the_largest_and_their_places(target, rows, count, chooser, data):
    """In total order, a positive NaN first, ties at the lower index first; k is the result's last dimension."""
    k = data.draw(st.integers(0, count))
    palette = [1.0, 1.0, -2.0, 0.0, -0.0, math.inf, -math.inf, math.nan, 3.5]
    x = np.empty((*rows, count), np.float32)
    want, places = np.empty((*rows, k), np.float32), np.empty((*rows, k), np.int32)
    for row in np.ndindex(*rows):
        numbers = [chooser.choice(palette) for _ in range(count)]

        def key(i, numbers=numbers):
            number = numbers[i]
            if math.isnan(number):
                return (2, 0.0, 0.0)
            return (1, number, math.copysign(1, number))

        order = sorted(range(count), key=key)
        order = sorted(order, key=lambda i: tuple(-part for part in key(i)))[:k]
        x[row] = numbers
        want[row], places[row] = [numbers[i] for i in order], order
    shape = f"({shape_of('f32', want.shape)}, {shape_of('s32', places.shape)})"
    text = entry(
        f'{shape} custom-call(p0), custom_call_target="{target}"', [shape_of("f32", x.shape)]
    )
    check(text, [x], [want, places])


UNKNOWN = 'f32[2] custom-call(p0), custom_call_target="my_kernel"'


def test_an_unknown_target_stops_before_anything_runs(tmp_path):
    """With its name and place, and exit code 4; nothing is invented."""
    path = tmp_path / "m.hlo"
    path.write_text(entry(UNKNOWN, ["f32[2]"]))
    result = invoke("run", str(path))
    assert result.exit_code == 4
    assert "m.hlo:5:8: error: r: custom call to my_kernel has no evaluation" in result.stderr
    assert result.stdout == ""


def test_a_plug_in_evaluates_its_target(monkeypatch):
    """Its function is given the operands, in the interpreter and in the executor."""

    def triple(call, x):
        assert call.target == "my_kernel"
        return 3 * x

    monkeypatch.setitem(plugins._GIVEN, "my_kernel", triple)
    x = np.array([1, 2], np.float32)
    check(entry(UNKNOWN, ["f32[2]"]), [x], np.array([3, 6], np.float32))


def test_a_plug_in_comes_before_what_is_built_in(monkeypatch):
    """Also for a target that hloopt knows."""
    monkeypatch.setitem(plugins._GIVEN, "Sharding", lambda call, x: -x)
    text = entry('s32[1] custom-call(p0), custom_call_target="Sharding"', ["s32[1]"])
    for results in evaluate(text, [np.array([4], np.int32)]):
        assert results[0].tolist() == [-4]
