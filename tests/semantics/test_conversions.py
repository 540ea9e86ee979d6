"""Conversions between all element types, reduced precision and stochastic rounding, in exact numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.types import DTYPES
from tests.semantics.elements import ELEMENTS, INTEGERS, from_bits
from tests.semantics.formats import (
    FORMATS,
    array_of,
    bits_of,
    decoded,
    encoded,
    numbers,
    rounded,
    width,
)
from tests.semantics.several import check_several

OPCODES = ("convert", "reduce-precision", "stochastic-convert")

REAL = [name for name in ELEMENTS if name not in ("c64", "c128")]
SIGNED = [name for name in INTEGERS if name[0] == "s"]


def bounds(name):
    bits = width(name)
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if name[0] == "s" else (0, (1 << bits) - 1)


def converted(source, target, value):
    """A number of one type as one of another."""
    if target == "pred":
        return value != 0  # NaN and -0.0 as Python compares them
    if target in ("c64", "c128"):
        part = "f32" if target == "c64" else "f64"
        z = value if isinstance(value, complex) else complex(converted(source, part, value))
        return complex(rounded(part, z.real), rounded(part, z.imag))
    if target in FORMATS:
        return to_float(source, target, value)
    if not isinstance(value, float):
        return int(value)  # wraps where it is stored
    if math.isnan(value):
        return 0
    least, greatest = bounds(target)
    return least if value < least else greatest if value > greatest else math.trunc(value)


def to_float(source, target, value):
    """To nearest; by way of f32 from f64 to 16 bits and from integers to less than 32, as in XLA."""
    exact = Fraction(value) if isinstance(value, int) else value
    by_f32 = (
        width(target) == 16 if source == "f64" else source not in FORMATS and width(target) <= 16
    )
    return rounded(target, rounded("f32", exact) if by_f32 else exact)


def critical(name):
    """Codes of a type whose numbers are hard for some other type: ends of ranges, ties, and their neighbours."""
    bits = width(name)
    if name in ("c64", "c128"):
        return []
    if bits <= 8:
        return range(2 if name == "pred" else 1 << bits)
    found = {0, 1, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1}
    marks = {bound for other in INTEGERS for bound in bounds(other)} | {
        256 + 1,
        2**24 + 1,
        2**53 + 1,
    }
    marks |= {2**29 + 2**21 + delta for delta in (-1, 0, 1)} | {
        2**11 + delta for delta in (-1, 0, 1)
    }
    if name not in FORMATS:
        least, greatest = bounds(name)
        return sorted(found | {mark % (1 << bits) for mark in marks if least <= mark <= greatest})
    values = {Fraction(mark) + delta for mark in marks for delta in (0, Fraction(1, 2), -1, 1)}
    for form in FORMATS.values():
        one = Fraction(2) ** -form.mantissa
        ties = [
            1 + one / 2,
            1 + 3 * one / 2,
            form.greatest,
            form.greatest * (1 + one / 4),
            Fraction(2) ** 128,
        ]
        ties += [
            Fraction(2) ** (form.least_exponent - form.mantissa - 1),
            Fraction(2) ** form.least_exponent,
        ]
        values.update(
            tie * (1 + side)
            for tie in ties
            for side in (0, Fraction(1, 2**40), -Fraction(1, 2**40))
        )
    codes = {encoded(name, rounded(name, value)) for value in values}
    codes |= {encoded(name, rounded(name, x)) for x in (math.inf, math.nan, 0.5, 0.99, 1.5, 2.5)}
    return sorted(found | codes | {code | 1 << (bits - 1) for code in codes})


def some_codes(name):
    return st.lists(st.integers(0, (1 << width(name)) - 1), min_size=1, max_size=30)


def hold_conversions(source, array):
    values = numbers(source, array)
    calls = [
        (target, "convert(p0)", array_of(target, [converted(source, target, x) for x in values]))
        for target in ELEMENTS
        if target != source and (source in REAL or target not in REAL)
    ]
    check_several([(source, array)], calls)


@pytest.mark.parametrize("source", REAL)
def test_hard_numbers_of_every_type_to_every_other(source):
    """Floats saturate and truncate, NaN becomes 0; integers wrap; the rest rounds to nearest."""
    hold_conversions(source, from_bits(list(critical(source)), DTYPES[source]))


@pytest.mark.parametrize("source", [name for name in REAL if width(name) > 8])
def test_any_number_to_every_other_type(source):
    @settings(max_examples=4)
    @given(some_codes(source))
    def examples(codes):
        hold_conversions(source, from_bits(codes, DTYPES[source]))

    examples()


def test_complex_numbers_convert_part_by_part():
    """To complex only: real and imag take the parts."""
    parts = [0.0, -0.0, 1.5, math.inf, math.nan, 1 + 2.0**-30, 1e300]
    whole = [complex(a, b) for a in parts for b in parts]
    hold_conversions("c128", array_of("c128", whole))
    hold_conversions("c64", array_of("c64", [converted("c128", "c64", z) for z in whole]))
    text = "HloModule m\nENTRY e {\n  z = c64[] parameter(0)\n  ROOT r = f32[] convert(z)\n}\n"
    with pytest.raises(
        hloopt.errors.VerifyError, match="c64 does not convert to f32; take real or imag"
    ):
        hloopt.verify(hloopt.parse(text))


def reduced(name, code, exponent_bits, mantissa_bits):
    """The number a code becomes, in a format of fewer bits.

    Bits beyond the mantissa are rounded off the code as a whole number, ties to even, which may carry
    into the exponent; then too large is infinite and what would be subnormal is 0.
    """
    form = FORMATS[name]
    top = 1 << (form.bits - 1)
    size, sign = code % top, -1.0 if code >= top else 1.0
    if math.isnan(decoded(name, size)):
        return math.nan
    drop = 1 << max(form.mantissa - mantissa_bits, 0)
    value = decoded(name, round(Fraction(size, drop)) * drop)
    if exponent_bits < form.exponent:
        bias = (1 << (exponent_bits - 1)) - 1
        value = (
            math.inf if value >= 2.0 ** (bias + 1) else 0.0 if value < 2.0 ** (1 - bias) else value
        )
    return sign * value


def computed_in(name):
    """16-bit types in themselves, bytes with a sign in f16, as XLA's CPU code does."""
    if width(name) >= 16:
        return name
    return "f16" if width(name) == 8 and name != "f8e8m0fnu" else "f32"


@pytest.mark.parametrize("name", FORMATS)
def test_reduce_precision_to_every_format(name):
    """Every exponent and mantissa of the element types and the least ones; to the own format nothing changes."""
    codes = list(critical(name))[:: 1 if width(name) <= 8 else 3]
    carrier = computed_in(name)
    wide = [encoded(carrier, decoded(name, code)) for code in codes]
    calls = []
    for exponent_bits in (1, 2, 3, 4, 5, 8, 11, 20):
        for mantissa_bits in (0, 1, 2, 3, 4, 7, 10, 23, 52, 60):
            want = [
                rounded(name, reduced(carrier, code, exponent_bits, mantissa_bits)) for code in wide
            ]
            call = f"reduce-precision(p0), exponent_bits={exponent_bits}, mantissa_bits={mantissa_bits}"
            calls.append((name, call, array_of(name, want)))
    check_several([(name, from_bits(codes, DTYPES[name]))], calls)


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
def test_reduce_precision_of_any_number_to_any_format(name):
    @settings(max_examples=8)
    @given(some_codes(name), st.integers(1, 12), st.integers(0, 60))
    def examples(codes, exponent_bits, mantissa_bits):
        want = array_of(name, [reduced(name, code, exponent_bits, mantissa_bits) for code in codes])
        call = f"reduce-precision(p0), exponent_bits={exponent_bits}, mantissa_bits={mantissa_bits}"
        check_several([(name, from_bits(codes, DTYPES[name]))], [(name, call, want)])

    examples()


def stochastic(value, random, bits, target):
    """Away from zero by one where ``random`` is below the fraction's share of 2^bits."""
    least, greatest = bounds(target)
    if math.isnan(value):
        return 0
    if value >= greatest:
        return greatest
    if value <= least:
        return least
    size = abs(Fraction(value))
    whole = math.floor(size)
    grows = size > whole and random < math.floor((size - whole) * 2**bits)
    return (whole + grows) * (-1 if value < 0 else 1)


@pytest.mark.parametrize("source", [name for name in FORMATS if width(name) != 6])
def test_stochastic_convert_to_every_signed_type(source):
    """The random operand is unsigned and as wide as the float."""
    bits = width(source)
    near = [encoded(source, rounded(source, x)) for x in (0.5, 1.25, 2.75, 1.0, 3.5)]
    if source != "f8e8m0fnu":
        near += [code | 1 << (bits - 1) for code in near]
    code = st.sampled_from(near + list(critical(source))) | st.integers(0, (1 << bits) - 1)
    half = 1 << (bits - 1)
    random = st.integers(0, (1 << bits) - 1) | st.sampled_from(
        [0, half, half - 1, half // 2, 2 * half - 1]
    )

    @settings(max_examples=8)
    @given(st.lists(st.tuples(code, random), min_size=1, max_size=40))
    def examples(pairs):
        x = from_bits([first for first, _ in pairs], DTYPES[source])
        draws = from_bits([second for _, second in pairs], DTYPES[f"u{bits}"])
        given_ = list(zip(numbers(source, x), bits_of(f"u{bits}", draws), strict=True))
        calls = [
            (
                target,
                "stochastic-convert(p0, p1)",
                array_of(target, [stochastic(value, draw, bits, target) for value, draw in given_]),
            )
            for target in SIGNED
        ]
        check_several([(source, x), (f"u{bits}", draws)], calls)

    examples()


def test_nan_becomes_minus_zero_where_there_is_none():
    """Whatever its sign, and in results of arithmetic too."""
    for name in ("f4e2m1fn", "f6e3m2fn", "f6e2m3fn"):
        x = array_of("f32", [math.nan, math.nan, math.inf])
        x[1] = np.copysign(x[1], np.float32(-1))
        check_several(
            [("f32", x)],
            [(name, "convert(p0)", array_of(name, [-0.0, -0.0, float(FORMATS[name].greatest)]))],
        )
        zeros = array_of(name, [0.0, -0.0])
        check_several([(name, zeros)], [(name, "divide(p0, p0)", array_of(name, [-0.0, -0.0]))])
