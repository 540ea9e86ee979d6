"""Where values come from: iota counts, constants read decimals, parameters and copies pass bits as they are."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from tests.semantics.elements import ELEMENTS, drawn_dims, entry, seeds, shape_of, values
from tests.semantics.formats import FORMATS, array_of, bits_of, rounded, width
from tests.semantics.statement import check, evaluate

OPCODES = ("constant", "copy", "iota", "parameter")

COUNTING = [name for name in ELEMENTS if name != "pred"]


def counted(name, index):
    """The index in a type: integers wrap, floats round by way of f32."""
    if name in FORMATS:
        return rounded(name, Fraction(index) if name == "f64" else rounded("f32", Fraction(index)))
    if name in ("c64", "c128"):
        return complex(counted("f32" if name == "c64" else "f64", index), 0)
    return index


@pytest.mark.parametrize("name", COUNTING)
def test_iota_counts_along_one_dimension(name):
    @settings(max_examples=6)
    @given(drawn_dims(min_rank=1), st.data())
    def examples(dims, data):
        axis = data.draw(st.integers(0, len(dims) - 1))
        want = [counted(name, index[axis]) for index in product(*map(range, dims))]
        text = entry(f"{shape_of(name, dims)} iota(), iota_dimension={axis}", [])
        check(text, [], array_of(name, want, dims))

    examples()


@pytest.mark.parametrize("name", COUNTING)
def test_iota_beyond_the_range_of_the_type(name):
    """Integers begin anew, floats round to even, and go where their conversions go when too large."""
    for size in (70, 530, 2100):
        want = [counted(name, index) for index in range(size)]
        check(entry(f"{name}[{size}] iota(), iota_dimension=0", []), [], array_of(name, want))


def test_pred_does_not_count():
    with pytest.raises(hloopt.errors.VerifyError, match="the element type pred cannot count"):
        hloopt.verify(hloopt.parse(entry("pred[2] iota(), iota_dimension=0", [])))


DECIMALS = [
    "0",
    "-0",
    "1",
    "1.5",
    "-2.25",
    "0.1",
    "3",
    "448",
    "1e-3",
    "6e4",
    "-7e-5",
    "inf",
    "-inf",
    "nan",
    "1e9",
]


def read(name, word):
    """A decimal in a type, by way of f64."""
    if word.lstrip("-") in ("inf", "nan"):
        return rounded(name, float(word))
    value = rounded("f64", Fraction(word))
    return rounded(name, -0.0 if value == 0 and word[0] == "-" else value)


def fits(name, word):
    number = read(name, word)
    if word == "nan":
        return math.isnan(number)
    if word.endswith("inf"):
        return math.isinf(number)
    return math.isfinite(number) and abs(Fraction(word)) <= FORMATS[name].greatest


@pytest.mark.parametrize("name", FORMATS)
def test_constants_of_floats_are_the_nearest_to_their_decimals(name):
    """Those within the range of the type: XLA's parser refuses others, and a NaN that it lacks."""
    words = [word for word in DECIMALS if fits(name, word)]
    want = array_of(name, [read(name, word) for word in words])
    check(entry(f"{name}[{len(words)}] constant({{{', '.join(words)}}})", []), [], want)


@pytest.mark.parametrize("name", [name for name in ELEMENTS if name not in FORMATS])
def test_constants_of_other_types(name):
    """The ends of the range, the words of pred, pairs of complex parts; nested as the dimensions are."""
    if name == "pred":
        words, numbers = ["true", "false", "1", "0"], [True, False, True, False]
    elif name in ("c64", "c128"):
        words, numbers = ["(1, -2)", "(0.5, inf)", "(-0, 0)", "(nan, 3)"], [
            complex(1, -2), complex(0.5, math.inf), complex(-0.0, 0.0), complex(math.nan, 3)
        ]  # fmt: skip
    else:
        bits = width(name)
        least = -(1 << (bits - 1)) if name[0] == "s" else 0
        numbers = [least, least + (1 << bits) - 1, 0, least + (1 << bits) // 2]
        words = [str(number) for number in numbers]
    rows = f"{{ {{ {words[0]}, {words[1]} }}, {{ {words[2]}, {words[3]} }} }}"
    check(entry(f"{name}[2,2] constant({rows})", []), [], array_of(name, numbers, (2, 2)))
    check(entry(f"{name}[] constant({words[0]})", []), [], array_of(name, numbers[:1], ()))


@pytest.mark.parametrize("name", ELEMENTS)
def test_parameters_and_copies_keep_every_bit(name):
    """NaNs with what they carry, in tuples and out of them, whatever the layout of the copy."""

    @settings(max_examples=5)
    @given(drawn_dims(min_rank=2, max_rank=2), seeds)
    def examples(dims, chooser):
        x = values(name, dims, chooser)
        shape = shape_of(name, dims)
        text = f"""HloModule m
ENTRY e {{
  t = ({shape}, ({shape})) parameter(0)
  x = {shape} get-tuple-element(t), index=0
  inner = ({shape}) get-tuple-element(t), index=1
  z = {shape} get-tuple-element(inner), index=0
  p = {shape} parameter(1)
  c = {shape}{{0,1}} copy(x)
  pair = ({shape}, {shape}{{0,1}}) tuple(x, c)
  ROOT r = ({shape}, ({shape}, {shape}{{0,1}}), {shape}) tuple(p, pair, z)
}}
"""
        others = [values(name, dims, chooser) for _ in range(2)]
        for found in evaluate(text, [x, others[0], others[1]]):
            wanted = [others[1], x, x, others[0]]
            for got, want in zip(found, wanted, strict=True):
                assert got.dtype == want.dtype
                assert got.shape == want.shape
                assert bits_of(name, got) == bits_of(name, want)

    examples()


def test_a_copy_of_a_tuple_has_its_elements():
    text = "HloModule m\nENTRY e {\n  p = (f32[2], s32[]) parameter(0)\n  ROOT r = (f32[2], s32[]) copy(p)\n}\n"
    inputs = [array_of("f32", [1.0, -0.0]), array_of("s32", [7], ())]
    check(text, inputs, inputs)
