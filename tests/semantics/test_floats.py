"""Floats of every type against exact fractions: what rounds once, and what does not round at all.

Narrow types are computed in f32 and rounded to the type, as XLA's evaluator does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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

OPCODES = (
    "abs",
    "add",
    "ceil",
    "clamp",
    "compare",
    "divide",
    "floor",
    "is-finite",
    "maximum",
    "minimum",
    "multiply",
    "negate",
    "remainder",
    "round-nearest-afz",
    "round-nearest-even",
    "select",
    "sign",
    "sqrt",
    "subtract",
)

NAN, INF = math.nan, math.inf
NARROW = [name for name in FORMATS if FORMATS[name].bits <= 8]
ALL = list(FORMATS)


def rounds(name: str, exact: Fraction | float) -> float:
    """An op's result: rounded to its compute type, then to its own."""
    return rounded(name, exact if name in ("f32", "f64") else rounded("f32", exact))


def finite(*values: float) -> bool:
    return all(math.isfinite(value) for value in values)


def add(x: float, y: float) -> Fraction | float:
    if not finite(x, y):
        return x + y
    exact = Fraction(x) + Fraction(y)
    return exact or (-0.0 if negative(x) and negative(y) else 0.0)


def multiply(x: float, y: float) -> Fraction | float:
    return Fraction(x) * Fraction(y) if finite(x, y) and x and y else x * y


def divide(x: float, y: float) -> Fraction | float:
    if math.isnan(x) or math.isnan(y) or (x == 0 == y) or (math.isinf(x) and math.isinf(y)):
        return NAN
    sign = -1.0 if negative(x) != negative(y) else 1.0
    if y == 0 or math.isinf(x):
        return sign * INF
    return sign * 0.0 if x == 0 or math.isinf(y) else Fraction(x) / Fraction(y)


def remainder(x: float, y: float) -> Fraction | float:
    """x minus a multiple of y, of x's sign, smaller than y."""
    if math.isnan(x) or math.isnan(y) or math.isinf(x) or y == 0:
        return NAN
    if math.isinf(y) or x == 0:
        return x
    rest = abs(Fraction(x)) % abs(Fraction(y))
    return (-rest if x < 0 else rest) or math.copysign(0.0, x)


def maximum(x: float, y: float) -> float:
    """NaN where there is one; +0 is above -0."""
    if math.isnan(x) or math.isnan(y):
        return NAN
    return x if (x, not negative(x)) > (y, not negative(y)) else y


def minimum(x: float, y: float) -> float:
    if math.isnan(x) or math.isnan(y):
        return NAN
    return x if (x, not negative(x)) < (y, not negative(y)) else y


def negative(x: float) -> bool:
    return math.copysign(1.0, x) < 0


def to_whole(x: float, whole: Callable[[Fraction], int]) -> float:
    """A whole number by a rule for exact ones; zeros keep the sign of ``x``."""
    if not finite(x):
        return x
    return math.copysign(float(whole(Fraction(x))), x)


def away(x: Fraction) -> int:
    size = math.floor(abs(x) + Fraction(1, 2))
    return -size if x < 0 else size


def sign(x: float) -> float:
    return x if math.isnan(x) or x == 0 else math.copysign(1.0, x)


def root(name: str, x: float) -> float:
    """The square root, correctly rounded to the compute type: the nearest by squaring halves."""
    if math.isnan(x) or x < 0:
        return rounds(name, NAN)
    if x == 0 or math.isinf(x):
        return x
    form = FORMATS["f64" if name == "f64" else "f32"]
    exact = Fraction(x)
    # The root has half the exponent; a unit of its last place squared scales it to a whole number.
    half = (exact.numerator.bit_length() - exact.denominator.bit_length()) // 2
    unit = Fraction(2) ** (half - form.mantissa - 3)
    below = math.isqrt(int(exact / unit**2))
    # Three bits too many and a sticky one decide every rounding, which never meets a tie.
    sticky = Fraction(1, 2) if below**2 * unit**2 != exact else Fraction(0)
    return rounds(name, (below + sticky) * unit)


BINARY: dict[str, Callable[[float, float], Fraction | float]] = {
    "add": add,
    "subtract": lambda x, y: add(x, -y),
    "multiply": multiply,
    "divide": divide,
    "remainder": remainder,
    "maximum": maximum,
    "minimum": minimum,
}
UNARY: dict[str, Callable[[float], float]] = {
    "abs": abs,
    "negate": lambda x: -x,
    "sign": sign,
    "ceil": lambda x: to_whole(x, math.ceil),
    "floor": lambda x: to_whole(x, math.floor),
    "round-nearest-even": lambda x: to_whole(x, round),
    "round-nearest-afz": lambda x: to_whole(x, away),
}
WAYS: dict[str, Callable[[float, float], bool]] = {
    "EQ": lambda x, y: x == y,
    "NE": lambda x, y: x != y,
    "LT": lambda x, y: x < y,
    "LE": lambda x, y: x <= y,
    "GT": lambda x, y: x > y,
    "GE": lambda x, y: x >= y,
}


def place(name: str, code: int) -> int:
    """Where a code stands in the total order: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.

    The one NaN of ``fnuz`` types has the sign bit and is below everything.
    """
    form = FORMATS[name]
    if form.specials == "scale":
        return code
    top = 1 << (form.bits - 1)
    if form.specials == "fnuz" and code == top:
        return -top - 1
    return code if code < top else -(code - top) - 1


def specials(name: str) -> list[int]:
    """Codes of zeros, ones, halves, the ends of the range, subnormals, infinities and NaNs."""
    form = FORMATS[name]
    top = 1 << (form.bits - 1)
    one = encoded(name, 1.0)
    found = {
        0,
        1,
        2,
        one,
        one + 1,
        one - 1,
        top - 1,
        top - 2,
        1 << form.mantissa,
        (1 << form.mantissa) - 1,
    }
    for value in (0.5, 1.5, 2.0, 2.5, 3.0):
        if rounded(name, value) == value:
            found.add(encoded(name, value))
    if form.specials == "ieee":
        infinity = ((1 << form.exponent) - 1) << form.mantissa
        found |= {infinity, infinity - 1, infinity + 1}
        # The largest number with a half, and the places around it.
        found |= {
            encoded(name, 2.0 ** (form.mantissa - 1) + 0.5),
            encoded(name, 2.0**form.mantissa - 0.5),
        }
        found.add(encoded(name, 0.5 - 2.0 ** (-form.mantissa - 2)))
    signs = (0,) if form.specials == "scale" else (0, top)
    return sorted({(code | sign) % (2 * top) for code in found for sign in signs})


def arrays(name: str, codes: Iterable[int]) -> np.ndarray:
    """An array of these codes, NaN payloads and all."""
    from hloopt.types import DTYPES

    storage = DTYPES[name].numpy
    return np.array(list(codes), f"u{storage.itemsize}").view(storage)


def hold_pairs(name: str, pairs: list[tuple[int, int]]) -> None:
    """Ops of two numbers and comparisons, of pairs of codes."""
    x, y = (arrays(name, side) for side in zip(*pairs, strict=True))
    values = list(zip(numbers(name, x), numbers(name, y), strict=True))
    calls = [
        (name, f"{opcode}(p0, p1)", array_of(name, [rounds(name, rule(a, b)) for a, b in values]))
        for opcode, rule in BINARY.items()
    ]
    for way, rule in WAYS.items():
        partial = np.array([rule(a, b) for a, b in values])
        total = np.array([rule(place(name, a), place(name, b)) for a, b in pairs])
        calls.append(("pred", f"compare(p0, p1), direction={way}", partial))
        calls.append(("pred", f"compare(p0, p1), direction={way}, type=FLOAT", partial))
        calls.append(("pred", f"compare(p0, p1), direction={way}, type=TOTALORDER", total))
    check_several([(name, x), (name, y)], calls)


def hold_each(name: str, codes: list[int]) -> None:
    """Ops of one number."""
    x = arrays(name, codes)
    values = numbers(name, x)
    calls = [
        (name, f"{opcode}(p0)", array_of(name, [rounds(name, rule(value)) for value in values]))
        for opcode, rule in UNARY.items()
    ]
    calls.append((name, "sqrt(p0)", array_of(name, [root(name, value) for value in values])))
    calls.append(("pred", "is-finite(p0)", np.array([finite(value) for value in values])))
    check_several([(name, x)], calls)


@pytest.mark.parametrize("name", NARROW)
def test_every_number_of_a_narrow_type(name: str) -> None:
    """All codes for ops of one number; all pairs of those below a byte, bytes with special ones."""
    every = list(range(1 << width(name)))
    hold_each(name, every)
    others = (
        every
        if len(every) <= 16
        else sorted({*specials(name)[::4], 0x7F % len(every), 0x7D % len(every)})
    )
    hold_pairs(name, list(product(every, others)))


@pytest.mark.parametrize("name", [name for name in ALL if name not in NARROW])
def test_all_pairs_of_special_numbers(name: str) -> None:
    hold_each(name, specials(name))
    hold_pairs(name, list(product(specials(name), repeat=2)))


@pytest.mark.parametrize("name", ALL)
def test_any_numbers(name: str) -> None:
    bits = width(name)
    code = st.integers(0, (1 << bits) - 1) | st.sampled_from(specials(name))
    # Numbers of like size: their sums cancel, their quotients are near 1.
    near = st.tuples(code, st.integers(-3, 3)).map(
        lambda pair: (pair[0], (pair[0] + pair[1]) % (1 << bits))
    )

    @settings(max_examples=6)
    @given(st.lists(st.tuples(code, code) | near, min_size=1, max_size=30))
    def examples(pairs: list[tuple[int, int]]) -> None:
        hold_pairs(name, pairs)
        hold_each(name, [x for x, _ in pairs])

    examples()


@pytest.mark.parametrize("name", ALL)
def test_clamp(name: str) -> None:
    """NaN where any of the three is; else at most the upper bound, even when the bounds cross."""

    def clamped(low: float, x: float, high: float) -> float:
        return rounds(name, minimum(maximum(low, x), high))

    codes = specials(name)[:: 5 if len(specials(name)) > 12 else 2]
    triples = list(product(codes, repeat=3))
    sides = [arrays(name, side) for side in zip(*triples, strict=True)]
    values = zip(*(numbers(name, side) for side in sides), strict=True)
    want = array_of(name, [clamped(*three) for three in values])
    check_several([(name, side) for side in sides], [(name, "clamp(p0, p1, p2)", want)])
    low, high = (arrays(name, [code]).reshape(()) for code in (codes[0], codes[-1]))
    x = arrays(name, specials(name))
    (least,), (greatest,) = numbers(name, low), numbers(name, high)
    moved = [clamped(least, value, greatest) for value in numbers(name, x)]
    check_several(
        [(name, low), (name, x), (name, high)],
        [(name, "clamp(p0, p1, p2)", array_of(name, moved))],
    )


@pytest.mark.parametrize("name", [*ALL, "pred", "s4", "u64"])
def test_select_passes_bits_as_they_are(name: str) -> None:
    """By a pred of the operands' dimensions or one for all; NaNs keep what they carry."""
    x = arrays(name, specials(name)) if name in FORMATS else array_of(name, range(8))
    y = x[::-1].copy()
    choice = np.array([at % 3 == 0 for at in range(len(x))])
    want = [
        (a if which else b)
        for which, a, b in zip(choice, bits_of(name, x), bits_of(name, y), strict=True)
    ]
    from tests.semantics.statement import evaluate

    text = (
        "HloModule m\nENTRY e {{\n c = pred[{0}] parameter(0)\n x = {1}[{2}] parameter(1)\n"
        " y = {1}[{2}] parameter(2)\n ROOT r = {1}[{2}] select(c, x, y)\n}}\n"
    )
    for (got,) in evaluate(text.format(len(x), name, len(x)), [choice, x, y]):
        assert bits_of(name, got) == want
    for which in (True, False):
        for (got,) in evaluate(text.format("", name, len(x)), [np.array(which), x, y]):
            assert bits_of(name, got) == bits_of(name, x if which else y)


def test_halves_round_away_from_zero_or_to_even() -> None:
    """Also next to a half, and where every number is whole."""
    for name in ("f16", "bf16", "f32", "f64"):
        mantissa = FORMATS[name].mantissa
        values = [
            0.5,
            1.5,
            2.5,
            2.0**mantissa - 0.5,
            2.0**mantissa + 1,
            2.0 ** (mantissa - 1) + 0.5,
        ]
        below = [decoded(name, encoded(name, value) - 1) for value in values[:3]]
        values += below + [-value for value in values + below]
        away_from_zero = [
            math.copysign(math.floor(abs(Fraction(v)) + Fraction(1, 2)), v) for v in values
        ]
        to_even = [math.copysign(round(abs(Fraction(v))), v) for v in values]
        check_several(
            [(name, array_of(name, values))],
            [
                (
                    name,
                    "round-nearest-afz(p0)",
                    array_of(name, [rounds(name, v) for v in away_from_zero]),
                ),
                (
                    name,
                    "round-nearest-even(p0)",
                    array_of(name, [rounds(name, v) for v in to_even]),
                ),
            ],
        )
