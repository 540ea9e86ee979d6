"""Literals: text to arrays and back, for every element type."""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hloopt.text.literals import read_literal
from hloopt.text.numbers import literal_text
from hloopt.text.problem import Problem
from hloopt.types import DTYPES, UNBOUNDED, ArrayShape, Layout, Literal, TupleShape, array
from tests.helpers.rarely import examples

ARRAYS = [name for name, row in DTYPES.items() if row.is_array]
SMALL_FLOATS = [name for name, row in DTYPES.items() if row.is_float and row.bits <= 8]
WITH_PAYLOAD = ["f16", "bf16", "f32", "f64", "f8e5m2", "f8e4m3", "f8e3m4"]
ALL_BITS = [*WITH_PAYLOAD, "f8e4m3fn"]  # its NaNs have a sign and no payload


def read(kind: str, dims: tuple[int, ...], text: str) -> np.ndarray[Any, Any]:
    literal = read_literal(array(kind, dims), text, [])
    assert literal.array is not None
    assert literal.array.dtype == DTYPES[kind].numpy
    return literal.array


def some_bytes(seed: int) -> bytes:
    """Random bytes, every second one of those that special values are made of."""
    rng = np.random.default_rng(seed)
    special = np.array([0, 0x80, 0x7F, 0xFF, 0x3F, 0xC0, 0xF0, 1], np.uint8)
    chosen = np.where(rng.random(1300) < 0.5, rng.integers(0, 256, 1300), rng.choice(special, 1300))
    return chosen.astype(np.uint8).tobytes()


def raw(name: str, data: bytes, dims: tuple[int, ...]) -> Literal:
    """A literal of arbitrary bits, cut down to what the element type has."""
    row = DTYPES[name]
    size = row.numpy.itemsize
    values = np.frombuffer(data[: size * int(np.prod(dims))], np.uint8).copy()
    if row.is_pred or row.bits < 8:
        values &= (1 << (1 if row.is_pred else row.bits)) - 1
    stored = values.view(np.dtype(f"u{size}") if size <= 8 else np.complex128)
    if row.bits < 8 and row.is_integer:
        signed = stored.astype(np.int8)
        signed = (
            signed - ((signed >> (row.bits - 1)) << row.bits) if row.kind == "signed" else signed
        )
        return Literal(array(name, dims), signed.astype(row.numpy).reshape(dims))
    return Literal(array(name, dims), stored.view(row.numpy).reshape(dims))


@settings(max_examples=examples(25), deadline=None)
@pytest.mark.parametrize("name", ARRAYS)
@given(
    dims=st.lists(st.integers(0, 3), max_size=4).map(tuple),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_bits_survive(name: str, dims: tuple[int, ...], seed: int) -> None:
    """Print and read give the same bits: all floats, -0.0, infinities, NaNs with their payload."""
    literal = raw(name, some_bytes(seed), dims)
    text = literal_text(literal)
    warnings: list[tuple[int, str]] = []
    again = read_literal(literal.shape, text, warnings)
    assert not warnings
    if name in ALL_BITS or not DTYPES[name].is_float:
        assert again == literal
        return
    # Types with one NaN or two: the values are the same.
    assert np.array_equal(
        np.asarray(again.array).astype(np.float64),
        np.asarray(literal.array).astype(np.float64),
        equal_nan=True,
    )


@settings(max_examples=examples(200), deadline=None)
@given(value=st.floats(width=32))
def test_decimals_are_the_shortest_of_the_type(value: float) -> None:
    """No decimal with fewer digits reads back as the same f32."""
    single = np.float32(value)
    text = literal_text(Literal(array("f32"), np.array(single)))
    assert np.float32(float(text.partition("(")[0])) == single or np.isnan(single)
    digits = sum(character.isdigit() for character in text.partition("e")[0].strip("-0."))
    if digits > 1 and np.isfinite(single):
        shorter = float(f"{float(single):.{digits - 2}e}")
        with np.errstate(over="ignore"):
            assert np.float32(shorter) != single


@pytest.mark.parametrize("name", SMALL_FLOATS)
def test_all_values_of_small_floats(name: str) -> None:
    """Every finite value of a type of at most 8 bits comes back."""
    row = DTYPES[name]
    values = np.arange(1 << row.bits, dtype=np.uint8).view(row.numpy)
    values = values[np.isfinite(values.astype(np.float32))]
    text = literal_text(Literal(array(name, values.shape), values.copy()))
    assert np.array_equal(read(name, values.shape, text).view(np.uint8), values.view(np.uint8))


def test_negative_zero_keeps_its_sign() -> None:
    """It is printed with a dot, so that XLA's parser sees the sign too."""
    assert literal_text(Literal(array("f32"), np.array(-0.0, np.float32))) == "-0.0"
    assert np.signbit(read("f32", (), "-0.0"))
    assert np.signbit(read("bf16", (2,), "{-0, -0e0}").astype(np.float32)).all()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{1, 2, 3}", [1, 2, 3]),
        ("{1 2 3}", [1, 2, 3]),
        ("{1,,2,3,}", [1, 2, 3]),
        ("{ /*i0=0*/ 1, // x\n 2,\n3 }", [1, 2, 3]),
    ],
)
def test_commas_in_arrays_are_noise(text: str, expected: list[int]) -> None:
    """Blanks, commas and comments separate elements."""
    assert read("s32", (3,), text).tolist() == expected


def test_nested_arrays() -> None:
    """A level of braces a dimension; empty ones too."""
    assert read("s8", (2, 1, 2), "{{{1,2}},{{3,-4}}}").tolist() == [[[1, 2]], [[3, -4]]]
    assert read("f32", (2, 0), "{{},{}}").shape == (2, 0)
    assert read("f32", (0, 2), "{}").shape == (0, 2)
    nine = "{" * 9 + "5" + "}" * 9
    assert read("f32", (1,) * 9, nine).item() == 5


def test_complex() -> None:
    """Pairs of real and imaginary part, alone and in arrays."""
    assert read("c64", (), "(1.5, -2)").item() == 1.5 - 2j
    assert read("c128", (2, 1), "{{(1,2)},{(inf, -0.0)}}").tolist() == [
        [1 + 2j],
        [complex("inf-0j")],
    ]


def test_predicates() -> None:
    """Words or integers; any integer but 0 is true."""
    assert read("pred", (4,), "{true, 0, 7, false}").tolist() == [True, False, True, False]


def test_tuples() -> None:
    """Nested literals of a nested shape."""
    shape = TupleShape((array("s32"), TupleShape((array("f32", (2,)), array("pred")))))
    literal = read_literal(shape, "(1, ({2, 3}, true))", [])
    assert literal_text(literal) == "( 1, ( {2, 3}, true ) )"
    assert read_literal(shape, literal_text(literal), []) == literal


def test_wide_integers() -> None:
    """64-bit integers wrap like XLA's lexer; others are exact."""
    assert read("s64", (), "18446744073709551615").item() == -1
    assert read("u64", (), "-1").item() == 2**64 - 1
    assert read("u64", (), "18446744073709551615").item() == 2**64 - 1
    assert read("s64", (), "-9223372036854775808").item() == -(2**63)


def test_rounding_goes_through_double() -> None:
    """The last value before overflow rounds down; the next is an error."""
    assert read("f16", (), "65519").item() == 65504
    with pytest.raises(Problem, match="65520 is out of range for f16"):
        read("f16", (), "65520")
    assert read("f4e2m1fn", (), "6.9").item() == 6
    with pytest.raises(Problem, match="out of range for f4e2m1fn"):
        read("f4e2m1fn", (), "7")


def test_nan_payloads() -> None:
    """Sign and payload are kept where the type has them."""
    assert read("f32", (), "nan(0x7)").view(np.uint32) == 0x7F800007
    assert read("f32", (), "-nan").view(np.uint32) == 0xFFC00000
    assert read("bf16", (2,), "{-nan(0x1), 1}").view(np.uint16).tolist() == [0xFF81, 0x3F80]


def test_a_number_for_an_array_is_its_first_element() -> None:
    """As XLA's parser has it; a warning says so."""
    warnings: list[tuple[int, str]] = []
    literal = read_literal(array("f32", (3,)), "2", warnings)
    assert literal.array is not None
    assert literal.array.tolist() == [2, 0, 0]
    assert warnings == [(0, "a number for f32[3]{0} is its first element; the others are 0")]


def test_a_zero_for_an_array_is_all_of_it() -> None:
    """There is nothing to warn of: every element is what is written."""
    warnings: list[tuple[int, str]] = []
    literal = read_literal(array("s32", (2, 2)), "0", warnings)
    assert literal.array is not None
    assert not literal.array.any()
    assert warnings == []


@pytest.mark.parametrize(
    ("number", "rest", "written"),
    [
        ("0.65", "0", "0.65"),
        ("0", "0", "0"),
        ("-0.0", "0", "-0.0"),
        ("1", "-0.0", None),
        ("0", "1e-45", None),
    ],
)
def test_a_long_array_of_zeros_is_its_first_element(
    number: str, rest: str, written: str | None
) -> None:
    """As it may be read; of a short array every element is written, and zeros with a sign are."""
    for size, long in ((32 * 197 * 16, True), (100, False)):
        values = np.zeros(size, np.float32)
        values[0], values[-1] = float(number), float(rest)
        literal = Literal(array("f32", (size,)), values)
        text = literal_text(literal)
        assert (text == written) == (long and written is not None)
        assert read_literal(array("f32", (size,)), text, []) == literal


@pytest.mark.parametrize(
    ("kind", "dims", "text", "message"),
    [
        ("f32", (1 << 20, 1 << 20), "1", "one number is given for the 1099511627776 elements"),
        ("f32", (1 << 62, 0), "{}", "is too large to have a literal"),
        ("f32", (UNBOUNDED,), "{1}", "has no literals: a dimension has no size"),
        ("s32", (), "9" * 5000, "99999999999999999999999… is out of range for s32"),
        ("s64", (2,), "{1, -" + "9" * 5000 + "}", "-9999999999999999999999… is out of range"),
        ("f32", (), "9" * 5000, "99999999999999999999999… is out of range for f32"),
    ],
)
def test_what_no_machine_holds_is_refused(
    kind: str, dims: tuple[int, ...], text: str, message: str
) -> None:
    """Sizes and digits beyond all measure are a mistake at a place, no crash."""
    with pytest.raises(Problem, match=re.escape(message)):
        read(kind, dims, text)


def test_digits_may_be_many() -> None:
    """Zeros in front change nothing, and any number but zero is true."""
    assert read("s32", (2,), "{1, -" + "0" * 5000 + "7}").tolist() == [1, -7]
    assert read("pred", (3,), "{" + "9" * 5000 + ", -00, 010}").tolist() == [True, False, True]


@pytest.mark.parametrize("name", ["f32", "f64", "bf16", "c64"])
def test_few_values_in_a_large_array(name: str) -> None:
    """What repeats is written as what does not: signs of zero and payloads of NaN are kept."""
    few = "(-0.0, nan)" if name == "c64" else "-0.0"
    values = [few, "(1, inf)" if name == "c64" else "nan(0x1)"] * 1000
    text = f"{{{', '.join(values)}}}"
    literal = read_literal(array(name, (2000,)), text, [])
    assert literal_text(literal) == text


def test_elided() -> None:
    """``{...}`` is a literal without values, of any shape."""
    for shape in (array("f32", (9,)), TupleShape((array("f32"),))):
        literal = read_literal(shape, "{...}", [])
        assert literal.elided
        assert literal_text(literal) == "{...}"


def test_a_big_array_is_quick() -> None:
    """Half a million elements take well under the limit: no Python loop over elements."""
    values = np.linspace(-1, 1, 500_000, dtype=np.float64).reshape(500, 1000)
    text = literal_text(Literal(array("f64", values.shape), values))
    start = time.process_time()
    assert np.array_equal(read("f64", (500, 1000), text), values)
    assert time.process_time() - start < 3


def test_layout_does_not_matter() -> None:
    """Literals are written in logical order whatever the layout of the shape."""
    shape = ArrayShape(DTYPES["s32"], (2, 2), Layout((0, 1)))
    literal = read_literal(shape, "{{1,2},{3,4}}", [])
    assert literal.array is not None
    assert literal.array.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("element", "written", "value"),
    [
        ("s32", "18446744073709551615", -1),
        ("s8", "18446744073709551488", -128),
        ("s64", "9223372036854775808", -(1 << 63)),
        ("u64", "-1", (1 << 64) - 1),
        ("s32", "18446744073709551616", None),
        ("s32", "18446744073709551621", None),
        ("s8", "18446744073709551487", None),
        ("s32", "9223372036854775808", None),
        ("u32", "18446744073709551615", None),
        ("u64", "18446744073709551616", None),
    ],
)
def test_integers_wrap_before_their_type_is_asked(
    element: str, written: str, value: int | None
) -> None:
    """XLA reads 64 bits into a signed word; what does not fit the type then is out of range."""
    if value is None:
        with pytest.raises(Problem, match="is out of range"):
            read(element, (), written)
    else:
        assert int(read(element, (), written)) == value


def test_a_scalar_cannot_be_left_out() -> None:
    """``{...}`` stands for braces, which a scalar has not; XLA refuses it, too."""
    with pytest.raises(Problem, match=r"a literal of shape f32\[\] has no braces"):
        read_literal(array("f32"), "{...}", [])
    assert read_literal(array("f32", (2,)), "{...}", []).elided
