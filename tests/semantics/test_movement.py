"""Ops that only move elements, one element at a time."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.rarely import examples
from tests.semantics.elements import ELEMENTS, drawn_dims, entry, seeds, shape_of, values
from tests.semantics.statement import check

OPCODES = ("broadcast", "concatenate", "pad", "reshape", "reverse", "slice", "transpose")

names = st.sampled_from(ELEMENTS)


def indices(dims):
    """All indices of an array in row-major order."""
    return product(*map(range, dims))


def listed(numbers):
    return "{" + ",".join(map(str, numbers)) + "}"


def moved(name, source, dims, where):
    """The array whose element at ``index`` is the source's at ``where(index)``."""
    result = np.empty(dims, source.dtype)
    for index in indices(dims):
        result[index] = source[where(index)]
    return result


@given(names, drawn_dims(max_rank=4), seeds, st.data())
@settings(max_examples=examples(50))
def test_broadcast_repeats_along_dimensions_that_the_operand_lacks(name, dims, chooser, data):
    """result[i] is operand[i[d] for d in dimensions], for dimensions in any order."""
    kept = data.draw(
        st.lists(st.sampled_from(range(len(dims))), unique=True) if dims else st.just([])
    )
    x = values(name, [dims[d] for d in kept], chooser)
    text = f"{shape_of(name, dims)} broadcast(p0), dimensions={listed(kept)}"
    want = moved(name, x, dims, lambda index: tuple(index[d] for d in kept))
    check(entry(text, [shape_of(name, x.shape)]), [x], want)


@given(names, drawn_dims(1), st.lists(st.integers(0, 3), min_size=1, max_size=4), seeds, st.data())
@settings(max_examples=examples(50))
def test_concatenate_puts_operands_one_after_the_other(name, dims, sizes, chooser, data):
    """Along one dimension; empty operands take no place."""
    axis = data.draw(st.integers(0, len(dims) - 1))
    arrays = [values(name, (*dims[:axis], size, *dims[axis + 1 :]), chooser) for size in sizes]
    result = (*dims[:axis], sum(sizes), *dims[axis + 1 :])
    want = np.empty(result, arrays[0].dtype)
    for index in indices(result):
        at, number = index[axis], 0
        while at >= sizes[number]:
            at -= sizes[number]
            number += 1
        want[index] = arrays[number][(*index[:axis], at, *index[axis + 1 :])]
    operands = ", ".join(f"p{number}" for number in range(len(sizes)))
    text = f"{shape_of(name, result)} concatenate({operands}), dimensions={{{axis}}}"
    check(entry(text, [shape_of(name, x.shape) for x in arrays]), arrays, want)


@given(names, drawn_dims(1), seeds, st.data())
@settings(max_examples=examples(50))
def test_pad_spreads_the_elements_and_then_adds_or_crops_edges(name, dims, chooser, data):
    """Element i lands at low + i * (interior + 1); what lands outside is dropped."""
    low, high, inner, result = [], [], [], []
    for size in dims:
        gap = data.draw(st.integers(0, 2))
        spread = size + max(size - 1, 0) * gap
        before = data.draw(st.integers(-spread - 1, 3))
        after = data.draw(st.integers(max(-spread - before, -5), 4))
        low.append(before)
        high.append(after)
        inner.append(gap)
        result.append(spread + before + after)
    x, fill = values(name, dims, chooser), values(name, (), chooser)
    want = np.empty(result, x.dtype)
    for index in indices(result):
        want[index] = fill[()]
    for index in indices(dims):
        at = tuple(b + i * (g + 1) for i, b, g in zip(index, low, inner, strict=True))
        if all(0 <= i < size for i, size in zip(at, result, strict=True)):
            want[at] = x[index]
    how = "x".join(f"{b}_{a}_{g}" for b, a, g in zip(low, high, inner, strict=True))
    text = f"{shape_of(name, result)} pad(p0, p1), padding={how}"
    check(entry(text, [shape_of(name, dims), shape_of(name, ())]), [x, fill], want)


@given(names, drawn_dims(max_rank=4), seeds, st.data())
@settings(max_examples=examples(50))
def test_reshape_keeps_the_row_major_order(name, dims, chooser, data):
    """The element at a row-major place stays at that place."""
    count = 1
    for size in dims:
        count *= size
    factors = [d for d in range(1, count + 1) if count % d == 0] or [0, 1]
    result = [data.draw(st.sampled_from(factors)) for _ in range(data.draw(st.integers(0, 2)))]
    got = 1
    for size in result:
        got *= size
    if got == 0 or count == 0:
        result = result if got == count else [*result, 0]
    elif count % got:
        result = [count]
    else:
        result.append(count // got)
    x = values(name, dims, chooser)
    text = f"{shape_of(name, result)} reshape(p0)"
    flat = [x[index] for index in indices(dims)]
    want = np.empty(result, x.dtype)
    for place, index in enumerate(indices(result)):
        want[index] = flat[place]
    check(entry(text, [shape_of(name, dims)]), [x], want)


@given(names, drawn_dims(), seeds, st.data())
@settings(max_examples=examples(50))
def test_reverse_counts_dimensions_from_the_end(name, dims, chooser, data):
    """The first element of a reversed dimension is the last one."""
    turned = data.draw(
        st.lists(st.sampled_from(range(len(dims))), unique=True) if dims else st.just([])
    )
    x = values(name, dims, chooser)

    def where(index):
        return tuple(dims[d] - 1 - i if d in turned else i for d, i in enumerate(index))

    text = f"{shape_of(name, dims)} reverse(p0), dimensions={listed(turned)}"
    check(entry(text, [shape_of(name, dims)]), [x], moved(name, x, dims, where))


@given(names, drawn_dims(max_size=6), seeds, st.data())
@settings(max_examples=examples(50))
def test_slice_starts_at_start_and_takes_every_strideth_below_limit(name, dims, chooser, data):
    """result[i] is operand[start + i * stride]; the limit itself is not taken."""
    ranges = []
    for size in dims:
        start = data.draw(st.integers(0, size))
        ranges.append((start, data.draw(st.integers(start, size)), data.draw(st.integers(1, 4))))
    result = []
    for start, limit, stride in ranges:
        count = 0
        while start + count * stride < limit:
            count += 1
        result.append(count)
    x = values(name, dims, chooser)

    def where(index):
        return tuple(r[0] + i * r[2] for i, r in zip(index, ranges, strict=True))

    slices = ", ".join("[" + ":".join(map(str, r)) + "]" for r in ranges)
    text = f"{shape_of(name, result)} slice(p0), slice={{{slices}}}"
    check(entry(text, [shape_of(name, dims)]), [x], moved(name, x, result, where))


@given(names, drawn_dims(max_rank=4), seeds, st.data())
@settings(max_examples=examples(50))
def test_transpose_makes_operand_dimension_k_of_the_permutation_the_kth(name, dims, chooser, data):
    """result dimension k is operand dimension dimensions[k]."""
    order = data.draw(st.permutations(range(len(dims))))
    x = values(name, dims, chooser)
    result = [dims[d] for d in order]

    def where(index):
        return tuple(index[order.index(d)] for d in range(len(dims)))

    text = f"{shape_of(name, result)} transpose(p0), dimensions={listed(order)}"
    check(entry(text, [shape_of(name, dims)]), [x], moved(name, x, result, where))
