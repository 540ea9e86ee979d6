"""Windows against loops over their definition."""

import numpy as np
import pytest

import hloopt
from hloopt.interpret.reducer import Reducer
from hloopt.interpret.window import reduce_window, select_and_scatter
from hloopt.types import Window, WindowDim, dtype


def reducer(function, *, name=None, associative=False, kind="s64"):
    """A reducer of one value from a NumPy function."""
    return Reducer(name, (dtype(kind),), lambda a, b: [function(a[0], b[0])], associative)


def test_positions_over_an_empty_operand_count_padding_only():
    """A base of 0 elements has dilated size 0, not a negative one."""
    assert WindowDim(2, 1, 1, 2, base_dilation=3).positions(0) == 2
    assert WindowDim(5).positions(3) == 0


def test_cumulative_sum_of_floats_is_accurate():
    """Sums are made in double: 1e5 times 0.1 in f32 has no error beyond the last rounding."""
    n = 100_000
    x = np.full(n, 0.1, np.float32)
    window = Window((WindowDim(n, 1, n - 1, 0),))
    (got,) = reduce_window([x], [np.float32(0)], window, reducer(np.add, name="add", kind="f32"))
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, np.cumsum(x.astype(np.float64)), rtol=1e-12)


@pytest.mark.parametrize(("name", "kept"), [("first", 0), ("second", 4)])
def test_select_and_scatter_gives_the_source_second(name, kept):
    """The scatter region's first parameter is what is there, the second the source value."""
    window = Window((WindowDim(2, 1, 0, 0),))
    got = select_and_scatter(
        np.array([1, 9, 1]),
        np.array([3, 4]),
        np.array(0),
        window,
        np.greater_equal,
        reducer(None, name=name, associative=True),
    )
    assert got.tolist() == [0, kept, 0]


REGIONS = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ge { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=GE }
"""


@pytest.mark.parametrize("window", ["", "window={}, "])
def test_a_window_left_out_is_one_of_single_elements(window):
    """In all three ops that slide one."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    text = (
        f"{REGIONS}ENTRY e {{ x = f32[2,3] parameter(0) z = f32[] constant(10)\n"
        f"r = f32[2,3] reduce-window(x, z), {window}to_apply=sum\n"
        f"s = f32[2,3] select-and-scatter(x, x, z), {window}select=ge, scatter=sum\n"
        "i = f32[1,2,3,1] reshape(x) k = f32[1,1,1,1] constant({{{{3}}}})\n"
        f"c = f32[1,2,3,1] convolution(i, k), {window}dim_labels=b01f_01io->b01f\n"
        "ROOT t = (f32[2,3], f32[2,3], f32[1,2,3,1]) tuple(r, s, c) }\n"
    )
    module = hloopt.parse(text)
    hloopt.verify(module)
    for outputs in (hloopt.evaluate(module, [x]), hloopt.compile(module).run([x])):
        assert np.array_equal(outputs[0], x + 10)
        assert np.array_equal(outputs[1], x + 10)
        assert np.array_equal(outputs[2].reshape(2, 3), 3 * x)
