"""Complex numbers: arithmetic against fractions, functions against mpmath, special values against C's Annex G.

The tables of Annex G are taken from ``cmath``.  c64 is computed in c128 and rounded once, so that each of
its parts errs by half a unit; c128 errs by some units of the size of the whole number.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.semantics.formats import array_of, numbers, rounded
from tests.semantics.several import check_several, module
from tests.semantics.statement import evaluate

OPCODES = ("complex", "imag", "real")

NAN, INF = math.nan, math.inf
PART = {"c64": "f32", "c128": "f64"}
mp = mpmath.mp.clone()
mp.prec = 400

UNARY: dict[str, Callable[[Any], Any]] = {
    "acos": mp.acos,
    "acosh": mp.acosh,
    "asin": mp.asin,
    "asinh": mp.asinh,
    "atanh": mp.atanh,
    "cosine": mp.cos,
    "cosh": mp.cosh,
    "exponential": mp.exp,
    "exponential-minus-one": lambda z: mp.exp(z) - 1,
    "log": mp.log,
    "log-plus-one": lambda z: mp.log(1 + z),
    "logistic": lambda z: 1 / (1 + mp.exp(-z)),
    "rsqrt": lambda z: 1 / mp.sqrt(z),
    "sign": lambda z: z / abs(z),
    "sine": mp.sin,
    "sinh": mp.sinh,
    "sqrt": mp.sqrt,
    "tan": mp.tan,
    "tanh": mp.tanh,
}
ANNEX: dict[str, Callable[[complex], complex]] = {
    "acos": cmath.acos,
    "acosh": cmath.acosh,
    "asin": cmath.asin,
    "asinh": cmath.asinh,
    "atanh": cmath.atanh,
    "cosine": cmath.cos,
    "cosh": cmath.cosh,
    "exponential": cmath.exp,
    "log": cmath.log,
    "sine": cmath.sin,
    "sinh": cmath.sinh,
    "sqrt": cmath.sqrt,
    "tan": cmath.tan,
    "tanh": cmath.tanh,
}
PARTS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, INF, -INF, NAN]
SPECIAL = [complex(a, b) for a, b in product(PARTS, repeat=2)]


def run(
    name: str, calls: list[tuple[str, str]], operands: list[list[complex]]
) -> list[list[list[complex]]]:
    """The results of calls, by the interpreter and by the executor."""
    given_ = [array_of(name, values) for values in operands]
    shape = f"{name}[{len(operands[0])}]"
    text = module(
        [shape] * len(given_), [(f"{kind}[{len(operands[0])}]", call) for kind, call in calls]
    )
    kinds = [kind for kind, _ in calls]
    return [
        [numbers(kind, found) for kind, found in zip(kinds, results, strict=True)]
        for results in evaluate(text, given_)
    ]


def close(name: str, found: complex, truth: Any, units: float = 8.0) -> bool:
    """Whether the error is half a unit of c64, or some units of c128, of the size of the true number."""
    z = mp.mpc(truth)
    error = abs(mp.mpc(found) - z)
    if name == "c64":
        return bool(error <= mp.mpf(2) ** -24 * abs(z) * 1.001 + mp.mpf(2) ** -149)
    return bool(error <= units * mp.mpf(2) ** -53 * abs(z) + mp.mpf(2) ** -1074)


def nonzero(low: float, high: float) -> st.SearchStrategy[float]:
    size = st.floats(math.log2(low), math.log2(high)).map(lambda power: 2.0**power)
    return st.builds(lambda value, sign: sign * value, size, st.sampled_from([1.0, -1.0]))


@pytest.mark.parametrize("name", PART)
def test_functions_near_to_and_far_from_zero(name: str) -> None:
    """Off the axes, where no function has its cut."""
    part = (nonzero(1e-30, 1e-3) | nonzero(0.01, 20.0)).map(lambda x: rounded(PART[name], x))

    @settings(max_examples=12)
    @given(st.lists(st.builds(complex, part, part), min_size=1, max_size=10))
    def examples(values: list[complex]) -> None:
        for who, results in zip(
            ("interpreter", "executor"),
            run(name, [(name, f"{opcode}(p0)") for opcode in UNARY], [values]),
            strict=True,
        ):
            for (opcode, rule), found in zip(UNARY.items(), results, strict=True):
                for z, got in zip(values, found, strict=True):
                    truth = rule(mp.mpc(z))
                    assert close(name, got, truth), (
                        f"{who}: {opcode}({z}) is {got}, not {complex(truth)}"
                    )

    examples()


@pytest.mark.parametrize("name", PART)
def test_the_logistic_function_next_to_its_poles(name: str) -> None:
    """At odd multiples of pi i, where 1 and exp(-z) cancel."""
    values = [
        complex(1e-3, 3.1415),
        complex(-1e-5, 3.14160156),
        complex(0.0, 3.1415927),
        complex(0.25, -9.4247),
    ]
    values = [rounds_parts(name, z) for z in values]
    for (found,) in run(name, [(name, "logistic(p0)")], [values]):
        for z, got in zip(values, found, strict=True):
            truth = UNARY["logistic"](mp.mpc(z))
            assert close(name, got, truth), f"{z}: {got}, not {complex(truth)}"


@pytest.mark.parametrize("name", PART)
def test_special_values_are_those_of_annex_g(name: str) -> None:
    """Infinities, NaN and signed zeros; what C calls invalid has a NaN in it."""
    for results in run(name, [(name, f"{opcode}(p0)") for opcode in ANNEX], [SPECIAL]):
        for (opcode, rule), found in zip(ANNEX.items(), results, strict=True):
            for z, got in zip(SPECIAL, found, strict=True):
                what = f"{opcode}({z}) is {got}"
                if is_newer(opcode, z):
                    continue
                try:
                    want = rule(z)
                except ValueError:
                    assert special_without_table(opcode, z, got) or cmath.isnan(got), what
                    continue
                for side, wanted in both(got, want):
                    # Beside a NaN, and at an angle that is none, Annex G leaves signs open.
                    angle = z.real if opcode in ("cosine", "sine", "tan") else z.imag
                    if cmath.isnan(want) or not math.isfinite(angle):
                        side, wanted = abs(side), abs(wanted)
                    assert same_part(name, side, wanted), f"{what}, not {want}"


def is_newer(opcode: str, z: complex) -> bool:
    """C17 knows a part of acosh(0 + i NaN), tanh(0 + i NaN) and tan(NaN + i 0); C99 and cmath do not."""
    if opcode == "tan":
        return z.imag == 0 and not math.isfinite(z.real)
    return opcode in ("acosh", "tanh") and z.real == 0 and not math.isfinite(z.imag)


def special_without_table(opcode: str, z: complex, got: complex) -> bool:
    """Poles on which Python raises an exception: log(0) and atanh(1)."""
    if opcode == "log":
        return z == 0 and got.real == -INF
    return opcode == "atanh" and abs(z) == 1 and got.real == math.copysign(INF, z.real)


def same_part(name: str, got: float, want: float) -> bool:
    """Equal, the sign of zero too, or near."""
    if math.isnan(want) or math.isinf(want) or want == 0:
        return repr(got) == repr(want)
    return abs(got - want) <= abs(want) * (1e-7 if name == "c64" else 1e-15)


@pytest.mark.parametrize("name", PART)
def test_signs_of_zeros_show_the_side_of_a_cut(name: str) -> None:
    """Conjugation commutes with every function: the value below the cut is the conjugate of that above."""
    axis = [complex(x, zero) for x in (-3.0, -1.5, -0.5, 0.5, 1.5, 3.0) for zero in (0.0, -0.0)]
    conjugate = [complex(z.real, -z.imag) for z in axis]
    opcodes = ["acos", "acosh", "asin", "asinh", "atanh", "log", "log-plus-one", "sqrt"]
    calls = [(name, f"{opcode}({side})") for opcode in opcodes for side in ("p0", "p1")]
    for results in run(name, calls, [axis, conjugate]):
        for number, opcode in enumerate(opcodes):
            above, below = results[2 * number], results[2 * number + 1]
            for z, one, other in zip(axis, above, below, strict=True):
                assert one.real == other.real, f"{opcode}({z})"
                assert repr(one.imag) == repr(-other.imag), f"{opcode}({z})"


def quotient(x: complex, y: complex) -> tuple[Fraction, Fraction]:
    a, b, c, d = (Fraction(part) for part in (x.real, x.imag, y.real, y.imag))
    size = c * c + d * d
    return (a * c + b * d) / size, (b * c - a * d) / size


def near_part(name: str, got: float, truth: Fraction, size: Fraction) -> bool:
    """c64 rounds each part once; c128 errs by units of the whole."""
    if name == "c64":
        slack = abs(truth) / 2**48
        return got in [rounded("f32", truth + side) for side in (-slack, 0, slack)]
    wanted = rounded("f64", truth)
    if not math.isfinite(wanted) or not math.isfinite(got):
        return got == wanted
    return abs(Fraction(got) - truth) <= 4 * size / 2**53 + Fraction(1, 2**1073)


@pytest.mark.parametrize("name", PART)
def test_arithmetic_of_finite_numbers(name: str) -> None:
    """Also where squares of the parts overflow or vanish."""
    limits = (1e-30, 1e30) if name == "c64" else (1e-290, 1e290)
    part = (nonzero(*limits) | nonzero(0.1, 10.0)).map(lambda x: rounded(PART[name], x))
    number = st.builds(complex, part, part)
    calls = [(name, f"{opcode}(p0, p1)") for opcode in ("add", "subtract", "multiply", "divide")]
    calls += [(name, "negate(p0)"), (PART[name], "abs(p0)")]

    @settings(max_examples=30)
    @given(st.lists(st.tuples(number, number), min_size=1, max_size=12))
    def examples(pairs: list[tuple[complex, complex]]) -> None:
        xs, ys = ([pair[side] for pair in pairs] for side in (0, 1))
        for total, rest, product_, over, minus, size in run(name, calls, [xs, ys]):
            for at, (x, y) in enumerate(pairs):
                assert total[at] == rounds(
                    name, *(Fraction(p) + Fraction(q) for p, q in both(x, y))
                )
                assert rest[at] == rounds(name, *(Fraction(p) - Fraction(q) for p, q in both(x, y)))
                assert product_[at] == product_of(name, x, y), (x, y)
                assert minus[at] == -x
                true = quotient(x, y)
                whole = abs(true[0]) + abs(true[1])
                assert near_part(name, over[at].real, true[0], whole), (x, y, over[at])
                assert near_part(name, over[at].imag, true[1], whole), (x, y, over[at])
                length = mp.hypot(x.real, x.imag)
                assert abs(mp.mpf(size[at]) - length) <= length * mp.mpf(2) ** (
                    -52 if name == "c128" else -24
                )

    examples()


def both(x: complex, y: complex) -> list[tuple[float, float]]:
    return [(x.real, y.real), (x.imag, y.imag)]


def rounds(name: str, real: Fraction, imag: Fraction) -> complex:
    return complex(rounded(PART[name], real), rounded(PART[name], imag))


def product_of(name: str, x: complex, y: complex) -> complex:
    """(ac - bd) + (ad + bc)i in Python's f64, in which products of f32 are exact."""
    a, b, c, d = x.real, x.imag, y.real, y.imag
    return complex(rounded(PART[name], a * c - b * d), rounded(PART[name], a * d + b * c))


def test_products_and_quotients_with_infinities() -> None:
    """Products are the plain formula, as in XLA's CPU code; quotients follow Annex G.5.1."""
    rows = {
        "multiply": [
            (complex(INF, 1), complex(2, 1), complex(INF, INF)),
            (complex(INF, 0), complex(2, 0), complex(INF, NAN)),
            (complex(INF, INF), complex(0, 0), complex(NAN, NAN)),
        ],
        "divide": [
            (complex(1, 1), complex(0.0, 0.0), complex(INF, INF)),
            (complex(1, -2), complex(-0.0, 0.0), complex(-INF, INF)),
            (complex(INF, 1), complex(-0.0, -0.0), complex(-INF, -INF)),
            (complex(0, 0), complex(0, 0), complex(NAN, NAN)),
            (complex(NAN, NAN), complex(0, 0), complex(NAN, NAN)),
            (complex(INF, 1), complex(2, 1), complex(INF, -INF)),
            (complex(INF, INF), complex(1, 3), complex(INF, NAN)),
            (complex(INF, NAN), complex(1, 1), complex(INF, -INF)),
            (complex(1, 1), complex(INF, INF), complex(0.0, 0.0)),
            (complex(2, -1), complex(-INF, 1), complex(-0.0, 0.0)),
            (complex(INF, 1), complex(INF, 1), complex(NAN, NAN)),
        ],
    }
    for opcode, cases in rows.items():
        xs, ys, wants = (list(column) for column in zip(*cases, strict=True))
        for name in PART:
            check_several(
                [(name, array_of(name, xs)), (name, array_of(name, ys))],
                [(name, f"{opcode}(p0, p1)", array_of(name, wants))],
            )


@pytest.mark.parametrize("name", PART)
def test_powers(name: str) -> None:
    """exp(y log x), which errs by units of its logarithm in c128."""
    part = nonzero(0.05, 20.0).map(lambda x: rounded(PART[name], x))
    number = st.builds(complex, part, part)
    whole = st.integers(-12, 12).map(lambda n: complex(n, 0))

    @settings(max_examples=15)
    @given(st.lists(st.tuples(number, number | whole), min_size=1, max_size=10))
    def examples(pairs: list[tuple[complex, complex]]) -> None:
        xs, ys = ([pair[side] for pair in pairs] for side in (0, 1))
        for (found,) in run(name, [(name, "power(p0, p1)")], [xs, ys]):
            for x, y, got in zip(xs, ys, found, strict=True):
                log = mp.mpc(y) * mp.log(mp.mpc(x))
                truth = mp.exp(log)
                if abs(truth) > 1e37 or abs(truth) < 1e-30:
                    continue
                assert close(name, got, truth, 4 * (2 + float(abs(log)))), f"{x} ^ {y} is {got}"

    examples()


def test_powers_of_special_numbers() -> None:
    """What is neither finite nor one of these rules is NaN in both parts."""
    nan = complex(NAN, NAN)
    rows = [
        (complex(NAN, 1), 0j, 1 + 0j),
        (1 + 0j, complex(INF, NAN), 1 + 0j),
        (0j, 0j, 1 + 0j),
        (0j, 2 + 1j, 0j),
        (0j, complex(INF, 0), 0j),
        (complex(INF, 0), 2 + 0j, complex(INF, 0)),
        (complex(INF, 0), -2 + 0j, 0j),
        (complex(INF, 0), 2 + 1j, nan),
        (2 + 0j, complex(INF, 0), nan),
        (complex(NAN, 0), 2 + 0j, nan),
        (complex(0, 1e30), -12 + 0j, 0j),
    ]
    xs, ys, wants = (list(column) for column in zip(*rows, strict=True))
    for name in PART:
        check_several(
            [
                (name, array_of(name, [rounds_parts(name, x) for x in xs])),
                (name, array_of(name, ys)),
            ],
            [(name, "power(p0, p1)", array_of(name, wants))],
            signed_zeros=False,
            atol=1e-300,
        )


def rounds_parts(name: str, z: complex) -> complex:
    return complex(rounded(PART[name], z.real), rounded(PART[name], z.imag))


@pytest.mark.parametrize("name", PART)
def test_the_angle_of_two_complex_numbers(name: str) -> None:
    """-i log((x + iy) / sqrt(x^2 + y^2)); of great numbers too."""
    great = nonzero(1e25, 1e30) if name == "c64" else nonzero(1e200, 1e300)
    part = (nonzero(0.1, 10.0) | great).map(lambda x: rounded(PART[name], x))

    @settings(max_examples=15)
    @given(st.lists(st.tuples(*[st.builds(complex, part, part)] * 2), min_size=1, max_size=10))
    def examples(pairs: list[tuple[complex, complex]]) -> None:
        ys, xs = ([pair[side] for pair in pairs] for side in (0, 1))
        for (found,) in run(name, [(name, "atan2(p0, p1)")], [ys, xs]):
            for y, x, got in zip(map(mp.mpc, ys), map(mp.mpc, xs), found, strict=True):
                squares = x * x + y * y
                if abs(squares) < 1e-3 * (abs(x) ** 2 + abs(y) ** 2):
                    continue  # near a pole
                truth = -1j * mp.log((x + 1j * y) / mp.sqrt(squares))
                # Next to the cut of the logarithm both of its sides are right.
                error = min(abs(mp.mpc(got) - truth + turn * mp.pi) for turn in (-2, 0, 2))
                assert error <= (1e-6 if name == "c64" else 1e-12) * (1 + abs(truth)), (y, x, got)

    examples()


@pytest.mark.parametrize("name", PART)
def test_parts(name: str) -> None:
    """Parts are as they are, beside whatever: infinities do not become NaN. Sizes are infinite beside NaN."""
    part = PART[name]
    reals, imags = ([getattr(z, side) for z in SPECIAL] for side in ("real", "imag"))
    check_several(
        [(part, array_of(part, reals)), (part, array_of(part, imags))],
        [
            (name, "complex(p0, p1)", array_of(name, SPECIAL)),
            (part, "real(p0)", array_of(part, reals)),
            (part, "imag(p0)", array_of(part, [0.0] * len(reals))),
        ],
    )
    sizes = [rounded(part, math.hypot(*pair)) for pair in zip(reals, imags, strict=True)]
    signs = [
        0j if z == 0 else complex(z.real / size, z.imag / size)
        for z, size in zip(SPECIAL, map(abs, SPECIAL), strict=True)
    ]
    pairs = list(zip(SPECIAL, SPECIAL[1:] + SPECIAL[:1], strict=True))
    check_several(
        [(name, array_of(name, SPECIAL)), (name, array_of(name, [other for _, other in pairs]))],
        [
            (part, "real(p0)", array_of(part, reals)),
            (part, "imag(p0)", array_of(part, imags)),
            (part, "abs(p0)", array_of(part, sizes)),
            ("pred", "compare(p0, p1), direction=EQ", np.array([a == b for a, b in pairs])),
            ("pred", "compare(p0, p1), direction=NE", np.array([a != b for a, b in pairs])),
        ],
    )
    check_several(
        [(name, array_of(name, SPECIAL))],
        [(name, "sign(p0)", array_of(name, [rounds_parts(name, z) for z in signs]))],
        rtol=2e-7 if name == "c64" else 3e-16,
    )
