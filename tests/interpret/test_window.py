"""Windows against loops over their definition."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.interpret import window as windows
from hloopt.interpret.reducer import Reducer
from hloopt.interpret.window import output_size, reduce_window, select_and_scatter
from hloopt.types import Window, WindowDim, dtype


def reducer(function, *, name=None, associative=False, kind="s64"):
    """A reducer of one value from a NumPy function."""
    return Reducer(name, (dtype(kind),), lambda a, b: [function(a[0], b[0])], associative)


@st.composite
def window_cases(draw):
    """A small shape and a window over it with every field in use."""
    dims, shape = [], []
    for _ in range(draw(st.integers(1, 3))):
        size = draw(st.integers(1, 5))
        dim = WindowDim(
            draw(st.integers(1, 4)),
            draw(st.integers(1, 3)),
            draw(st.integers(-2, 3)),
            draw(st.integers(-2, 3)),
            draw(st.integers(1, 3)),
            draw(st.integers(1, 2)),
        )
        shape.append(size)
        dims.append(dim)
    return tuple(shape), Window(tuple(dims))


def meets(shape, window, output):
    """For an output index the operand indices its window meets, in row-major order."""
    for position in product(*[range(d.size) for d in window.dims]):
        index = []
        for o, w, d, size in zip(output, position, window.dims, shape, strict=True):
            i = o * d.stride + w * d.window_dilation - d.pad_low
            if i % d.base_dilation:
                break
            i //= d.base_dilation
            if not 0 <= i < size:
                break
            index.append(i)
        else:
            yield tuple(index)


def by_loops(x, init, window, function):
    output = tuple(map(output_size, x.shape, window.dims))
    result = np.full(output, init)
    for o in np.ndindex(*output):
        acc = init
        for index in meets(x.shape, window, o):
            acc = function(acc, x[index])
        result[o] = acc
    return result


FUNCTIONS = {
    "add": (np.add, reducer(np.add, name="add", associative=True)),
    "2a-b": (lambda a, b: 2 * a - b, reducer(lambda a, b: 2 * a - b)),
    "first digit kept": (
        lambda a, b: np.where(a < 0, b, a),
        reducer(lambda a, b: np.where(a < 0, b, a), associative=True),
    ),
}


@settings(max_examples=200, deadline=None)
@given(window_cases(), st.sampled_from(sorted(FUNCTIONS)), st.sampled_from([0, 64]))
def test_reduce_window_is_its_definition(case, name, many):
    """Strides, negative padding, both dilations; position by position and by doubling."""
    shape, window = case
    function, combine = FUNCTIONS[name]
    x = np.arange(1, np.prod(shape) + 1).reshape(shape)
    before = windows._MANY_POSITIONS
    windows._MANY_POSITIONS = many
    try:
        (got,) = reduce_window([x], [np.array(-5)], window, combine)
    finally:
        windows._MANY_POSITIONS = before
    np.testing.assert_array_equal(got, by_loops(x, -5, window, function))


def test_output_size_of_an_empty_operand_counts_padding_only():
    """A base of 0 elements has dilated size 0, not a negative one."""
    assert output_size(0, WindowDim(2, 1, 1, 2, base_dilation=3)) == 2
    assert output_size(3, WindowDim(5)) == 0


def test_cumulative_sum_of_floats_is_accurate():
    """Sums are made in double: 1e5 times 0.1 in f32 has no error beyond the last rounding."""
    n = 100_000
    x = np.full(n, 0.1, np.float32)
    window = Window((WindowDim(n, 1, n - 1, 0),))
    (got,) = reduce_window([x], [np.float32(0)], window, reducer(np.add, name="add", kind="f32"))
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, np.cumsum(x.astype(np.float64)), rtol=1e-12)


def select_and_scatter_by_loops(x, source, init, window, select, scatter):
    result = np.full(x.shape, init)
    for o in np.ndindex(*source.shape):
        chosen = None
        for index in meets(x.shape, window, o):
            if chosen is None or not select(x[chosen], x[index]):
                chosen = index
        if chosen is not None:
            result[chosen] = scatter(result[chosen], source[o])
    return result


@settings(max_examples=150, deadline=None)
@given(window_cases(), st.sampled_from(["GE", "GT"]), st.integers(0, 2**32 - 1))
def test_select_and_scatter_is_its_definition(case, direction, seed):
    """Ties stay with the first element for GE and move to the last one for GT."""
    shape, window = case
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 3, shape)
    source = rng.integers(-9, 9, tuple(map(output_size, shape, window.dims)))
    select = {"GE": np.greater_equal, "GT": np.greater}[direction]

    def scatter(current, value):
        return current + 2 * value

    got = select_and_scatter(x, source, np.array(1), window, select, reducer(scatter))
    expected = select_and_scatter_by_loops(x, source, 1, window, select, scatter)
    np.testing.assert_array_equal(got, expected)


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
