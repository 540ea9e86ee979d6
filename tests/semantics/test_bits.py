"""bitcast and bitcast-convert: bits as Python's integers."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.errors import UnsupportedError
from hloopt.types import DTYPES
from tests.helpers.rarely import examples
from tests.semantics.elements import ELEMENTS, drawn_dims, entry, from_bits, seeds, shape_of, values
from tests.semantics.statement import check

OPCODES = ("bitcast", "bitcast-convert")

# Six bits fill neither a byte nor a part of one.
PACKED = [name for name in ELEMENTS if not name.startswith("f6")]


def bits_of(element, row):
    """The element's bits as an integer, of types narrower than a byte those alone."""
    return int.from_bytes(element.tobytes(), "little") & ((1 << row.bits) - 1)


def element_of(bits, row):
    """The element that has these bits; a pred is true where any is set."""
    if row.is_pred:
        return bits != 0
    if row.bits == 128:
        return np.frombuffer(bits.to_bytes(16, "little"), np.complex128)[0]
    if row.is_complex:
        return np.frombuffer(bits.to_bytes(8, "little"), np.complex64)[0]
    return from_bits([bits], row)[0]


@st.composite
def converted(draw):
    """Two types of which the wider one's width is a multiple of the narrower one's, complex ones apart."""
    source = draw(st.sampled_from(PACKED))
    row = DTYPES[source]
    targets = [
        name
        for name in PACKED
        if DTYPES[name].is_complex == row.is_complex
        and max(row.bits, DTYPES[name].bits) % min(row.bits, DTYPES[name].bits) == 0
    ]
    return source, draw(st.sampled_from(targets))


@given(converted(), drawn_dims(max_size=3), seeds)
@settings(max_examples=examples(60))
def test_bitcast_convert_sees_the_same_bits_as_another_type(types, dims, chooser):
    """Equal widths keep the dimensions; a wide element is a last dimension of narrow ones, lowest bits
    first, and the other way round.
    """
    source, target = (DTYPES[name] for name in types)
    if source.bits < target.bits:
        dims = (*dims, target.bits // source.bits)
    x = values(source.name, dims, chooser)
    if source.bits >= target.bits:
        parts = source.bits // target.bits
        result = dims if parts == 1 else (*dims, parts)
        want = np.empty(result, target.numpy)
        for index in product(*map(range, dims)):
            bits = bits_of(x[index], source)
            for part in range(parts):
                low = bits >> (part * target.bits) & ((1 << target.bits) - 1)
                want[index if parts == 1 else (*index, part)] = element_of(low, target)
    else:
        want = np.empty(dims[:-1], target.numpy)
        for index in product(*map(range, dims[:-1])):
            bits = sum(
                bits_of(x[(*index, part)], source) << (part * source.bits)
                for part in range(dims[-1])
            )
            want[index] = element_of(bits, target)
    text = f"{shape_of(target.name, want.shape)} bitcast-convert(p0)"
    check(entry(text, [shape_of(source.name, dims)]), [x], want)


@given(st.sampled_from(["u16", "s32", "u64", "u8"]), seeds)
@settings(max_examples=examples(30))
def test_bits_survive_every_type_of_their_width(name, chooser):
    """NaN payloads and both zeros: there and back again changes no bit."""
    row = DTYPES[name]
    others = [
        kind for kind in PACKED
        if DTYPES[kind].bits == row.bits and not DTYPES[kind].is_complex and kind != "pred"
    ]  # fmt: skip
    x = values(name, (64,), chooser)
    for other in others:
        text = f"""HloModule m
ENTRY e {{
  p = {name}[64] parameter(0)
  there = {other}[64] bitcast-convert(p)
  moved = {other}[64] reverse(there), dimensions={{0}}
  ROOT back = {name}[64] bitcast-convert(moved)
}}"""
        check(text, [x], np.array([x[63 - i] for i in range(64)], row.numpy))


def place_of(index, dims, minor_to_major):
    """Where in a buffer the element at ``index`` lies."""
    place, stride = 0, 1
    for d in minor_to_major:
        place += index[d] * stride
        stride *= dims[d]
    return place


def layout(order):
    return "{" + ",".join(map(str, order)) + "}" if order else ""


@given(st.sampled_from(ELEMENTS), drawn_dims(max_rank=4), seeds, st.data())
@settings(max_examples=examples(60))
def test_bitcast_reads_the_buffer_in_another_order(name, dims, chooser, data):
    """The element at a place of the operand's layout is at that place of the result's."""
    order = data.draw(st.permutations(range(len(dims))))
    count = prod(dims)
    sides = [d for d in range(1, count + 1) if count % d == 0] or [0]
    first = data.draw(st.sampled_from(sides))
    rest = count // first if first else 1
    middle = data.draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0]))
    result = data.draw(st.permutations([first, middle, rest // middle]))
    other = data.draw(st.permutations(range(3)))
    x = values(name, dims, chooser)
    buffer = [None] * count
    for index in product(*map(range, dims)):
        buffer[place_of(index, dims, order)] = x[index]
    want = np.empty(result, x.dtype)
    for index in product(*map(range, result)):
        want[index] = buffer[place_of(index, result, other)]
    text = f"{shape_of(name, result)}{layout(other)} bitcast(p0)"
    check(entry(text, [shape_of(name, dims) + layout(order)]), [x], want)


@st.composite
def buffers(draw):
    """Two shapes of the same number of bits."""
    source, target = draw(converted())
    narrow, wide = sorted((DTYPES[source].bits, DTYPES[target].bits))
    dims = draw(drawn_dims(1, 3, min_size=1, max_size=3))
    ratio = wide // narrow
    if ratio > 64:
        dims = dims[:1]
    small = draw(st.permutations([*dims, ratio]))
    large = draw(st.permutations(dims))
    return (
        (source, small, target, large)
        if DTYPES[source].bits == narrow
        else (source, large, target, small)
    )


@given(buffers(), seeds, st.data())
@settings(max_examples=examples(60))
def test_bitcast_to_another_type_reads_the_bytes_of_the_buffer(case, chooser, data):
    """Elements in the order of the layout, types narrower than a byte densely, lowest bits first."""
    source, dims, target, result = case
    row, into = DTYPES[source], DTYPES[target]
    order = data.draw(st.permutations(range(len(dims))))
    other = data.draw(st.permutations(range(len(result))))
    x = values(source, dims, chooser)
    buffer = 0
    for index in product(*map(range, dims)):
        buffer |= bits_of(x[index], row) << (place_of(index, dims, order) * row.bits)
    want = np.empty(result, into.numpy)
    for index in product(*map(range, result)):
        bits = buffer >> (place_of(index, result, other) * into.bits)
        want[index] = element_of(bits & ((1 << into.bits) - 1), into)
    text = f"{shape_of(target, result)}{layout(other)} bitcast(p0)"
    check(entry(text, [shape_of(source, dims) + layout(order)]), [x], want)


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (
            "f32[8,128]{1,0}",
            "f32[128,8]{1,0:T(8,128)}",
            (
                "bitcast of f32[8,128]{1,0} to f32[128,8]{1,0:T(8,128)}: "
                "elements of the result lie in the padding of the operand's tiles"
            ),
        ),
        ("s4[4]{0}", "s8[4]{0}", "bitcast of s4[4]{0} to s8[4]{0}: 16 bits are not 32"),
    ],
)
def test_bitcasts_whose_bytes_are_not_known_are_refused(source, target, reason):
    """Before anything runs, with name and line."""
    module = hloopt.parse(entry(f"{target} bitcast(p0)", [source]))
    with pytest.raises(UnsupportedError) as error:
        hloopt.compile(module)
    assert error.value.message == f"r: {reason}"
    assert (error.value.line, error.value.column) == (5, 8)
