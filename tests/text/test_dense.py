"""Large literals are read as the grammar reads small ones, and none costs more than its length."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloopt.errors import ParseError
from hloopt.text.dense import read_dense
from hloopt.text.grammar import read, shape_of
from hloopt.text.literals import build
from hloopt.text.parser import parse_module

FLOATS = st.sampled_from(
    ["0", "-0", "1", "-2.5", "3.", "1e-5", "1E+5", "inf", "-inf", "nan", "007"]
)
INTEGERS = st.integers(-128, 127).map(str)
PAIRS = st.tuples(FLOATS, FLOATS).map(lambda pair: f"({pair[0]}, {pair[1]})")
GAPS = st.sampled_from([", ", ",", " ", "\n", ",,"])


@pytest.mark.parametrize(
    ("element", "parts"),
    [("f32", FLOATS), ("bf16", FLOATS), ("s8", INTEGERS), ("pred", INTEGERS), ("c64", PAIRS)],
)
@given(data=st.data())
def test_dense_literals_are_read_as_by_the_grammar(
    element: str, parts: st.SearchStrategy[str], data: st.DataObject
) -> None:
    """The same bits, element by element, whatever stands between the elements."""
    rows = [[data.draw(parts) for _ in range(3)] for _ in range(2)]
    gap = data.draw(GAPS)
    text = f"{{{gap.join('{' + gap.join(row) + '}' for row in rows)}}}"
    shape = shape_of(f"{element}[2,3]{{1,0}}")
    found = read_dense(shape, text)
    wanted = build(shape, read("literal", text), []).array
    assert found is not None
    assert wanted is not None
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(np.ravel(found).view(np.uint8), np.ravel(wanted).view(np.uint8))


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ("f32[3]{0}", "{1,2,.5}"),
        ("f32[3]{0}", "{1,2,+3}"),
        ("f32[3]{0}", "{1,2-3,e}"),
        ("f32[3]{0}", "{1,2,1.2.3}"),
        ("f32[3]{0}", "{1,2,3}}"),
        ("f32[3]{0}", "{{1,2,3}"),
        ("f32[3]{0}", "{1},{2,3}"),
        ("f32[3]{0}", "1,2,3"),
        ("f32[3]{0}", "{1,2,1e}"),
        ("f32[3]{0}", "{1,2,infinf}"),
        ("f32[3]{0}", "{1,2,1e400}"),
        ("f32[3]{0}", "{1,2,1e39}"),
        ("f32[3]{0}", "{1,2,-nan}"),
        ("f32[3]{0}", "{1,2,nan(0x1)}"),
        ("f32[3]{0}", "{1,2}"),
        ("f32[2,2]{1,0}", "{{1,2,3},{4}}"),
        ("f32[2,2]{1,0}", "{1,2,3,4}"),
        ("c64[2]{0}", "{(1,2),(3,4,)}"),
        ("c64[2]{0}", "{(1,2),3,4}"),
        ("c64[2]{0}", "{(1,2,3),(4)}"),
        ("s8[2]{0}", "{1,128}"),
        ("s8[2]{0}", "{1,2.0}"),
        ("s8[2]{0}", "{1,-}"),
        ("u8[2]{0}", "{1,-1}"),
        ("s64[2]{0}", "{1,18446744073709551615}"),
        ("pred[2]{0}", "{true,false}"),
    ],
)
def test_what_is_not_plain_is_left_to_the_grammar(shape: str, text: str) -> None:
    """Forms that printers do not write, and mistakes."""
    assert read_dense(shape_of(shape), text) is None


@pytest.mark.parametrize(
    "middle",
    [
        "c = c64[5000] constant({" + "(1,2)," * 5000 + "x})",
        "c = f32[5000,2] constant({" + "{1,2}," * 5000 + "{1,x}})",
        "c = f32[5000] constant({" + "1," * 5000 + ")",
        "c = f32[] add(" + "(a)b" * 5000,
        "c = f32[] add(" + "((a)b)c" * 5000,
        "c = f32[] add(" + "/*x*/" * 5000,
        "c = (" + "f32[2]{0}, " * 5000 + " parameter(0)",
    ],
    ids=["complex", "nested", "unclosed", "flat", "deeper", "comments", "shape"],
)
def test_a_mistake_at_the_end_of_something_long_is_found(middle: str) -> None:
    """Patterns that tried a text in more than one way would not come to an end here."""
    with pytest.raises(ParseError):
        parse_module(f"HloModule m\nENTRY e {{\n  {middle}\n}}\n")
