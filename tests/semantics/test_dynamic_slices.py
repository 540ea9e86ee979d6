"""Slices at places that are computed: every start is moved so that the slice is inside."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hloopt.types import DTYPES
from tests.helpers.rarely import examples
from tests.semantics.elements import ELEMENTS, drawn_dims, entry, seeds, shape_of, values
from tests.semantics.statement import check

OPCODES = ("dynamic-slice", "dynamic-update-slice")

names = st.sampled_from(ELEMENTS)
index_types = st.sampled_from(["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])


@st.composite
def starts(draw, kind, rank):
    """Start indices of one type: near the ends of small arrays, and at the ends of the type."""
    bits = DTYPES[kind].bits
    signed = kind.startswith("s")
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    near = st.integers(max(low, -3), 5)
    return [
        draw(st.one_of(near, st.sampled_from([low, low + 1, high, high - 1]))) for _ in range(rank)
    ]


def inside(start, size, part):
    """The nearest start at which ``part`` elements of ``size`` are taken."""
    if start < 0:
        return 0
    return min(start, size - part)


def operands(kind, begins, first, as_vector):
    """The text and arrays of start indices: scalars, or the older form, one vector."""
    dtype = DTYPES[kind].numpy
    if as_vector:
        return f", p{first}", [f"{kind}[{len(begins)}]"], [np.array(begins, dtype)]
    text = "".join(f", p{first + number}" for number in range(len(begins)))
    return text, [f"{kind}[]"] * len(begins), [np.array(begin, dtype) for begin in begins]


@given(names, index_types, drawn_dims(max_size=5), seeds, st.booleans(), st.data())
@settings(max_examples=examples(60))
def test_dynamic_slice_is_moved_to_be_inside(name, kind, dims, chooser, as_vector, data):
    """result[i] is operand[start + i] for the start clamped to [0, dim - size], each dimension by itself."""
    sizes = [data.draw(st.integers(0, size)) for size in dims]
    begins = data.draw(starts(kind, len(dims)))
    as_vector = as_vector and bool(dims)
    x = values(name, dims, chooser)
    want = np.empty(sizes, x.dtype)
    for index in product(*map(range, sizes)):
        at = [inside(*each) + i for *each, i in zip(begins, dims, sizes, index, strict=True)]
        want[index] = x[tuple(at)]
    text, shapes, arrays = operands(kind, begins, 1, as_vector)
    listed = ",".join(map(str, sizes))
    text = f"{shape_of(name, sizes)} dynamic-slice(p0{text}), dynamic_slice_sizes={{{listed}}}"
    check(entry(text, [shape_of(name, dims), *shapes]), [x, *arrays], want)


@given(names, index_types, drawn_dims(max_size=5), seeds, st.booleans(), st.data())
@settings(max_examples=examples(60))
def test_dynamic_update_slice_is_moved_to_be_inside(name, kind, dims, chooser, as_vector, data):
    """The operand with update[i] at start + i, clamped as that of a slice; the operand stays as it is."""
    sizes = [data.draw(st.integers(0, size)) for size in dims]
    begins = data.draw(starts(kind, len(dims)))
    as_vector = as_vector and bool(dims)
    x, update = values(name, dims, chooser), values(name, sizes, chooser)
    want, before = x.copy(), x.copy()
    for index in product(*map(range, sizes)):
        at = [inside(*each) + i for *each, i in zip(begins, dims, sizes, index, strict=True)]
        want[tuple(at)] = update[index]
    text, shapes, arrays = operands(kind, begins, 2, as_vector)
    text = f"{shape_of(name, dims)} dynamic-update-slice(p0, p1{text})"
    shapes = [shape_of(name, dims), shape_of(name, sizes), *shapes]
    check(entry(text, shapes), [x, update, *arrays], want)
    assert x.tobytes() == before.tobytes()


@pytest.mark.parametrize("kind", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
def test_the_ends_of_every_index_type_are_clamped(kind):
    """The greatest unsigned index is beyond the end, not before the beginning."""
    row = DTYPES[kind]
    low = -(1 << row.bits - 1) if row.kind == "signed" else 0
    x, update = np.arange(5, dtype=np.float32), np.array([8, 9], np.float32)
    taken = "f32[2] dynamic-slice(p0, p1), dynamic_slice_sizes={2}"
    put = "f32[5] dynamic-update-slice(p0, p1, p2)"
    for number, begin in ((low, 0), (low + (1 << row.bits) - 1, 3)):
        start = np.array(number, row.numpy)
        check(entry(taken, ["f32[5]", f"{kind}[]"]), [x, start], x[begin : begin + 2].copy())
        want = x.copy()
        want[begin], want[begin + 1] = 8, 9
        check(entry(put, ["f32[5]", "f32[2]", f"{kind}[]"]), [x, update, start], want)
