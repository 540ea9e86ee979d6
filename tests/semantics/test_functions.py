"""Functions of real numbers against mpmath.

f64 results are within two units in the last place of the true value; f32 results are the true value, but
for a relative error of 2^-50, rounded; those of narrower types are that rounded again.  The executor's f32
functions may be off by ``MOST_ULP`` units in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hloopt.backends.numpy.quick_math import MOST_ULP
from tests.semantics.formats import FORMATS, array_of, numbers, rounded, width
from tests.semantics.several import module
from tests.semantics.statement import assert_same, evaluate

OPCODES = (
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan2",
    "atanh",
    "cbrt",
    "cosine",
    "cosh",
    "erf",
    "exponential",
    "exponential-minus-one",
    "log",
    "log-plus-one",
    "logistic",
    "power",
    "rsqrt",
    "sine",
    "sinh",
    "tan",
    "tanh",
)

NAN, INF = math.nan, math.inf
mp = mpmath.mp.clone()
mp.prec = 1300
"""Enough for sines of the largest f64 and for powers of exponents of a thousand bits."""


def odd(rule: Callable[[Any], Any], limit: float) -> Callable[[float], Any]:
    """A function with f(-x) = -f(x) from its values at positive numbers; ``limit`` is that at infinity."""

    def function(x: float) -> Any:
        if math.isnan(x) or x == 0:
            return x
        if math.isinf(x):
            return math.copysign(limit, x)
        value = rule(mp.mpf(abs(x)))
        return -value if x < 0 else value

    return function


def on(
    rule: Callable[[Any], Any],
    least: float,
    greatest: float,
    ends: dict[float, float] | None = None,
) -> Callable[[float], Any]:
    """A function on an open interval with its values at some points; NaN outside."""

    def function(x: float) -> Any:
        if ends and x in ends:
            return ends[x]
        return rule(mp.mpf(x)) if least < x < greatest else NAN

    return function


def small(x: Any) -> Any:
    """expm1 by its definition: mpmath has digits enough down to the smallest numbers."""
    return mp.exp(x) - 1 if abs(x) > mp.mpf(2) ** -60 else x + x * x / 2 + x**3 / 6 + x**4 / 24


def near_one(x: Any) -> Any:
    """log(1 + x)."""
    return mp.log(1 + x) if abs(x) > mp.mpf(2) ** -60 else x - x * x / 2 + x**3 / 3 - x**4 / 4


UNARY: dict[str, Callable[[float], Any]] = {
    "acos": on(mp.acos, -1, 1, {1: 0.0, -1: mp.pi}),
    "acosh": on(lambda x: near_one(x - 1 + mp.sqrt((x - 1) * (x + 1))), 1, INF, {1: 0.0, INF: INF}),
    "asin": odd(lambda x: mp.asin(x) if x <= 1 else NAN, NAN),
    "asinh": odd(lambda x: near_one(x + x * x / (1 + mp.sqrt(1 + x * x))), INF),
    "atanh": odd(lambda x: NAN if x > 1 else INF if x == 1 else near_one(2 * x / (1 - x)) / 2, NAN),
    "cbrt": odd(mp.cbrt, INF),
    "cosine": on(mp.cos, -INF, INF),
    "cosh": on(mp.cosh, -INF, INF, {INF: INF, -INF: INF}),
    "erf": odd(mp.erf, 1),
    "exponential": on(mp.exp, -INF, INF, {INF: INF, -INF: 0.0}),
    "exponential-minus-one": lambda x: (
        x if x == 0 else on(small, -INF, INF, {INF: INF, -INF: -1.0})(x)
    ),
    "log": on(mp.log, 0, INF, {0: -INF, INF: INF}),
    "log-plus-one": lambda x: x if x == 0 else on(near_one, -1, INF, {-1: -INF, INF: INF})(x),
    "logistic": on(lambda x: 1 / (1 + mp.exp(-x)), -INF, INF, {INF: 1.0, -INF: 0.0}),
    "rsqrt": lambda x: (
        math.copysign(INF, x) if x == 0 else on(lambda v: 1 / mp.sqrt(v), 0, INF, {INF: 0.0})(x)
    ),
    "sine": odd(mp.sin, NAN),
    "sinh": odd(lambda x: (small(x) - small(-x)) / 2, INF),
    "tan": odd(mp.tan, NAN),
    "tanh": odd(lambda x: small(2 * x) / (mp.exp(2 * x) + 1), 1),
}


def atan2(y: float, x: float) -> Any:
    if math.isnan(y) or math.isnan(x) or y == 0 or math.isinf(y) or math.isinf(x):
        return math.atan2(y, x)  # C's table of special cases
    return mp.atan2(mp.mpf(y), mp.mpf(x))


def power(x: float, y: float) -> Any:
    """C's pow: 1 for base 1 or exponent 0, even beside NaN; a negative base has whole exponents only."""
    if x == 1 or y == 0:
        return 1.0
    if math.isnan(x) or math.isnan(y):
        return NAN
    whole = math.isinf(y) or y == math.floor(y)
    sign = -1.0 if not math.isinf(y) and whole and y % 2 == 1 and math.copysign(1, x) < 0 else 1.0
    if math.isinf(y):
        return 1.0 if x == -1 else INF if (abs(x) > 1) == (y > 0) else 0.0
    if x == 0 or math.isinf(x):
        return sign * (INF if (x == 0) == (y < 0) else 0.0)
    if x < 0 and not whole:
        return NAN
    return sign * mp.exp(mp.mpf(y) * mp.log(mp.mpf(abs(x))))


BINARY = {"atan2": atan2, "power": power}


def exact(value: Any) -> Fraction | float:
    """mpmath's number as a fraction; far beyond every type it is cut to 2^4000 or its inverse."""
    if isinstance(value, (int, float)):
        return float(value)
    sign, mantissa, exponent, bits = mp.mpf(value)._mpf_
    if not mantissa:
        return 0.0
    place = min(max(exponent + bits, -4000), 4000) - bits
    number = mantissa * Fraction(2) ** place
    return -number if sign else number


def allowed(name: str, truth: Fraction | float) -> set[str]:
    """The results that are near enough, as Python writes them."""
    if isinstance(truth, float):
        return {repr(rounded(name, rounded("f32", truth) if name != "f64" else truth))}
    if name != "f64":
        slack = abs(truth) / 2**50
        near = [rounded("f32", truth + side) for side in (-slack, 0, slack)]
        return {repr(rounded(name, value)) for value in near}
    nearest = rounded("f64", truth)
    found = [nearest]
    for direction in (-INF, INF):
        value = nearest
        for _ in range(2):
            value = math.nextafter(value, direction)
            unit = Fraction(math.ulp(nearest) if math.isfinite(nearest) else 2.0**971)
            if math.isfinite(value) and abs(Fraction(value) - truth) <= 2 * unit:
                found.append(value)
    return {repr(value) for value in found}


def is_near(who: str, name: str, value: float, truth: Fraction | float) -> bool:
    """Whether a result is one that is allowed; the executor's f32 functions may be off by ``MOST_ULP``."""
    if repr(value) in allowed(name, truth):
        return True
    if who != "executor" or name == "f64" or isinstance(truth, float):
        return False
    size = min(abs(rounded("f32", truth)), float(FORMATS["f32"].greatest))
    slack = Fraction(MOST_ULP * 2.0 ** max(math.frexp(size)[1] - 24, -149))
    low, high = (rounded(name, rounded("f32", truth + side)) for side in (-slack, slack))
    return low <= value <= high


def hold(
    name: str, calls: list[tuple[str, Callable[..., Any]]], operands: list[list[float]]
) -> None:
    """Each call's result is near the rule's."""
    given_ = [array_of(name, values) for values in operands]
    shape = f"{name}[{len(operands[0])}]"
    text = module([shape] * len(given_), [(shape, call) for call, _ in calls])
    truths = [[exact(rule(*xs)) for xs in zip(*operands, strict=True)] for _, rule in calls]
    for who, results in zip(("interpreter", "executor"), evaluate(text, given_), strict=True):
        for (call, _), found, wanted in zip(calls, results, truths, strict=True):
            for at, (value, truth) in enumerate(zip(numbers(name, found), wanted, strict=True)):
                xs = [values[at] for values in operands]
                assert is_near(who, name, value, truth), (
                    f"{who}: {call} of {xs} in {name} is {value}, not {allowed(name, truth)}"
                )


def telling(name: str) -> list[float]:
    """Numbers at which functions tend to lose digits."""
    form = FORMATS[name]
    sizes = [
        0.0,
        0.5,
        1.0,
        1.5,
        2.0,
        3.0,
        0.1,
        0.75,
        10.0,
        17.25,
        88.0,
        104.5,
        709.5,
        745.0,
        1e5,
        INF,
        NAN,
    ]
    sizes += [
        1 + 2.0**-form.mantissa,
        1 - 2.0 ** (-form.mantissa - 1),
        2.0**-30,
        2.0**-60,
        1e-20,
        1e20,
        1e30,
    ]
    sizes += [
        float(form.greatest),
        2.0**form.least_exponent,
        2.0 ** (form.least_exponent - form.mantissa),
    ]
    sizes += [math.pi / 2, math.pi, 22.0, 355.0, 1e-3, 1e-5, 0.999, 1.001, 5.9, 6.5, 2.9]
    signs = (1.0,) if form.specials == "scale" else (1.0, -1.0)
    return sorted({rounded(name, sign * size) for size in sizes for sign in signs}, key=repr)


NAMES = list(FORMATS)


@pytest.mark.parametrize("name", NAMES)
def test_functions_of_one_number_where_digits_get_lost(name: str) -> None:
    """Special values, the ends of the range, and the neighbourhoods of 0, 1 and pi."""
    hold(name, [(f"{opcode}(p0)", rule) for opcode, rule in UNARY.items()], [telling(name)])


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
def test_functions_of_any_number(name: str) -> None:
    kind = (
        st.floats(width=width(name) if name != "bf16" else 32)
        | st.floats(-20, 20)
        | st.floats(-1, 1)
    )
    number = kind.map(lambda value: rounded(name, value))

    @settings(max_examples=5)
    @given(st.lists(number, min_size=1, max_size=12))
    def examples(values: list[float]) -> None:
        hold(name, [(f"{opcode}(p0)", rule) for opcode, rule in UNARY.items()], [values])

    examples()


@pytest.mark.parametrize("name", ["f8e5m2", "f8e4m3fn", "f16", "bf16", "f32", "f64"])
def test_functions_of_two_numbers(name: str) -> None:
    """All pairs of some special values, and any pairs."""
    calls = [(f"{opcode}(p0, p1)", rule) for opcode, rule in BINARY.items()]
    some = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -2.0,
        3.0,
        -3.0,
        INF,
        -INF,
        NAN,
        float(FORMATS[name].greatest),
    ]
    some = [rounded(name, x) for x in some]
    hold(name, calls, [[x for x in some for _ in some], some * len(some)])
    number = (st.floats(width=32) | st.floats(-4, 4) | st.floats(0.9, 1.1)).map(
        lambda x: rounded(name, x)
    )

    @settings(max_examples=6)
    @given(st.lists(st.tuples(number, number), min_size=1, max_size=12))
    def examples(pairs: list[tuple[float, float]]) -> None:
        hold(name, calls, [list(side) for side in zip(*pairs, strict=True)])

    examples()


@pytest.mark.every_value
@pytest.mark.parametrize("exponent", [2.0, 0.5, -1.0, 1.0, 0.0, 3.0])
@pytest.mark.parametrize("name", ["f32", "f64", "bf16"])
def test_a_constant_exponent_is_as_good_as_any(name: str, exponent: float) -> None:
    """NumPy squares and takes roots by itself, with other special values."""
    values = telling(name)
    size = len(values)
    calls = [
        (f"{name}[]", f"constant({exponent})"),
        (f"{name}[{size}]", "broadcast(r0), dimensions={}"),
        (f"{name}[{size}]", "power(p0, r1)"),
        (f"{name}[{size}]", "power(p0, p1)"),
    ]
    for at in range(size):  # a single base has the stride of a constant too
        first = len(calls)
        calls += [(f"{name}[1]", f"slice(p{side}), slice={{[{at}:{at + 1}]}}") for side in (0, 1)]
        calls.append((f"{name}[1]", f"power(r{first}, r{first + 1})"))
    inputs = [array_of(name, values), array_of(name, [exponent] * size)]
    both = evaluate(module([f"{name}[{size}]"] * 2, calls), inputs)
    for who, results in zip(("interpreter", "executor"), both, strict=True):
        assert_same(results[2], results[3], "a constant exponent")
        assert_same(np.concatenate(results[6::3]), results[3], "one base at a time")
        for value, found in zip(values, numbers(name, results[2]), strict=True):
            assert is_near(who, name, found, exact(power(value, exponent))), value


@pytest.mark.parametrize("wanted", ["mode=highest", "tolerance={atol=0, rtol=0.001, ulps=4}"])
def test_a_tolerance_that_is_asked_for_changes_nothing(wanted: str) -> None:
    """Every result is within the smallest tolerance: no less accurate way is ever taken."""
    values = telling("f32")
    shape = f"f32[{len(values)}]"
    calls = [(shape, "tanh(p0)"), (shape, f"tanh(p0), result_accuracy={{{wanted}}}")]
    for plain, asked in evaluate(module([shape], calls), [array_of("f32", values)]):
        assert_same(asked, plain, wanted)
