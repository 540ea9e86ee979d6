"""Dynamic slices, gather and scatter against loops over their definitions."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.interpret.indexing import dynamic_slice, dynamic_update_slice, gather, scatter
from hloopt.interpret.reducer import Reducer
from hloopt.types import GatherDims, ScatterDims, dtype


def reducer(function, *, name=None, associative=False, kind="s64"):
    """A reducer of one value from a NumPy function."""
    return Reducer(name, (dtype(kind),), lambda a, b: [function(a[0], b[0])], associative)


def test_dynamic_slice_clamps_its_start():
    """A start is moved so that the slice is inside; huge unsigned ones go to the end."""
    x = np.arange(10)
    assert dynamic_slice(x, [np.int32(-5)], (3,)).tolist() == [0, 1, 2]
    assert dynamic_slice(x, [np.int32(9)], (3,)).tolist() == [7, 8, 9]
    assert dynamic_slice(x, [np.uint64(2**64 - 1)], (4,)).tolist() == [6, 7, 8, 9]


def test_dynamic_update_slice_leaves_its_operand_alone():
    """The result is a new array; the start is clamped as that of a slice."""
    x = np.zeros((3, 4), np.int32)
    y = dynamic_update_slice(x, np.ones((2, 2), np.int32), [np.int8(100), np.int8(-1)])
    assert x.sum() == 0
    assert y.tolist() == [[0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]]


def test_a_scalar_stays_an_array():
    """Slices of rank 0 are arrays that other ops can work with, not NumPy scalars."""
    module = hloopt.parse("""HloModule m
ENTRY e { x = f32[] parameter(0) y = f32[3] parameter(1) i = s32[1] parameter(2)
  a = f32[] slice(x), slice={}
  b = f32[] reverse(a), dimensions={}
  c = f32[] dynamic-slice(b), dynamic_slice_sizes={}
  d = f32[] dynamic-update-slice(c, x)
  g = f32[] gather(y, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=0, slice_sizes={1}
  h = f32[] dynamic-update-slice(g, d)
  ROOT t = (f32[], f32[]) tuple(d, h) }""")
    inputs = [np.float32(5).reshape(()), np.arange(3, dtype=np.float32), np.array([2], np.int32)]
    assert [float(value) for value in hloopt.evaluate(module, inputs)] == [5, 5]
    assert isinstance(dynamic_slice(np.zeros(()), [], ()), np.ndarray)


def gather_by_loops(operand, indices, dims, shape):
    """The definition: one result element at a time."""
    result = np.zeros(shape, operand.dtype)
    batch_dims = [d for d in range(len(shape)) if d not in dims.offset_dims]
    dropped = {*dims.collapsed_slice_dims, *dims.operand_batching_dims}
    kept = [d for d in range(operand.ndim) if d not in dropped]
    for at in np.ndindex(*shape):
        batch = [at[d] for d in batch_dims]
        full = operand_index(operand.shape, dims.slice_sizes, indices, batch, dims)
        for place, d in zip(dims.offset_dims, kept, strict=True):
            full[d] += at[place]
        result[at] = operand[tuple(full)]
    return result


def index_vector(indices, batch, dims):
    """The start indices of one batch position, and the batch as coordinates of ``indices``."""
    vector_dim = dims.index_vector_dim
    if vector_dim == indices.ndim:
        return [int(indices[tuple(batch)])], list(batch)
    full = [*batch[:vector_dim], None, *batch[vector_dim:]]
    place = tuple(slice(None) if i is None else i for i in full)
    return [int(i) for i in indices[place]], full


def operand_index(dims_of_operand, sizes, indices, batch, dims):
    vector, full = index_vector(indices, batch, dims)
    start = [0] * len(dims_of_operand)
    for k, d in enumerate(dims.start_index_map):
        start[d] = min(max(vector[k], 0), dims_of_operand[d] - sizes[d])
    for d, axis in zip(dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True):
        start[d] = full[axis]
    return start


@st.composite
def gathers(draw):
    """A random operand, indices and dimension numbers of every form."""
    rank = draw(st.integers(1, 4))
    shape = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    roles = [draw(st.sampled_from(["collapsed", "batching", "offset", "offset"])) for _ in shape]
    sizes = tuple(
        draw(st.integers(1, n)) if role == "offset" else 1
        for n, role in zip(shape, roles, strict=True)
    )
    batching = [d for d, role in enumerate(roles) if role == "batching"]
    mapped = [d for d in range(rank) if d not in batching and draw(st.booleans())]
    mapped = draw(st.permutations(mapped))
    extra = [draw(st.integers(1, 3)) for _ in range(draw(st.integers(0, 2)))]
    batch_sizes = [("batch", d, shape[d]) for d in batching] + [("", -1, n) for n in extra]
    batch_sizes = draw(st.permutations(batch_sizes))
    if len(mapped) == 1 and draw(st.booleans()):
        vector_dim, with_vector = len(batch_sizes), [n for _, _, n in batch_sizes]
    else:
        vector_dim = draw(st.integers(0, len(batch_sizes)))
        with_vector = [n for _, _, n in batch_sizes]
        with_vector.insert(vector_dim, len(mapped))
    where = {
        d: place + (place >= vector_dim and vector_dim < len(with_vector))
        for place, (_, d, _) in enumerate(batch_sizes)
        if d >= 0
    }
    seed = draw(st.integers(0, 2**32 - 1))
    indices = np.random.default_rng(seed).integers(-2, 6, with_vector).astype(np.int32)
    window = [d for d, role in enumerate(roles) if role == "offset"]
    total = len(batch_sizes) + len(window)
    places = tuple(sorted(draw(st.permutations(range(total)))[: len(window)]))
    dims = GatherDims(
        places,
        tuple(d for d, role in enumerate(roles) if role == "collapsed"),
        tuple(mapped),
        tuple(batching),
        tuple(where[d] for d in batching),
        vector_dim,
        sizes,
    )
    batch_rest = iter([n for _, _, n in batch_sizes])
    window_rest = iter([sizes[d] for d in window])
    result = [next(window_rest) if k in places else next(batch_rest) for k in range(total)]
    return shape, indices, dims, tuple(result)


@settings(max_examples=300, deadline=None)
@given(gathers())
def test_gather_is_its_definition(case):
    """Clamped starts, collapsed and batching dimensions, offset dimensions anywhere."""
    shape, indices, dims, result = case
    operand = np.arange(np.prod(shape)).reshape(shape)
    np.testing.assert_array_equal(
        gather(operand, indices, dims), gather_by_loops(operand, indices, dims, result)
    )


def test_gather_clamps_unsigned_indices():
    """Huge unsigned indices are beyond the end, not negative."""
    dims = GatherDims((1,), (), (0,), (), (), 1, (2,))
    indices = np.array([[0], [2**64 - 1], [3]], np.uint64)
    assert gather(np.arange(5), indices, dims).tolist() == [[0, 1], [3, 4], [3, 4]]


def test_gather_from_nothing_is_zero():
    """An operand without elements gives zeros of the result's shape."""
    dims = GatherDims((), (0,), (0,), (), (), 1, (0,))
    empty = np.zeros((0,), np.float32)
    assert gather(empty, np.zeros((3, 1), np.int32), dims).tolist() == [0, 0, 0]


def scatter_by_loops(operand, indices, updates, dims, function):
    """The definition: one window at a time, one element at a time."""
    result = operand.copy()
    axes = [a for a in range(updates.ndim) if a not in dims.update_window_dims]
    inserted = {*dims.inserted_window_dims, *dims.input_batching_dims}
    window = [d for d in range(operand.ndim) if d not in inserted]
    sizes = [1] * operand.ndim
    for d, a in zip(window, dims.update_window_dims, strict=True):
        sizes[d] = updates.shape[a]
    for batch in product(*[range(updates.shape[a]) for a in axes]):
        vector, full = index_vector(indices, batch, dims)
        start = [0] * operand.ndim
        for k, d in enumerate(dims.scatter_dims_to_operand_dims):
            start[d] = vector[k]
        for d, axis in zip(
            dims.input_batching_dims, dims.scatter_indices_batching_dims, strict=True
        ):
            start[d] = full[axis]
        if any(s < 0 or s > n - w for s, n, w in zip(start, operand.shape, sizes, strict=True)):
            continue
        for offset in product(*[range(updates.shape[a]) for a in dims.update_window_dims]):
            source = [0] * updates.ndim
            target = list(start)
            for a, i in zip(axes, batch, strict=True):
                source[a] = i
            for d, a, i in zip(window, dims.update_window_dims, offset, strict=True):
                source[a] = i
                target[d] += i
            at = tuple(target)
            result[at] = function(result[at], updates[tuple(source)])
    return result


COMBINERS = {
    "add": reducer(np.add, name="add", associative=True),
    "assign": reducer(lambda a, b: b, name="second", associative=True),
    "keep": reducer(lambda a, b: a, name="first", associative=True),
    "maximum by tree": reducer(np.maximum, associative=True),
    "not associative": reducer(lambda a, b: 3 * a - b),
}
FUNCTIONS = {
    "add": np.add,
    "assign": lambda a, b: b,
    "keep": lambda a, b: a,
    "maximum by tree": np.maximum,
    "not associative": lambda a, b: 3 * a - b,
}


@settings(max_examples=300, deadline=None)
@given(gathers(), st.sampled_from(sorted(COMBINERS)), st.integers(0, 2**32 - 1))
def test_scatter_is_its_definition(case, name, seed):
    """Windows out of range are left out whole; duplicates accumulate in order."""
    shape, indices, like, result = case
    dims = ScatterDims(
        like.offset_dims,
        like.collapsed_slice_dims,
        like.start_index_map,
        like.operand_batching_dims,
        like.start_indices_batching_dims,
        like.index_vector_dim,
    )
    rng = np.random.default_rng(seed)
    operand = rng.integers(-50, 50, shape)
    updates = rng.integers(-50, 50, result)
    (got,) = scatter([operand], indices, [updates], dims, COMBINERS[name])
    expected = scatter_by_loops(operand, indices, updates, dims, FUNCTIONS[name])
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", sorted(COMBINERS))
def test_scatter_of_many_duplicates_keeps_their_order(name):
    """Hundreds of updates of a few places: ufunc.at, tree and rounds agree with the loop."""
    rng = np.random.default_rng(7)
    operand = rng.integers(-9, 9, (4, 2)).astype(np.int64)
    indices = rng.integers(-1, 5, (300, 1)).astype(np.int32)
    updates = rng.integers(-9, 9, (300, 2)).astype(np.int64)
    dims = ScatterDims((1,), (0,), (0,), (), (), 1)
    with np.errstate(over="ignore"):
        (got,) = scatter([operand], indices, [updates], dims, COMBINERS[name])
        expected = scatter_by_loops(operand, indices, updates, dims, FUNCTIONS[name])
    np.testing.assert_array_equal(got, expected)


def test_scatter_of_several_operands_combines_them_together():
    """A region of two values sees both; here the pair with the larger first value stays."""

    def larger(left, right):
        keep = left[0] >= right[0]
        return [np.where(keep, a, b) for a, b in zip(left, right, strict=True)]

    pair = Reducer(None, (dtype("s64"), dtype("s64")), larger, associative=False)
    dims = ScatterDims((), (0,), (0,), (), (), 1)
    indices = np.array([[1], [1], [0], [1]])
    first, second = scatter(
        [np.zeros(2, np.int64), np.full(2, -1)],
        indices,
        [np.array([3, 7, -2, 7]), np.array([10, 20, 30, 40])],
        dims,
        pair,
    )
    assert first.tolist() == [0, 7]
    assert second.tolist() == [-1, 20]
