"""Integer rows against plain Python numbers: all pairs of the narrow types, corners of the wide."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ops.scalars import FEW, all_pairs, apply, integers

from hloopt.types import dtype

NARROW = ["s1", "u1", "s2", "u2", "s4", "u4", "s8", "u8"]
WIDE = ["s16", "u16", "s32", "u32", "s64", "u64"]


def wrap(value: int, bits: int, signed: bool) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def truncated(x: int, y: int) -> int:
    size = abs(x) // abs(y)
    return size if (x < 0) == (y < 0) else -size


def divide(x: int, y: int, bits: int, signed: bool) -> int:
    return -1 if y == 0 else truncated(x, y)


def remainder(x: int, y: int, bits: int, signed: bool) -> int:
    return x if y == 0 else x - truncated(x, y) * y


def power(x: int, y: int, bits: int, signed: bool) -> int:
    if y < 0:
        return {1: 1, -1: -1 if y % 2 else 1}.get(x, 0)
    return pow(x, y, 1 << bits)


def shift_left(x: int, y: int, bits: int, signed: bool) -> int:
    return x << y if 0 <= y < bits else 0


def shift_right_logical(x: int, y: int, bits: int, signed: bool) -> int:
    return (x & ((1 << bits) - 1)) >> y if 0 <= y < bits else 0


def shift_right_arithmetic(x: int, y: int, bits: int, signed: bool) -> int:
    return wrap(x, bits, signed=True) >> (y if 0 <= y < bits else bits - 1)


BINARY: dict[str, Callable[[int, int, int, bool], int]] = {
    "add": lambda x, y, bits, signed: x + y,
    "subtract": lambda x, y, bits, signed: x - y,
    "multiply": lambda x, y, bits, signed: x * y,
    "divide": divide,
    "remainder": remainder,
    "power": power,
    "maximum": lambda x, y, bits, signed: max(x, y),
    "minimum": lambda x, y, bits, signed: min(x, y),
    "and": lambda x, y, bits, signed: x & y,
    "or": lambda x, y, bits, signed: x | y,
    "xor": lambda x, y, bits, signed: x ^ y,
    "shift-left": shift_left,
    "shift-right-logical": shift_right_logical,
    "shift-right-arithmetic": shift_right_arithmetic,
    "mulhi": lambda x, y, bits, signed: (x * y) >> bits,
}

UNARY: dict[str, Callable[[int, int, bool], int]] = {
    "abs": lambda x, bits, signed: abs(x),
    "negate": lambda x, bits, signed: -x,
    "not": lambda x, bits, signed: ~x,
    "sign": lambda x, bits, signed: (x > 0) - (x < 0),
    "popcnt": lambda x, bits, signed: (x & ((1 << bits) - 1)).bit_count(),
    "count-leading-zeros": lambda x, bits, signed: bits - (x & ((1 << bits) - 1)).bit_length(),
}

COMPARE: dict[str, Callable[[int, int], bool]] = {
    "EQ": lambda x, y: x == y,
    "NE": lambda x, y: x != y,
    "LT": lambda x, y: x < y,
    "LE": lambda x, y: x <= y,
    "GT": lambda x, y: x > y,
    "GE": lambda x, y: x >= y,
}


def corner_values(element: str) -> st.SearchStrategy[int]:
    bits, signed = dtype(element).bits, dtype(element).kind == "signed"
    least = -(1 << (bits - 1)) if signed else 0
    greatest = least + (1 << bits) - 1
    near = {least, least + 1, greatest, greatest - 1, 0, 1, 2, 3, 7, bits - 1, bits, bits + 1}
    if signed:
        near |= {-1, -2, -3, -bits}
    return st.sampled_from(sorted(near)) | st.integers(least, greatest)


@pytest.mark.parametrize("element", NARROW)
@pytest.mark.parametrize("opcode", BINARY)
def test_every_pair_of_a_narrow_type(opcode: str, element: str) -> None:
    bits, signed = dtype(element).bits, dtype(element).kind == "signed"
    x, y = all_pairs(element)
    found = apply(opcode, element, x, y)
    reference = BINARY[opcode]
    expected = [
        wrap(reference(a, b, bits, signed), bits, signed)
        for a, b in zip(integers(x), integers(y), strict=True)
    ]
    assert found.dtype == dtype(element).numpy
    assert integers(found) == expected


@pytest.mark.parametrize("element", NARROW)
@pytest.mark.parametrize("opcode", UNARY)
def test_every_value_of_a_narrow_type(opcode: str, element: str) -> None:
    bits, signed = dtype(element).bits, dtype(element).kind == "signed"
    x = np.unique(all_pairs(element)[0].astype(np.int16)).astype(dtype(element).numpy)
    expected = [wrap(UNARY[opcode](a, bits, signed), bits, signed) for a in integers(x)]
    assert integers(apply(opcode, element, x)) == expected


@pytest.mark.parametrize("element", WIDE)
@pytest.mark.parametrize("opcode", BINARY)
def test_pairs_at_the_corners_of_a_wide_type(opcode: str, element: str) -> None:
    bits, signed = dtype(element).bits, dtype(element).kind == "signed"

    @FEW
    @given(corner_values(element), corner_values(element))
    def check(a: int, b: int) -> None:
        storage = dtype(element).numpy
        found = apply(opcode, element, np.array([a], storage), np.array([b], storage))
        expected = wrap(BINARY[opcode](a, b, bits, signed), bits, signed)
        assert found.dtype == storage
        assert integers(found) == [expected]

    check()


@pytest.mark.parametrize("element", WIDE)
@pytest.mark.parametrize("opcode", UNARY)
def test_values_at_the_corners_of_a_wide_type(opcode: str, element: str) -> None:
    bits, signed = dtype(element).bits, dtype(element).kind == "signed"

    @FEW
    @given(corner_values(element))
    def check(a: int) -> None:
        found = apply(opcode, element, np.array([a], dtype(element).numpy))
        assert integers(found) == [wrap(UNARY[opcode](a, bits, signed), bits, signed)]

    check()


@pytest.mark.parametrize("element", ["s4", "u8", "s8"])
@pytest.mark.parametrize("direction", COMPARE)
def test_comparisons_of_every_pair(direction: str, element: str) -> None:
    x, y = all_pairs(element)
    found = apply("compare", element, x, y, result="pred", direction=direction)
    pairs = zip(integers(x), integers(y), strict=True)
    assert found.dtype == np.bool_
    assert found.tolist() == [COMPARE[direction](a, b) for a, b in pairs]


@pytest.mark.parametrize(
    ("opcode", "function"),
    [
        ("add", lambda x, y: x or y),
        ("multiply", lambda x, y: x and y),
        ("maximum", lambda x, y: x or y),
        ("minimum", lambda x, y: x and y),
        ("and", lambda x, y: x and y),
        ("or", lambda x, y: x or y),
        ("xor", lambda x, y: x != y),
    ],
)
def test_arithmetic_of_preds_is_logic(opcode: str, function: Callable[[bool, bool], bool]) -> None:
    x, y = [False, False, True, True], [False, True, False, True]
    found = apply(opcode, "pred", x, y)
    assert found.tolist() == [function(a, b) for a, b in zip(x, y, strict=True)]
    assert apply("not", "pred", [True, False]).tolist() == [False, True]


@pytest.mark.parametrize("element", ["s4", "u4", "s32"])
def test_clamp_gives_the_upper_bound_when_the_bounds_cross(element: str) -> None:
    assert integers(apply("clamp", element, 2, [0, 3, 7], 5)) == [2, 3, 5]
    assert integers(apply("clamp", element, 5, [0, 3, 7], 2)) == [2, 2, 2]
