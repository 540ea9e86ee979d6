"""Literals: text to arrays and back, all elements of an array at once.

Numbers go through double precision, as in XLA: a decimal is read as f64 and rounded to the type.
"""

from __future__ import annotations

import math
import re

import ml_dtypes
import numpy as np

from hloopt.text.dense import WORTHWHILE, check_braces, read_dense, rounded
from hloopt.text.grammar import pattern, read
from hloopt.text.problem import Problem, shortened
from hloopt.text.records import LiteralText
from hloopt.types import UNBOUNDED, Array, ArrayShape, DType, Literal, Shape, TupleShape, of_numpy

__all__ = ["build", "read_literal"]

_NEGATIVE_ZERO = re.compile(r"-0++(?![0-9.eE])")
_BEFORE_EXPONENT = frozenset("eE")
_MOST_DIGITS = 20  # of 64 bits, with a sign
_MOST_UNWRITTEN = 1 << 28  # bytes of a literal that its text does not give


def read_literal(shape: Shape, text: str, warnings: list[tuple[int, str]]) -> Literal:
    """The literal ``text`` of ``shape``; raises ``Problem``.  Appends (offset, message) warnings."""
    if isinstance(shape, ArrayShape) and len(text) > WORTHWHILE:
        values = read_dense(shape, _without_comments(text))
        if values is not None:
            warnings += _negative_zeros(shape, text, 0)
            return Literal(shape, values)
    return build(shape, read("literal", text), warnings)


def build(shape: Shape, syntax: LiteralText, warnings: list[tuple[int, str]]) -> Literal:
    """Give a literal its shape."""
    if syntax.form == "elided":
        if not isinstance(shape, (ArrayShape, TupleShape)):
            raise Problem(syntax.offset, f"{shape} has no literals")
        if isinstance(shape, ArrayShape) and not shape.dims:
            raise Problem(syntax.offset, f"a literal of shape {shape} has no braces")
        return Literal(shape, elided=True)
    if isinstance(shape, TupleShape):
        return _tuple(shape, syntax, warnings)
    if not isinstance(shape, ArrayShape) or not shape.dtype.is_array:
        raise Problem(syntax.offset, f"{shape} has no literals")
    text, dims = syntax.text, shape.dims
    _check_size(shape, syntax)
    if syntax.form == "several":
        if not shape.dtype.is_complex or dims:
            raise Problem(syntax.offset, f"expected a literal of shape {shape}, found a tuple")
        if len(syntax.elements) != 2 or any(part.form != "element" for part in syntax.elements):
            raise Problem(syntax.offset, "a complex number is written (real, imaginary)")
        text = f"({syntax.elements[0].text}, {syntax.elements[1].text})"
    elif syntax.form == "element":
        if shape.dtype.is_complex:
            raise Problem(syntax.offset, "a complex number is written (real, imaginary)", text)
        if 0 in dims:
            raise Problem(
                syntax.offset,
                f"a literal of shape {shape} has no elements, found a number",
                text,
            )
    else:
        if not dims:
            raise Problem(syntax.offset, f"a literal of shape {shape} has no braces")
        text = _without_comments(text)
        raw = np.frombuffer(text.encode("ascii", "replace"), np.uint8)
        check_braces(shape, raw, _element_starts(raw), syntax.offset)
    warnings += _negative_zeros(shape, text, syntax.offset)
    values = _elements(shape.dtype, text, syntax.offset)
    if syntax.form == "element" and shape.elements != 1:
        values = _first_element(shape, values, syntax.offset, warnings)
    return Literal(shape, values.reshape(dims))


def _first_element(
    shape: ArrayShape, first: Array, offset: int, warnings: list[tuple[int, str]]
) -> Array:
    """What XLA's parser makes of one number: it leaves the other elements as they were made."""
    values = np.zeros(shape.elements, first.dtype)
    values[:1] = first
    if first[0] != 0:
        message = f"a number for {shape} is its first element; the others are 0"
        warnings.append((offset, message))
    return values


def _check_size(shape: ArrayShape, syntax: LiteralText) -> None:
    """A few characters must not ask for all the memory there is."""
    if UNBOUNDED in shape.dims:
        raise Problem(syntax.offset, f"{shape} has no literals: a dimension has no size")
    if syntax.form == "element" and shape.elements * shape.dtype.bits > 8 * _MOST_UNWRITTEN:
        raise Problem(
            syntax.offset,
            f"one number is given for the {shape.elements} elements of {shape}",
            syntax.text,
        )
    if math.prod(filter(None, shape.dims)) >= 1 << 58:
        raise Problem(syntax.offset, f"{shape} is too large to have a literal")


def _without_comments(text: str) -> str:
    """The text with blanks in the place of comments."""
    if "/" not in text:
        return text
    return pattern("SPACE").sub(lambda match: " " * len(match[0]), text)


def _negative_zeros(shape: ArrayShape, text: str, offset: int) -> list[tuple[int, str]]:
    if not (shape.dtype.is_float or shape.dtype.is_complex):
        return []
    return [
        (offset + match.start(), "-0 is read as -0.0 here; XLA's own parser reads +0")
        for match in _NEGATIVE_ZERO.finditer(text)
        if not match.start() or text[match.start() - 1] not in _BEFORE_EXPONENT
    ]


def _tuple(shape: TupleShape, syntax: LiteralText, warnings: list[tuple[int, str]]) -> Literal:
    if syntax.form != "several":
        raise Problem(
            syntax.offset,
            f"a literal of shape {shape} is written in parentheses",
            syntax.text,
        )
    if len(syntax.elements) != len(shape.elements):
        raise Problem(
            syntax.offset,
            f"expected {len(shape.elements)} elements for {shape}, found {len(syntax.elements)}",
        )
    parts = [
        build(element, part, warnings)
        for element, part in zip(shape.elements, syntax.elements, strict=True)
    ]
    return Literal(shape, elements=tuple(parts))


def _element_starts(raw: Array) -> Array:
    """Where elements begin; a complex number begins at its parenthesis."""
    separator = np.isin(raw, np.frombuffer(b" \t\r\n,{}", np.uint8))
    opening = raw == ord("(")
    if opening.any():
        # "nan(0x1)" is one element, and its parenthesis follows a letter.
        pairs = opening & ~np.concatenate(([False], raw[:-1] == ord("n")))
        if pairs.any():
            return np.flatnonzero(pairs)
    before = np.concatenate(([True], separator[:-1]))
    return np.flatnonzero(~separator & before)


_NO_BRACES = str.maketrans("{},()", "     ")


def _elements(dtype: DType, text: str, offset: int) -> Array:
    if "nan(" in text:
        words = [match[0] for match in pattern("ELEMENT").finditer(text)]
    else:
        words = text.translate(_NO_BRACES).split()
    if dtype.is_complex:
        if (text.count("(") - text.count("nan(")) * 2 != len(words):
            raise Problem(offset, "a complex number is written (real, imaginary)")
        part = np.dtype(np.float32 if dtype.bits == 64 else np.float64)
        return _floats(of_numpy(part), words, text, offset).view(dtype.numpy)
    if "(" in text.replace("nan(", ""):
        raise Problem(
            offset + text.index("("), f"an element of type {dtype.name} has no parentheses"
        )
    if dtype.is_float:
        return _floats(dtype, words, text, offset)
    if dtype.is_pred:
        return _preds(words, text, offset)
    return _integers(dtype, words, text, offset)


def _place(text: str, index: int, offset: int) -> tuple[int, int]:
    """Offset and width of the element with the given index."""
    for number, match in enumerate(re.finditer(r"-?nan\([^)]*\)|[^\s{},()]+", text)):
        if number == index:
            return offset + match.start(), len(match[0])
    return offset, 1


def _wrong(text: str, index: int, offset: int, message: str) -> Problem:
    at, width = _place(text, index, offset)
    return Problem(at, message, width=width)


def _preds(words: list[str], text: str, offset: int) -> Array:
    values = np.empty(len(words), np.bool_)
    for index, word in enumerate(words):
        if word in {"true", "false"}:
            values[index] = word == "true"
        elif _is_integer(word):
            values[index] = word.strip("-0") != ""
        else:
            raise _wrong(text, index, offset, f"a pred is true, false or an integer, not {word}")
    return values


def _is_integer(word: str) -> bool:
    return word.lstrip("-").isdigit()


def _integers(dtype: DType, words: list[str], text: str, offset: int) -> Array:
    try:
        numbers = [int(word) if len(word) <= _MOST_DIGITS else _long(word) for word in words]
    except ValueError:
        index = next(i for i, word in enumerate(words) if not _is_integer(word))
        raise _wrong(
            text,
            index,
            offset,
            f"a literal of type {dtype.name} takes integers, not {words[index]}",
        ) from None
    signed = dtype.kind == "signed"
    low, high = dtype.limits
    # XLA reads every integer of 64 bits into one machine word, and then looks at the type.
    wrapped, least, most = numbers, low, high
    if dtype.bits == 64:
        least, most = -(1 << 63), (1 << 64) - 1
    if numbers and (dtype.bits == 64 or (signed and max(numbers) >= 1 << 63)):
        wrapped = [_wrap(number, signed) for number in numbers]
    checked = numbers if dtype.bits == 64 else wrapped
    if numbers and not (least <= min(checked) and max(checked) <= most):
        index = next(i for i, number in enumerate(checked) if not least <= number <= most)
        raise _wrong(
            text,
            index,
            offset,
            f"{shortened(words[index])} is out of range for {dtype.name} ({low} to {high})",
        )
    wide = np.array(wrapped, np.int64 if signed else np.uint64)
    return wide.astype(dtype.numpy)


def _long(word: str) -> int:
    """An integer of any number of digits: over 64 bits, one that is out of every type's range."""
    if not _is_integer(word):
        raise ValueError(word)
    digits = word.strip("-").lstrip("0") or "0"
    value = int(digits) if len(digits) <= _MOST_DIGITS else 1 << 64
    return -value if word.startswith("-") else value


def _wrap(number: int, signed: bool) -> int:
    if signed and 1 << 63 <= number < 1 << 64:
        return number - (1 << 64)
    if not signed and number < 0:
        return number + (1 << 64)
    return number


def _is_float(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _floats(dtype: DType, words: list[str], text: str, offset: int) -> Array:
    if "nan(" in text or "-nan" in text:
        parts = [_odd_float(dtype, words[i], i, text, offset) for i in range(len(words))]
        return np.array(parts, dtype.numpy) if not parts else np.concatenate(parts)
    try:
        doubles = np.array(list(map(float, words)), np.float64)
    except ValueError:
        index = next(i for i, word in enumerate(words) if not _is_float(word))
        raise _wrong(
            text, index, offset, f"a literal of type {dtype.name} takes numbers, not {words[index]}"
        ) from None
    values, overflown = rounded(dtype, doubles)
    if np.isinf(doubles).any():
        overflown |= np.isinf(doubles) & np.array(["inf" not in word for word in words])
    if dtype.bits < 8:
        overflown = np.abs(doubles) >= _overflow_threshold(dtype)
    if overflown.any():
        index = int(np.flatnonzero(overflown)[0])
        raise _wrong(
            text, index, offset, f"{shortened(words[index])} is out of range for {dtype.name}"
        )
    return values


def _overflow_threshold(dtype: DType) -> float:
    """The largest value and half a unit in its last place, for types that have no infinity."""
    most = largest(dtype)
    return most + 2.0 ** (math.frexp(most)[1] - 2 - mantissa_bits(dtype))


def largest(dtype: DType) -> float:
    """The largest finite value of a float type."""
    return float(ml_dtypes.finfo(dtype.numpy).max)  # type: ignore[no-untyped-call]


def mantissa_bits(dtype: DType) -> int:
    """The width of a float type's mantissa, the hidden bit not counted."""
    return int(ml_dtypes.finfo(dtype.numpy).nmant)  # type: ignore[no-untyped-call]


def _odd_float(dtype: DType, word: str, index: int, text: str, offset: int) -> Array:
    """One element of a literal that has signed NaNs or NaNs with a payload."""
    if "nan" not in word:
        return _floats(dtype, [word], word, offset)
    payload = int(word.partition("(")[2].rstrip(")") or "0", 16)
    value = np.array([math.nan], dtype.numpy)
    bits = value.view(_UNSIGNED[value.dtype.itemsize])
    mantissa = (1 << mantissa_bits(dtype)) - 1
    if "(" in word:
        if not has_payload(dtype) or not 0 < payload <= mantissa:
            raise _wrong(text, index, offset, f"{dtype.name} has no {word}")
        bits[0] = (int(bits[0]) & ~mantissa) | payload
    sign = 1 << (dtype.bits - 1)
    if has_signed_nan(dtype):
        bits[0] = int(bits[0]) & (sign - 1)
        if word.startswith("-"):
            bits[0] = int(bits[0]) | sign
    return value


def has_signed_nan(dtype: DType) -> bool:
    """Whether the type has a NaN with its sign bit set and one without."""
    return has_payload(dtype) or dtype.name == "f8e4m3fn"


def has_payload(dtype: DType) -> bool:
    """Whether the type's NaNs are those of IEEE 754, with a sign and a payload."""
    return dtype.name in {"f16", "bf16", "f32", "f64", "f8e5m2", "f8e4m3", "f8e3m4"}


_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
