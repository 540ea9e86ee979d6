"""Float and complex rows against math, cmath and the rules in words."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ops.scalars import FEW, apply

NAN, INF = math.nan, math.inf
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, 1e-30, -1e-30, 1e30, 5e-324, INF, -INF, NAN]


def safe(function: Callable[..., float], *values: float) -> float:
    """C's answers where Python's math raises instead."""
    try:
        return function(*values)
    except ValueError:
        return NAN
    except OverflowError:
        return INF


def log(x: float) -> float:
    return -INF if x == 0 else safe(math.log, x)


UNARY: dict[str, Callable[[float], float]] = {
    "abs": abs,
    "acos": lambda x: safe(math.acos, x),
    "acosh": lambda x: safe(math.acosh, x),
    "asin": lambda x: safe(math.asin, x),
    "asinh": lambda x: safe(math.asinh, x),
    "atanh": lambda x: math.copysign(INF, x) if abs(x) == 1 else safe(math.atanh, x),
    "cbrt": math.cbrt,
    "ceil": lambda x: x if not math.isfinite(x) else math.copysign(math.ceil(x), x),
    "cosine": lambda x: safe(math.cos, x),
    "cosh": lambda x: safe(math.cosh, x),
    "erf": math.erf,
    "exponential": lambda x: safe(math.exp, x),
    "exponential-minus-one": lambda x: safe(math.expm1, x),
    "floor": lambda x: x if not math.isfinite(x) else math.copysign(math.floor(x), x),
    "imag": lambda x: 0.0,
    "log": log,
    "log-plus-one": lambda x: -INF if x == -1 else safe(math.log1p, x),
    "logistic": lambda x: 1 / (1 + safe(math.exp, -x)),
    "negate": lambda x: -x,
    "real": lambda x: x,
    "round-nearest-afz": lambda x: (
        x if not math.isfinite(x) else math.copysign(math.floor(abs(x) + 0.5), x)
    ),
    "round-nearest-even": lambda x: x if not math.isfinite(x) else math.copysign(round(x), x),
    "rsqrt": lambda x: math.copysign(INF, x) if x == 0 else 1 / safe(math.sqrt, x),
    "sign": lambda x: x if math.isnan(x) or x == 0 else math.copysign(1, x),
    "sine": lambda x: safe(math.sin, x),
    "sinh": lambda x: math.copysign(safe(math.sinh, abs(x)), x),
    "sqrt": lambda x: safe(math.sqrt, x),
    "tan": lambda x: safe(math.tan, x),
    "tanh": math.tanh,
}


def same(found: float, expected: float, tolerance: float) -> bool:
    """Equal up to rounding; NaN, infinities and the sign of zero are exact."""
    if math.isnan(expected) or math.isnan(found):
        return math.isnan(expected) and math.isnan(found)
    if expected == 0 or math.isinf(expected):
        return found == expected and math.copysign(1, found) == math.copysign(1, expected)
    return abs(found - expected) <= tolerance * abs(expected) + 5e-324


@pytest.mark.parametrize("opcode", UNARY)
def test_special_values_of_unary_functions(opcode: str) -> None:
    found = apply(opcode, "f64", SPECIAL)
    for x, value in zip(SPECIAL, found.tolist(), strict=True):
        assert same(value, UNARY[opcode](x), 1e-14), (x, value)


@pytest.mark.parametrize("opcode", UNARY)
def test_unary_functions_of_f64_within_rounding(opcode: str) -> None:
    @FEW
    @given(st.floats(-700, 700) | st.floats(-1.5, 1.5))
    def check(x: float) -> None:
        assert same(apply(opcode, "f64", [x]).item(), UNARY[opcode](x), 4e-15)

    check()


@pytest.mark.parametrize("opcode", UNARY)
def test_unary_functions_of_narrow_floats_round_once(opcode: str) -> None:
    """Computed in float32; two units of float32 are far below half a unit of bf16."""

    @FEW
    @given(st.floats(-80, 80, width=16))
    def check(x: float) -> None:
        expected = UNARY[opcode](x)
        found = apply(opcode, "bf16", [x])
        operand = float(np.array(x).astype(found.dtype))
        expected = UNARY[opcode](operand)
        if abs(expected) < 1e-37:
            return
        assert same(float(found[0]), expected, 2**-8 * (1 + 2**-10)), (operand, expected)

    check()


@pytest.mark.parametrize("opcode", ["erf"])
def test_erf_of_f32_is_correctly_rounded(opcode: str) -> None:
    x = np.linspace(-4.5, 4.5, 20001).astype(np.float32)
    expected = np.array([math.erf(value) for value in x.tolist()]).astype(np.float32)
    assert (apply(opcode, "f32", x) == expected).all()


def test_round_away_does_not_round_up_just_below_a_half() -> None:
    below = math.nextafter(0.5, 0)
    found = apply("round-nearest-afz", "f64", [below, 0.5, 1.5, -2.5, 2.0**52 + 1, -0.2])
    assert found.tolist() == [0.0, 1.0, 2.0, -3.0, 2.0**52 + 1, -0.0]
    assert math.copysign(1, found[5]) == -1


PAIRS = [(a, b) for a in SPECIAL for b in SPECIAL]


def c_power(x: float, y: float) -> float:
    if x == 1 or y == 0:
        return 1.0
    if x == 0 and y < 0:
        odd = math.isfinite(y) and y % 2 == 1
        return math.copysign(INF, x) if odd else INF
    try:
        return math.pow(x, y)
    except OverflowError:  # Python tells neither the sign nor the infinity that C gives
        return -INF if x < 0 and y % 2 == 1 else INF
    except ValueError:
        return NAN


def c_fmod(x: float, y: float) -> float:
    return safe(math.fmod, x, y)


def c_divide(x: float, y: float) -> float:
    if y == 0:
        negative = (math.copysign(1, x) < 0) != (math.copysign(1, y) < 0)
        return NAN if x == 0 or math.isnan(x) else (-INF if negative else INF)
    return x / y


def maximum(x: float, y: float) -> float:
    if math.isnan(x) or math.isnan(y):
        return NAN
    return max(x, y, key=lambda value: (value, math.copysign(1, value)))


def minimum(x: float, y: float) -> float:
    return -maximum(-x, -y)


BINARY: dict[str, Callable[[float, float], float]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": c_divide,
    "remainder": c_fmod,
    "power": c_power,
    "maximum": maximum,
    "minimum": minimum,
    "atan2": math.atan2,
}


@pytest.mark.parametrize("opcode", BINARY)
def test_special_pairs_of_binary_functions(opcode: str) -> None:
    found = apply(opcode, "f64", [a for a, _ in PAIRS], [b for _, b in PAIRS])
    for (a, b), value in zip(PAIRS, found.tolist(), strict=True):
        assert same(value, BINARY[opcode](a, b), 1e-14), (a, b, value)


@pytest.mark.parametrize("opcode", BINARY)
def test_binary_functions_of_any_floats(opcode: str) -> None:
    @FEW
    @given(st.floats(), st.floats())
    def check(a: float, b: float) -> None:
        assert same(apply(opcode, "f64", [a], [b]).item(), BINARY[opcode](a, b), 4e-15)

    check()


def test_the_first_nan_of_maximum_and_minimum_wins() -> None:
    first, second = np.array([0x7FC00001, 0x7FC00002], np.uint32).view(np.float32)
    for opcode in ("maximum", "minimum"):
        found = apply(opcode, "f32", np.array([first]), np.array([second]))
        assert found.view(np.uint32).tolist() == [0x7FC00001]


def test_clamp_passes_nan_and_ends_at_the_upper_bound() -> None:
    found = apply(
        "clamp",
        "f32",
        [1.0, NAN, 0.0, 0.0, 5.0],
        [NAN, 0.0, 0.5, 9.0, 3.0],
        [2.0, 1.0, NAN, 1.0, 2.0],
    )
    assert np.isnan(found).tolist() == [True, True, True, False, False]
    assert found[3:].tolist() == [1.0, 2.0]


COMPLEX: dict[str, Callable[[complex], complex]] = {
    "acos": cmath.acos,
    "acosh": cmath.acosh,
    "asin": cmath.asin,
    "asinh": cmath.asinh,
    "atanh": cmath.atanh,
    "cosine": cmath.cos,
    "cosh": cmath.cosh,
    "exponential": cmath.exp,
    "exponential-minus-one": lambda z: cmath.exp(z) - 1,
    "log": cmath.log,
    "log-plus-one": lambda z: cmath.log(complex(1 + z.real, z.imag)),
    "logistic": lambda z: 1 / (1 + cmath.exp(-z)),
    "negate": lambda z: -z,
    "rsqrt": lambda z: 1 / cmath.sqrt(z),
    "sign": lambda z: z / abs(z),
    "sine": cmath.sin,
    "sinh": cmath.sinh,
    "sqrt": cmath.sqrt,
    "tan": cmath.tan,
    "tanh": cmath.tanh,
}


@pytest.mark.parametrize("opcode", COMPLEX)
def test_complex_functions(opcode: str) -> None:
    @FEW
    @given(st.complex_numbers(min_magnitude=0.1, max_magnitude=3))
    def check(z: complex) -> None:
        try:
            expected = COMPLEX[opcode](z)
        except (ZeroDivisionError, ValueError):
            return
        found = apply(opcode, "c128", [z]).item()
        assert abs(found - expected) <= 1e-13 * max(1.0, abs(expected)), (z, found, expected)

    check()


def test_complex_functions_near_zero_keep_their_digits() -> None:
    tiny = [1e-20 + 1e-10j, 1e-12j, -1e-15 + 0j]
    log1p = apply("log-plus-one", "c128", tiny)
    expm1 = apply("exponential-minus-one", "c128", tiny)
    # To second order log(1 + z) = z - z^2/2 and exp(z) - 1 = z + z^2/2.
    for z, low, high in zip(tiny, log1p.tolist(), expm1.tolist(), strict=True):
        assert low.real == pytest.approx((z - z * z / 2).real, rel=1e-12)
        assert high.real == pytest.approx((z + z * z / 2).real, rel=1e-12)


def test_complex_division_by_zero_and_infinity_as_in_c() -> None:
    x = [1 + 1j, 0j, 2 - 1j, complex(INF, 1), complex(INF, NAN), complex(NAN, NAN)]
    y = [0j, complex(INF, INF), complex(-INF, 1), 2 + 0j, 1 + 1j, 0j]
    found = apply("divide", "c128", x, y)
    assert repr(found[:3].tolist()) == "[(inf+infj), 0j, (-0+0j)]"
    assert found[3].real == INF
    assert np.isinf(found[4].real)
    assert np.isnan(found[5])
    assert apply("logistic", "c64", [complex(-INF, 1)]).tolist() == [0j]
    assert apply("rsqrt", "c64", [complex(1, INF)]).tolist() == [0j]


def test_complex_power_of_zero_and_infinity() -> None:
    base = [0j, 0j, complex(INF, 0), complex(INF, 0), 1 + 1j]
    exponent = [0j, 2 + 0j, 2 + 0j, -2 + 0j, 0j]
    found = apply("power", "c128", base, exponent)
    assert found.tolist() == [1, 0, complex(INF, 0), 0, 1]


def test_complex_atan2_of_real_parts_is_the_real_one() -> None:
    y, x = np.array([0.5, -2.0, 3.0]), np.array([1.0, 0.25, -1.0])
    found = apply("atan2", "c128", y.astype(complex), x.astype(complex))
    assert np.allclose(found.real, np.arctan2(y, x), atol=1e-15)
    assert np.allclose(found.imag, 0, atol=1e-15)


def test_a_complex_number_of_infinite_parts_has_these_parts() -> None:
    found = apply("complex", "f32", [INF, NAN, -0.0], [1.0, INF, -0.0], result="c64")
    assert found.dtype == np.complex64
    assert repr(found.tolist()) == "[(inf+1j), (nan+infj), (-0-0j)]"
    assert apply("real", "c64", found, result="f32").dtype == np.float32


def test_arithmetic_raises_no_warning_and_gives_the_ieee_result() -> None:
    """Warnings are errors in this suite."""
    assert apply("divide", "f32", [1.0, 0.0], [0.0, 0.0]).tolist()[0] == INF
    assert apply("exponential", "f16", [100.0]).tolist() == [INF]
    assert apply("add", "f8e4m3", [240.0], [240.0]).astype(float).tolist() == [INF]


def test_select_and_copy_pass_nan_payloads_of_narrow_types() -> None:
    bits = np.array([0x7F81, 0xFFA5], np.uint16)
    values = bits.view(apply("copy", "bf16", [0.0]).dtype)
    assert apply("copy", "bf16", values).view(np.uint16).tolist() == bits.tolist()
    chosen = apply("select", "bf16", np.array([True, False]), values, values)
    assert chosen.view(np.uint16).tolist() == bits.tolist()


def test_total_order_puts_every_bit_pattern_in_its_place() -> None:
    ordered = np.array(
        [
            0xFFC00000,
            0xFF800000,
            0xBF800000,
            0x80000001,
            0x80000000,
            0,
            1,
            0x3F800000,
            0x7F800000,
            0x7FC00000,
        ],
        np.uint32,
    ).view(np.float32)
    for index, value in enumerate(ordered):
        found = apply(
            "compare", "f32", ordered, value[None], result="pred", direction="LT", type="TOTALORDER"
        )
        assert found.tolist() == [other < index for other in range(len(ordered))]


def test_without_a_total_order_nan_equals_nothing() -> None:
    x, y = [NAN, 1.0, NAN, -0.0], [NAN, NAN, 1.0, 0.0]
    expected = {
        "EQ": [False, False, False, True],
        "NE": [True, True, True, False],
        "LT": [False] * 4,
        "GT": [False] * 4,
        "LE": [False, False, False, True],
        "GE": [False, False, False, True],
    }
    for direction, values in expected.items():
        found = apply("compare", "f32", x, y, result="pred", direction=direction)
        assert found.tolist() == values


def test_is_finite() -> None:
    assert apply("is-finite", "f16", [1.0, INF, NAN], result="pred").tolist() == [
        True,
        False,
        False,
    ]
