"""Frozen values: text forms, sizes, equality by bytes."""

from __future__ import annotations

import copy
import pickle
import tracemalloc

import numpy as np
import pytest

from hloopt.errors import ParseError
from hloopt.source import Source
from hloopt.types import (
    DTYPES,
    UNBOUNDED,
    ArrayShape,
    BufferShape,
    Layout,
    Literal,
    SliceRange,
    TupleShape,
    array,
    compatible,
    dtype,
    in_numpy,
    leaves,
    of_numpy,
    scalar,
    without_layout,
)


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (array("f32"), "f32[]"),
        (array("bf16", (2, 3)), "bf16[2,3]{1,0}"),
        (ArrayShape(dtype("s8"), (4,)), "s8[4]"),
        (ArrayShape(dtype("u32"), (), Layout((), "T(128)")), "u32[]{:T(128)}"),
        (
            ArrayShape(dtype("f32"), (8, 9), Layout((0, 1), "T(8,128)S(5)", memory_space=5)),
            "f32[8,9]{0,1:T(8,128)S(5)}",
        ),
        (ArrayShape(dtype("f32"), (8, 2), None, (True, False)), "f32[<=8,2]"),
        (ArrayShape(dtype("f32"), (UNBOUNDED,), None, (True,)), "f32[?]"),
        (TupleShape(()), "()"),
        (TupleShape((array("f32"), TupleShape((array("pred"),)))), "(f32[], (pred[]))"),
        (BufferShape(array("f32", (2,))), "b(f32[2]{0})"),
        (ArrayShape(dtype("token"), ()), "token[]"),
    ],
)
def test_shape_text(shape: object, text: str) -> None:
    """``str`` is HLO text."""
    assert str(shape) == text


def test_tuple_text_marks_every_fifth_element() -> None:
    """XLA's own marks make long tuples readable."""
    shape = TupleShape((array("f32"),) * 6)
    assert str(shape) == "(f32[], f32[], f32[], f32[], f32[], /*index=5*/f32[])"


def test_byte_sizes_pack_narrow_elements() -> None:
    """Three 4-bit elements need two bytes; pred needs one byte each."""
    assert array("s4", (3,)).byte_size == 2
    assert array("pred", (3,)).byte_size == 3
    assert array("f6e3m2fn", (3,)).byte_size == 3  # two do not fit into a byte
    assert array("u2", (5,)).byte_size == 2
    assert array("token").byte_size == 0
    assert TupleShape((array("f64", (2,)), array("s4", (3,)))).byte_size == 18


def test_compatible_ignores_layout_only() -> None:
    """Layouts may differ; element type, rank and nesting may not."""
    column = ArrayShape(dtype("f32"), (2, 3), Layout((0, 1)))
    assert compatible(column, array("f32", (2, 3)))
    assert not compatible(array("f32", (2, 3)), array("f32", (3, 2)))
    assert not compatible(array("f32", (2,)), array("s32", (2,)))
    assert not compatible(TupleShape((column,)), column)
    assert without_layout(TupleShape((column,))) == TupleShape((ArrayShape(dtype("f32"), (2, 3)),))


def test_leaves_are_depth_first() -> None:
    """The order of a flat result list."""
    a, b, c = array("f32"), array("s32"), array("pred")
    assert list(leaves(TupleShape((a, TupleShape((b,)), c)))) == [a, b, c]


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_dtypes_are_single_objects(name: str) -> None:
    """Copying and pickling give the same object, since identity is equality."""
    row = dtype(name)
    assert pickle.loads(pickle.dumps(row)) is row
    assert copy.deepcopy(row) is row
    if row.is_array:
        assert of_numpy(row.numpy) is row


def test_literals_are_equal_when_their_bytes_are() -> None:
    """-0.0 is not 0.0; a NaN equals itself; the type counts."""
    assert scalar("f32", 0.0) != scalar("f32", -0.0)
    assert scalar("f32", np.nan) == scalar("f32", np.nan)
    assert scalar("f32", 1) != scalar("s32", 1)
    assert hash(scalar("s32", 7)) == hash(scalar("s32", 7))


def test_bits_that_a_type_does_not_have_do_not_count() -> None:
    """Elements of a narrow type are equal whatever NumPy left in the rest of their bytes."""
    for dims in ((), (2,)):
        kind = array("s4", dims)
        plain = np.full(dims, -8, np.int8).astype(kind.dtype.numpy)
        filled = np.array(plain.view(np.uint8) | 0xF0).view(kind.dtype.numpy)
        assert plain.tobytes() != filled.tobytes()
        assert Literal(kind, plain) == Literal(kind, filled)
        assert Literal(kind, plain) != Literal(kind, np.zeros(dims, kind.dtype.numpy))


@pytest.mark.parametrize("size", [3, 100_000])
def test_equal_literals_have_equal_hashes_and_others_differ(size: int) -> None:
    """Of few bytes and of many, in any layout in memory."""
    values = np.arange(2 * size, dtype=np.float32).reshape(2, size)
    shape = array("f32", (2, size))
    literal, same = Literal(shape, values), Literal(shape, np.asfortranarray(values))
    assert literal == same
    assert hash(literal) == hash(same)
    assert pickle.loads(pickle.dumps(literal)) == literal
    other = values.copy()
    other[1, -1] = -1
    assert literal != Literal(shape, other)
    assert literal != Literal(array("f32", (size, 2)), values.reshape(size, 2))
    zeros = np.zeros((2, size), np.float32)
    assert Literal(shape, zeros) != Literal(shape, -zeros)


def test_a_large_literal_is_compared_without_a_copy() -> None:
    """Its key, its hash and whether all its elements are one take no memory to speak of."""
    values = np.arange(1 << 20, dtype=np.float64)
    ones, shape = np.ones(1 << 20), array("f64", (1 << 20,))
    tracemalloc.start()
    try:
        first, second = Literal(shape, values), Literal(shape, values)
        assert first == second
        assert hash(first) == hash(second)
        assert first.splat is None
        assert Literal(shape, ones).splat == 1
        assert tracemalloc.get_traced_memory()[1] < values.nbytes / 4
    finally:
        tracemalloc.stop()


def test_an_elided_literal_equals_only_itself() -> None:
    """Nobody knows what it holds."""
    one, two = (Literal(array("f32", (9,)), elided=True) for _ in range(2))
    assert one == one
    assert one != two


def test_literal_arrays_are_read_only() -> None:
    """A shared value cannot be changed by accident."""
    literal = scalar("f32", 1.0)
    assert literal.array is not None
    with pytest.raises(ValueError, match="read-only"):
        literal.array[...] = 2


@pytest.mark.parametrize(
    ("values", "splat"),
    [([1.0, 1.0], True), ([0.0, -0.0], False), ([np.nan, np.nan], True), ([], False)],
)
def test_splat_compares_bytes(values: list[float], splat: bool) -> None:
    """A splat has one bit pattern in all elements."""
    literal = Literal(array("f32", (len(values),)), np.array(values, np.float32))
    assert (literal.splat is not None) is splat


def test_slice_range_size() -> None:
    """The limit is exclusive and a stride rounds up."""
    assert SliceRange(0, 5, 2).size == 3
    assert SliceRange(3, 3).size == 0


def test_source_places_and_excerpts() -> None:
    """Lines and columns count from 1; the caret stands below the place."""
    source = Source("ab\n\tcd ef\r\nlast", "m.hlo")
    error = source.error(ParseError, source.text.index("ef"), "what is this", width=2)

    assert (error.line, error.column) == (2, 5)
    assert str(error) == "m.hlo:2:5: error: what is this\n cd ef\n    ^^"


@pytest.mark.parametrize(
    ("before", "shown", "columns"),
    [
        ("\ta ", " a ", 3),
        ("\x1b[31m\x07\x9b", " [31m  ", 7),
        ("名前 ", "名前 ", 5),
        ("e\u0301 ", "e\u0301 ", 2),
        ("größe ", "größe ", 6),
    ],
)
def test_the_caret_stands_below_its_character(before: str, shown: str, columns: int) -> None:
    """Whatever is as wide as two letters, or none, in a terminal; which gets no control characters."""
    text, caret = Source(f"{before}bad\n").excerpt(len(before), 3).split("\n")
    assert text == f"{shown}bad"
    assert caret == f"{' ' * columns}^^^"


def test_excerpts_of_long_lines_are_cut_around_the_place() -> None:
    """A megabyte on one line shows as one window."""
    source = Source("x" * 5000 + "HERE" + "y" * 5000)
    shown, caret = source.excerpt(5000, 4).split("\n")

    assert shown.startswith("…")
    assert shown.endswith("…")
    assert len(shown) < 200
    assert shown[caret.index("^") : caret.index("^") + 4] == "HERE"


def test_a_place_past_the_end_is_the_end() -> None:
    """Truncated files report their last line."""
    error = Source("abc").error(ParseError, 99, "cut off")
    assert (error.line, error.column) == (1, 4)


def test_types_of_numpy_are_known_in_copies_from_other_processes() -> None:
    """An unpickled array has a copy of its type, of which NumPy itself does not say that it is built in."""
    for name, is_plain in (("f32", True), ("pred", True), ("c64", True), ("bf16", False), ("f8e5m2", False)):  # fmt: skip
        array = np.zeros(2, dtype(name).numpy)
        assert in_numpy(array.dtype) == is_plain, name
        assert in_numpy(pickle.loads(pickle.dumps(array)).dtype) == is_plain, name
