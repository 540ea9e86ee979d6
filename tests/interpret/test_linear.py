"""dot and convolution against loops over their definitions."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hloopt.interpret.convolution import convolution
from hloopt.interpret.linear import dot, matmul
from hloopt.interpret.ragged import ragged_dot, rescaled
from hloopt.interpret.window import output_size
from hloopt.types import ConvDims, DotDims, Window, WindowDim


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_dot_is_its_definition(data):
    """Batch and contracting dimensions in any number and order."""
    kinds = data.draw(st.lists(st.sampled_from("bkm"), max_size=4))
    sizes = {(kind, n): data.draw(st.integers(1, 3)) for n, kind in enumerate(kinds)}
    shared = [key for key in sizes if key[0] != "m"]
    left = data.draw(st.permutations(list(sizes)))
    extra = [("n", i) for i in range(data.draw(st.integers(0, 2)))]
    right = data.draw(st.permutations(shared + extra))
    sizes |= {key: data.draw(st.integers(1, 3)) for key in extra}
    batch = data.draw(st.permutations([key for key in shared if key[0] == "b"]))
    contract = data.draw(st.permutations([key for key in shared if key[0] == "k"]))
    dims = DotDims(
        tuple(left.index(key) for key in contract),
        tuple(right.index(key) for key in contract),
        tuple(left.index(key) for key in batch),
        tuple(right.index(key) for key in batch),
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    lhs = rng.integers(-5, 5, [sizes[key] for key in left])
    rhs = rng.integers(-5, 5, [sizes[key] for key in right])
    keys = list(sizes)
    output = batch + [k for k in left if k[0] == "m"] + [k for k in right if k[0] == "n"]
    expected = np.einsum(
        lhs,
        [keys.index(k) for k in left],
        rhs,
        [keys.index(k) for k in right],
        [keys.index(k) for k in output],
    )
    np.testing.assert_array_equal(dot(lhs, rhs, dims), expected)


def test_matmul_of_large_integers_wraps():
    """Where a double cannot hold the sums the product is made in int64 and wraps."""
    big = np.array([[2**40, 2**40]])
    assert matmul(big, big.T).tolist() == [[(2 * 2**80) % 2**64]]
    assert matmul(np.array([[2**31, 3]]), np.array([[2**31], [5]])).tolist() == [[2**62 + 15]]


@st.composite
def convolutions(draw):
    """Shapes, window, labels and groups of a small convolution."""
    rank = draw(st.integers(0, 2))
    groups = draw(st.integers(1, 3))
    feature = draw(st.booleans())
    channels = draw(st.integers(1, 2))
    features = groups * draw(st.integers(1, 2))
    batch = draw(st.integers(1, 2)) * (1 if feature else groups)
    dims = tuple(
        WindowDim(
            draw(st.integers(1, 3)),
            draw(st.integers(1, 2)),
            draw(st.integers(-1, 2)),
            draw(st.integers(-1, 2)),
            draw(st.integers(1, 2)),
            draw(st.integers(1, 2)),
            draw(st.booleans()),
        )
        for _ in range(rank)
    )
    spatial = [draw(st.integers(1, 4)) for _ in range(rank)]
    perms = [draw(st.permutations(range(rank + 2))) for _ in range(3)]
    labels = ConvDims(
        *(value for perm in perms for value in (perm[0], perm[1], tuple(perm[2:]))), text=""
    )
    lhs = [batch, channels * (groups if feature else 1), *spatial]
    rhs = [channels, features, *(d.size for d in dims)]
    return lhs, rhs, Window(dims), labels, groups if feature else 1, 1 if feature else groups


def laid(array, order):
    """``array`` with its dimension k at place ``order[k]``."""
    return array.transpose(np.argsort(order))


@settings(max_examples=200, deadline=None)
@given(convolutions(), st.integers(0, 2**32 - 1))
def test_convolution_is_its_definition(case, seed):
    """Every label order, padding, dilation, reversal, feature and batch groups."""
    lhs_shape, rhs_shape, window, labels, feature_groups, batch_groups = case
    rng = np.random.default_rng(seed)
    lhs, rhs = rng.integers(-5, 5, lhs_shape), rng.integers(-5, 5, rhs_shape)
    out_spatial = tuple(map(output_size, lhs_shape[2:], window.dims))
    batch, features = lhs_shape[0] // batch_groups, rhs_shape[1]
    expected = np.zeros((batch, features, *out_spatial), np.int64)
    for n, oz, *o in np.ndindex(*expected.shape):
        g = oz // (features // feature_groups)
        bg = oz // (features // batch_groups)
        for k in product(*[range(d.size) for d in window.dims]):
            index, weight = [], []
            for oi, ki, d, size in zip(o, k, window.dims, lhs_shape[2:], strict=True):
                i = oi * d.stride - d.pad_low + ki * d.window_dilation
                if i % d.base_dilation or not 0 <= i // d.base_dilation < size:
                    break
                index.append(i // d.base_dilation)
                weight.append(d.size - 1 - ki if d.reversal else ki)
            else:
                for iz in range(rhs_shape[0]):
                    x = lhs[(n + bg * batch, g * rhs_shape[0] + iz, *index)]
                    expected[(n, oz, *o)] += x * rhs[(iz, oz, *weight)]
    got = convolution(
        laid(lhs, [labels.input_batch, labels.input_feature, *labels.input_spatial]),
        laid(
            rhs, [labels.kernel_input_feature, labels.kernel_output_feature, *labels.kernel_spatial]
        ),
        window,
        labels,
        feature_groups,
        batch_groups,
    )
    order = [labels.output_batch, labels.output_feature, *labels.output_spatial]
    np.testing.assert_array_equal(got, laid(expected, order))


NCW = ConvDims(0, 1, (2,), 1, 0, (2,), 0, 1, (2,), text="")


def test_infinite_weights_meet_no_padding():
    """A padded position adds nothing: infinity times the zero that is not there is no NaN."""
    lhs = np.array([[[1.0, 2.0]]], np.float32)
    rhs = np.array([[[np.inf, 1.0, np.inf]]], np.float32)
    window = Window((WindowDim(3, 1, 1, 1),))
    assert convolution(lhs, rhs, window, NCW).tolist() == [[[np.inf, np.inf]]]
    rhs = np.array([[[np.inf, 1.0, 0.0]]], np.float32)
    window = Window((WindowDim(3, 1, 2, 0),))
    assert convolution(lhs, rhs, window, NCW).tolist() == [[[0.0, 1.0]]]


def test_both_group_counts_are_refused():
    """HLO allows one of feature and batch groups to exceed 1."""
    with pytest.raises(ValueError, match="both exceed 1"):
        convolution(np.zeros((4, 4, 3)), np.zeros((2, 4, 3)), Window((WindowDim(1),)), NCW, 2, 2)


@pytest.mark.parametrize("shared", [True, False])
def test_ragged_dot_of_rows(shared):
    """Each row meets the matrix of its group; rows beyond the groups give 0."""
    rng = np.random.default_rng(1)
    lhs, rhs = rng.normal(size=(2, 6, 3)), rng.normal(size=(3, 3, 4))
    sizes = np.array([2, 0, 3]) if shared else np.array([[2, 0, 3], [9, 1, 1]])
    got = ragged_dot(lhs, rhs, sizes, DotDims((2,), (1,), (), ()), 1, 0)
    expected = np.zeros((2, 6, 4))
    for b in range(2):
        groups = np.repeat(np.arange(3), sizes if shared else sizes[b])[:6]
        for row, group in enumerate(groups):
            expected[b, row] = lhs[b, row] @ rhs[group]
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_ragged_dot_over_the_contraction():
    """Each group has a product of its own part of the contraction, whatever is in the others."""
    lhs = np.array([[1.0, 2.0, 3.0, np.inf]])
    rhs = np.array([[1.0], [10.0], [100.0], [np.inf]])
    got = ragged_dot(lhs, rhs, np.array([1, 2]), DotDims((1,), (0,), (), ()), 1, None)
    assert got.tolist() == [[[1.0]], [[320.0]]]


def test_ragged_dot_over_a_batch():
    """Batch indexes beyond the groups give 0."""
    lhs, rhs = np.ones((3, 2, 2)), np.ones((3, 2, 2))
    got = ragged_dot(lhs, rhs, np.array([1, 1]), DotDims((2,), (1,), (0,), (0,)), 0, None)
    assert got[:, 0, 0].tolist() == [2.0, 2.0, 0.0]


def test_scales_stand_for_blocks():
    """An element's scale is that of its block; a scale without dimensions is 1."""
    x = np.ones((2, 4))
    scale = np.array([[2.0, 3.0]])
    assert rescaled(x, scale).tolist() == [[2.0, 2.0, 3.0, 3.0]] * 2
    assert rescaled(x, np.array(7.0)) is x
