"""Convert, reduce-precision and stochastic-convert against exact arithmetic in Python."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ops.scalars import FEW, apply, integers

from hloopt.types import DTYPES, dtype

INTEGERS = [row.name for row in DTYPES.values() if row.is_integer]
FLOATS = [row.name for row in DTYPES.values() if row.is_float]


def bounds(element: str) -> tuple[int, int]:
    bits = dtype(element).bits
    return (
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if element[0] == "s" else (0, (1 << bits) - 1)
    )


@pytest.mark.parametrize("element", INTEGERS)
def test_floats_truncate_and_saturate(element: str) -> None:
    least, greatest = bounds(element)

    @FEW
    @given(
        st.floats()
        | st.integers(-(2**70), 2**70).map(float)
        | st.sampled_from([float(least), float(greatest), greatest + 0.5])
    )
    def check(x: float) -> None:
        found = integers(apply("convert", "f64", [x], result=element))
        if math.isnan(x):
            assert found == [0]
        elif math.isinf(x):
            assert found == [greatest if x > 0 else least]
        else:
            assert found == [min(max(math.trunc(x), least), greatest)]

    check()


@pytest.mark.parametrize("source", ["f32", "bf16", "f16", "f8e4m3fn"])
def test_narrow_floats_convert_by_their_value(source: str) -> None:
    found = apply("convert", source, [2.75, -2.75, 448.0, math.nan], result="s8")
    assert integers(found) == [2, -2, 127, 0]


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", ["s64", "u64", "s8", "u4", "pred"])
def test_integers_wrap(source: str, target: str) -> None:
    values = np.array([0, 1, 2, 5, 127, 2**31, 2**40 + 3], np.uint64)
    values = np.concatenate([values, ~values]).astype(dtype(source).numpy)
    mask = (1 << dtype(target).bits) - 1
    greatest = bounds(target)[1]
    expected = [
        (int(value) & mask) - (mask + 1 if (int(value) & mask) > greatest else 0)
        for value in integers(values)
    ]
    assert integers(apply("convert", source, values, result=target)) == expected


@pytest.mark.parametrize("target", FLOATS)
def test_integers_become_the_nearest_float(target: str) -> None:
    found = apply("convert", "s32", [0, 1, 2, 4, -4], result=target)
    expected = np.array([0, 1, 2, 4, -4], np.float32).astype(dtype(target).numpy)
    assert found.dtype == expected.dtype
    assert (
        found.view(np.dtype(f"u{found.itemsize}")).tolist()
        == expected.view(np.dtype(f"u{found.itemsize}")).tolist()
    )


def test_large_integers_round_to_even() -> None:
    assert apply("convert", "s64", np.array([2**53 + 1, 2**53 + 3]), result="f64").tolist() == [
        2.0**53,
        2.0**53 + 4,
    ]
    assert apply("convert", "u64", np.array([2**64 - 1], np.uint64), result="f32").tolist() == [
        2.0**64
    ]


def test_everything_but_zero_is_true() -> None:
    assert apply("convert", "f32", [0.0, -0.0, 1e-40, math.nan, -1.0], result="pred").tolist() == [
        False,
        False,
        True,
        True,
        True,
    ]
    assert apply("convert", "s4", [0, 1, -8], result="pred").tolist() == [False, True, True]
    assert apply("convert", "pred", [True, False], result="f32").tolist() == [1.0, 0.0]


def test_complex_and_real() -> None:
    assert apply("convert", "f32", [1.5], result="c64").tolist() == [1.5 + 0j]
    assert apply("convert", "c64", [1 + 2j], result="c128").dtype == np.complex128
    assert apply("convert", "c64", [1.5 + 2j], result="f32").tolist() == [1.5]


@pytest.mark.parametrize("target", FLOATS)
def test_overflow_of_every_float_type_follows_ml_dtypes(target: str) -> None:
    """The table of facts about narrow formats was made with it."""
    values = np.array([1e9, -1e9, 0.0, -0.0, 1.0, -1.5, 3e38], np.float32)
    found = apply("convert", "f32", values, result=target)
    with np.errstate(all="ignore"):
        expected = values.astype(dtype(target).numpy)
    assert found.tobytes() == expected.tobytes()


def test_the_narrow_formats_overflow_in_their_own_ways() -> None:
    big = [1e9, math.inf]
    assert apply("convert", "f32", big, result="f8e5m2").astype(float).tolist() == [math.inf] * 2
    assert np.isnan(apply("convert", "f32", big, result="f8e4m3fn").astype(float)).all()
    assert np.isnan(apply("convert", "f32", big, result="f8e4m3fnuz").astype(float)).all()
    assert apply("convert", "f32", big, result="f4e2m1fn").astype(float).tolist() == [6.0] * 2
    assert apply("convert", "f32", [464.0], result="f8e4m3fn").astype(float).tolist() == [448.0]


def reduced(x: float, exponent_bits: int, mantissa_bits: int) -> float:
    """Exact: to the nearest with that many bits, ties to even; then the range of the exponent."""
    if math.isnan(x) or x == 0 or math.isinf(x):
        return x
    exact = Fraction(abs(x))
    exponent = math.frexp(abs(x))[1] - 1
    unit = Fraction(2) ** (exponent - mantissa_bits)
    rounded = round(exact / unit) * unit
    bias = (1 << (exponent_bits - 1)) - 1
    if rounded >= Fraction(2) ** (bias + 1):
        return math.copysign(math.inf, x)
    if rounded < Fraction(2) ** (1 - bias):
        return math.copysign(0.0, x)
    return math.copysign(float(rounded), x)


@FEW
@given(
    st.floats(allow_nan=False, allow_subnormal=False) | st.floats(-1e5, 1e5, allow_subnormal=False),
    st.integers(2, 10),
    st.integers(1, 40),
)
def test_reduce_precision_of_f64(x: float, exponent_bits: int, mantissa_bits: int) -> None:
    found = apply(
        "reduce-precision", "f64", [x], exponent_bits=exponent_bits, mantissa_bits=mantissa_bits
    )
    assert repr(found.item()) == repr(reduced(x, exponent_bits, mantissa_bits))


@FEW
@given(st.floats(width=32, allow_subnormal=False))
def test_reduce_precision_to_bf16_is_rounding_to_bf16(x: float) -> None:
    values = np.array([x], np.float32)
    with np.errstate(all="ignore"):
        expected = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    found = apply("reduce-precision", "f32", values, exponent_bits=8, mantissa_bits=7)
    assert np.array_equal(found, expected, equal_nan=True)


def test_reduce_precision_flushes_what_would_be_subnormal() -> None:
    found = apply(
        "reduce-precision",
        "f32",
        [6e-8, -6e-8, 2.0**-14, 70000.0],
        exponent_bits=5,
        mantissa_bits=10,
    )
    assert repr(found.tolist()) == f"[0.0, -0.0, {2.0**-14}, inf]"


def test_reduce_precision_to_the_own_format_changes_nothing() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    for element, exponent_bits, mantissa_bits in (("f16", 5, 10), ("bf16", 8, 7)):
        values = bits.view(dtype(element).numpy)
        finite = values[np.isfinite(values.astype(np.float32))]
        found = apply(
            "reduce-precision",
            element,
            finite,
            exponent_bits=exponent_bits,
            mantissa_bits=mantissa_bits,
        )
        assert found.tobytes() == finite.tobytes()


@FEW
@given(st.floats(width=32), st.integers(0, 2**32 - 1))
def test_stochastic_convert_rounds_up_with_the_fraction(x: float, random: int) -> None:
    found = apply(
        "stochastic-convert", "f32", [x], np.array([random], np.uint32), last="u32", result="s8"
    )
    if math.isnan(x):
        expected = 0
    elif x >= 127:
        expected = 127
    elif x <= -128:
        expected = -128
    else:
        size, whole = Fraction(abs(x)), math.trunc(abs(x))
        grows = size > whole and random < math.floor((size - whole) * 2**32)
        count = whole + grows
        expected = -128 if grows and whole == 127 else int(math.copysign(count, x))
    assert found.tolist() == [expected]
