"""Literals to text: the shortest decimals that read back as the same value of the type."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from hloopt.text.decimals import decimals
from hloopt.text.literals import has_payload, has_signed_nan, mantissa_bits
from hloopt.types import Array, ArrayShape, DType, Literal, of_numpy

__all__ = ["array_text", "literal_text"]


_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_PROBED = 1000  # elements
_FEW = 16
_LONG = 1 << 16  # elements


def literal_text(literal: Literal) -> str:
    """What stands between the parentheses of ``constant(...)``."""
    if literal.elided:
        return "{...}"
    values = literal.array
    if values is None:
        parts = [literal_text(element) for element in literal.elements]
        return f"( {', '.join(parts)} )" if parts else "()"
    assert isinstance(literal.shape, ArrayShape), "an array has an array shape"
    return array_text(literal.shape.dtype, values)


def array_text(dtype: DType, values: Array) -> str:
    """Nested braces around the elements, a row of the last dimension without line breaks."""
    if not values.ndim:
        return _scalar_text(dtype, values.tobytes())
    if values.size > _LONG and not values.reshape(-1)[1:].view(np.uint8).any():
        # A number in the place of an array is its first element, as XLA's parser has it.
        return _scalar_text(dtype, values.reshape(-1)[:1].tobytes())
    return _nested(_element_texts(dtype, values.copy(order="C")), values.shape)


@lru_cache(maxsize=10_000)
def _scalar_text(dtype: DType, raw: bytes) -> str:
    value = np.frombuffer(raw, np.uint8).view(dtype.numpy).reshape(())
    return _element_texts(dtype, value)[0]


def _nested(texts: list[str], dims: tuple[int, ...]) -> str:
    if len(dims) == 1:
        return f"{{{', '.join(texts)}}}" if dims[0] else "{}"
    innermost = True
    for axis in range(len(dims) - 1, 0, -1):
        size, rows = dims[axis], math.prod(dims[:axis])
        left, right = ("{", "}") if innermost and size <= 1 else ("{ ", " }")
        texts = [
            f"{left}{', '.join(texts[row * size : (row + 1) * size])}{right}" for row in range(rows)
        ]
        innermost = False
    return f"{{ {', '.join(texts)} }}" if texts else "{}"


def _element_texts(dtype: DType, values: Array) -> list[str]:
    flat = values.reshape(-1)
    if dtype.is_pred:
        # As in XLA, which writes words for a scalar and digits in an array.
        words = ("0", "1") if values.ndim else ("false", "true")
        return [words[value] for value in flat.tolist()]
    if dtype.is_complex:
        part = of_numpy(flat.real.dtype)
        texts = _float_texts(part, flat.view(part.numpy))
        return [f"({re}, {im})" for re, im in zip(texts[::2], texts[1::2], strict=True)]
    if dtype.is_integer:
        wide = flat.astype(np.int64 if dtype.kind == "signed" else np.uint64)
        return list(map(str, wide.tolist()))
    return _float_texts(dtype, flat)


def _float_texts(dtype: DType, values: Array) -> list[str]:
    """The texts of a flat array: masks and tables repeat few values, each is written once."""
    bits = values.view(_UNSIGNED[values.dtype.itemsize])
    if len(bits) > _FEW and len(_distinct(bits[:_PROBED])) * 4 <= min(len(bits), _PROBED):
        known = _distinct(bits)
        texts = np.array(_texts_of_each(dtype, known.view(values.dtype)), object)
        return list(texts[np.searchsorted(known, bits)])
    return _texts_of_each(dtype, values)


def _distinct(bits: Array) -> Array:
    ordered = np.sort(bits)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))]


def _texts_of_each(dtype: DType, values: Array) -> list[str]:
    texts = decimals(dtype, values)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        unknown = np.flatnonzero(np.isnan(values))
    for index in unknown:
        texts[index] = _nan_text(dtype, values, int(index))
    # An integer goes without its ".0", but for the sign of zero's sake.
    return [text[:-2] if text.endswith(".0") and text != "-0.0" else text for text in texts]


def _nan_text(dtype: DType, values: Array, index: int) -> str:
    """``nan``, with sign and payload where the type has them and they are not the usual ones."""
    if not has_signed_nan(dtype):
        return "nan"
    bits = int(values[index : index + 1].view(_UNSIGNED[values.dtype.itemsize])[0])
    sign = "-" if bits >> (dtype.bits - 1) else ""
    if not has_payload(dtype):
        return f"{sign}nan"
    mantissa = mantissa_bits(dtype)
    payload, usual = bits & ((1 << mantissa) - 1), 1 << (mantissa - 1)
    return f"{sign}nan" if payload == usual else f"{sign}nan({payload:#x})"
