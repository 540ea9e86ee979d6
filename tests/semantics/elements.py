"""Arrays of any element type, special values among them, and texts around one instruction."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hloopt.types import DTYPES, DType

Array = np.ndarray[Any, Any]

__all__ = [
    "ELEMENTS",
    "FLOATS",
    "INTEGERS",
    "UNSIGNED",
    "drawn_dims",
    "entry",
    "from_bits",
    "moderate",
    "seeds",
    "shape_of",
    "values",
]

ELEMENTS = tuple(name for name, row in DTYPES.items() if row.is_array)
FLOATS = tuple(name for name in ELEMENTS if DTYPES[name].is_float)
INTEGERS = tuple(name for name in ELEMENTS if DTYPES[name].is_integer)
UNSIGNED = tuple(name for name in INTEGERS if DTYPES[name].kind == "unsigned")

seeds = st.integers(0, 2**32 - 1).map(random.Random)
"""Generators for the values of arrays; shapes and attributes are drawn by hypothesis itself."""


def drawn_dims(
    min_rank: int = 0, max_rank: int = 3, min_size: int = 0, max_size: int = 4
) -> st.SearchStrategy[tuple[int, ...]]:
    """Dimensions of small arrays."""
    sizes = st.integers(min_size, max_size)
    return st.lists(sizes, min_size=min_rank, max_size=max_rank).map(tuple)


def values(name: str, dims: Sequence[int], chooser: random.Random) -> Array:
    """An array of any bits that the type has, and the values that are special in it."""
    row = DTYPES[name]
    if row.is_complex:
        part = "f32" if name == "c64" else "f64"
        both = values(part, (*dims, 2), chooser)
        return np.ascontiguousarray(both).view(row.numpy).reshape(tuple(dims))
    count = prod(dims)
    if row.is_pred:
        return np.array([chooser.random() < 0.5 for _ in range(count)], np.bool_).reshape(dims)
    bits = [chooser.choice(_special(row)) if chooser.random() < 0.4 else chooser.getrandbits(row.bits)
            for _ in range(count)]  # fmt: skip
    return from_bits(bits, row).reshape(dims)


def moderate(name: str, dims: Sequence[int], chooser: random.Random) -> Array:
    """As ``values``, but floats are between a half and two, so that long products stay finite."""
    row = DTYPES[name]
    if not row.is_float:
        return values(name, dims, chooser)
    numbers = [chooser.choice([-1, 1]) * 2.0 ** chooser.uniform(-1, 1) for _ in range(prod(dims))]
    return np.array(numbers).astype(row.numpy).reshape(tuple(dims))


def from_bits(bits: Sequence[int], row: DType) -> Array:
    """Elements with these bits, each in the low bits of its storage."""
    codes = np.array(bits, np.uint64).astype(f"u{row.numpy.itemsize}")
    if row.is_integer and row.bits < 8:
        whole = [code - (1 << row.bits) if row.kind == "signed" and code >> (row.bits - 1) else code
                 for code in bits]  # fmt: skip
        return np.array(whole, np.int8 if row.kind == "signed" else np.uint8).astype(row.numpy)
    return codes.view(row.numpy)


def _special(row: DType) -> Sequence[int]:
    """Bits: zeros, ones, the ends of the range, infinities, NaNs and subnormals by their places."""
    top = (1 << row.bits) - 1
    half = 1 << (row.bits - 1)
    found = {0, 1, top, half, half - 1, half | 1, top - 1}
    if row.is_float:
        words = (1.0, -1.0, 2.0, float("inf"), float("-inf"), float("nan"))
        found.update(
            int.from_bytes(np.array(word).astype(row.numpy).tobytes(), "little") for word in words
        )
    return sorted(code & top for code in found)


def shape_of(name: str, dims: Iterable[int]) -> str:
    """``f32[2,3]``."""
    return f"{name}[{','.join(map(str, dims))}]"


def entry(instruction: str, shapes: Sequence[str], regions: str = "") -> str:
    """A module whose entry has parameters ``p0``, ``p1`` ... of ``shapes`` and one more instruction,
    ``SHAPE opcode(...), ...``.
    """
    lines = [f"  p{number} = {shape} parameter({number})" for number, shape in enumerate(shapes)]
    body = "\n".join(lines)
    return f"HloModule statement\n{regions}\nENTRY entry {{\n{body}\n  ROOT r = {instruction}\n}}\n"
