"""Dynamic slices, gather and scatter against loops over their definitions."""

import numpy as np

import hloopt
from hloopt.interpret.indexing import dynamic_slice, dynamic_update_slice, gather, scatter
from hloopt.interpret.reducer import Reducer
from hloopt.types import GatherDims, ScatterDims, dtype


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


def test_gather_from_nothing_is_zero():
    """An operand without elements gives zeros of the result's shape."""
    dims = GatherDims((), (0,), (0,), (), (), 1, (0,))
    empty = np.zeros((0,), np.float32)
    assert gather(empty, np.zeros((3, 1), np.int32), dims).tolist() == [0, 0, 0]


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
