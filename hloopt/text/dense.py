"""Large array literals, read without a Python object for each element.

Only what printers write is read here: numbers, blanks, commas and braces.  Anything else, and every mistake,
is left to the grammar, which takes the elements one by one and finds the place of a mistake.
"""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np

from hloopt.text.problem import Problem
from hloopt.types import Array, ArrayShape, DType, of_numpy

__all__ = ["WORTHWHILE", "check_braces", "read_dense", "rounded"]


WORTHWHILE = 500  # characters of a literal; shorter ones are read as quickly by the grammar
_SURE_DIGITS = 18  # more may not fit 64 bits
_BLANKS = b" \t\r\n,"
_NUMBERS = b"0123456789-"


def _table(characters: bytes) -> Array:
    table = np.zeros(256, np.bool_)
    table[np.frombuffer(characters, np.uint8)] = True
    return table


_SEPARATORS = _table(_BLANKS + b"{}()")
_BRACES = _table(b"{}")
_DIGITS = _table(b"0123456789")
_INTEGERS = _table(_BLANKS + b"{}" + _NUMBERS)
_FLOATS = _table(_BLANKS + b"{}" + _NUMBERS + b".eE+naif")
_COMPLEX = _table(_BLANKS + b"{}()" + _NUMBERS + b".eE+naif")


def read_dense(shape: ArrayShape, text: str) -> Array | None:
    """The elements of ``{{1, 2}, {3, 4}}`` in the type and dimensions of ``shape``, or None where the text
    is not plain or not right.
    """
    dtype = shape.dtype
    allowed = _COMPLEX if dtype.is_complex else _FLOATS if dtype.is_float else _INTEGERS
    if not (text.isascii() and shape.dims):
        return None
    raw = np.frombuffer(text.encode(), np.uint8)
    if not allowed[raw].all():
        return None
    separators = _SEPARATORS[raw]
    starts = np.flatnonzero(~separators & np.concatenate(([True], separators[:-1])))
    if dtype.is_complex and not _paired(raw, starts):
        return None
    elements = starts[::2] if dtype.is_complex else starts
    if len(elements) != shape.elements or not _is_regular(shape, raw, elements):
        return None
    plain = raw.copy()
    plain[separators] = ord(" ")
    if allowed is _INTEGERS:
        values = _integers(dtype, plain, separators, starts)
    else:
        values = _floats(dtype, plain, text)
    return None if values is None else values.reshape(shape.dims)


def check_braces(shape: ArrayShape, raw: Array, starts: Array, offset: int = 0) -> None:
    """Raises ``Problem`` unless there is a level of braces per dimension, with as many entries as it is long.

    ``raw`` are the bytes of a text with balanced braces, ``starts`` where its elements begin.
    """
    rank = shape.rank
    places, depth = _levels(raw)
    opening = raw[places] == ord("{")
    levels = [places[opening & (depth == level)] for level in range(1, rank + 2)]
    if len(levels[rank]):
        raise Problem(
            offset + int(levels[rank][0]),
            f"too many levels of braces: a literal of shape {shape} has {rank}",
        )
    before = np.searchsorted(places, starts) - 1
    wrong = starts[(before < 0) | (depth[before] != rank)]
    if len(wrong):
        raise Problem(
            offset + int(wrong[0]),
            f"too few levels of braces: a literal of shape {shape} has {rank}",
        )
    levels[rank] = starts
    for level, (parents, inside) in enumerate(pairwise(levels)):
        owner = np.searchsorted(parents, inside, side="right") - 1
        counts = np.bincount(owner, minlength=len(parents))
        bad = np.flatnonzero(counts != shape.dims[level])
        if len(bad):
            raise Problem(
                offset + int(parents[bad[0]]),
                f"dimension {level} of {shape} has {shape.dims[level]} elements, "
                f"found {counts[bad[0]]}",
            )


def _levels(raw: Array) -> tuple[Array, Array]:
    """Where braces are, and how deep it is behind each."""
    places = np.flatnonzero(_BRACES[raw])
    return places, np.cumsum(np.where(raw[places] == ord("{"), 1, -1))


def _is_regular(shape: ArrayShape, raw: Array, starts: Array) -> bool:
    _, depth = _levels(raw)
    if not len(depth) or depth[-1] or (depth[:-1] < 1).any():
        return False
    try:
        check_braces(shape, raw, starts)
    except Problem:
        return False
    return True


def _paired(raw: Array, starts: Array) -> bool:
    """Whether every two numbers stand between parentheses with one comma."""
    marks = raw[(raw == ord("(")) | (raw == ord(")"))]
    if (
        len(marks) != len(starts)
        or (marks[::2] != ord("(")).any()
        or (marks[1::2] != ord(")")).any()
    ):
        return False
    opened = np.flatnonzero(raw == ord("("))
    closed = np.flatnonzero(raw == ord(")"))
    inside = (opened < starts[::2]) & (starts[1::2] < closed)
    commas = np.cumsum(raw == ord(","), dtype=np.int64)
    return bool(inside.all() and (commas[closed] - commas[opened] == 1).all())


def _numbers(plain: Array, kind: type[np.generic], count: int) -> Array | None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            values = np.fromstring(plain.tobytes(), kind, sep=" ")
        except (ValueError, DeprecationWarning):  # what NumPy raises for text that is not a number
            return None
    return values if len(values) == count else None


def _integers(dtype: DType, plain: Array, separators: Array, starts: Array) -> Array | None:
    ends = np.flatnonzero(separators & np.concatenate(([False], ~separators[:-1])))
    if len(ends) != len(starts) or (len(starts) and (ends - starts).max() > _SURE_DIGITS):
        return None
    # NumPy reads a sign without digits as 0.
    if not _DIGITS[plain[np.flatnonzero(plain == ord("-")) + 1]].all():
        return None
    numbers = _numbers(plain, np.int64, len(starts))
    if numbers is None or dtype.is_pred:
        return None if numbers is None else numbers != 0
    low, high = dtype.limits
    if len(numbers) and not (low <= int(numbers.min()) and int(numbers.max()) <= high):
        return None
    return numbers.astype(dtype.numpy)


def _floats(dtype: DType, plain: Array, text: str) -> Array | None:
    # What NumPy reads and HLO does not: ".5" and "+1".
    dots, signs = np.flatnonzero(plain == ord(".")), np.flatnonzero(plain == ord("+"))
    if not _DIGITS[plain[dots - 1]].all() or not ((plain[signs - 1] | 0x20) == ord("e")).all():
        return None
    if "-nan" in text:  # its sign would be lost
        return None
    part = of_numpy(np.dtype(np.float32 if dtype.bits == 64 else np.float64))
    target = part if dtype.is_complex else dtype
    before = np.concatenate(([True], plain[:-1] == ord(" ")))
    doubles = _numbers(plain, np.float64, int(np.count_nonzero(before & (plain != ord(" ")))))
    if doubles is None or np.count_nonzero(np.isinf(doubles)) != text.count("inf"):
        return None
    values, overflown = rounded(target, doubles)
    if overflown.any():
        return None
    return values.view(dtype.numpy) if dtype.is_complex else values


def rounded(dtype: DType, doubles: Array) -> tuple[Array, Array]:
    """f64 values in a narrower type, and which of them are too large for it."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        values = doubles.astype(dtype.numpy)
        overflown = np.isfinite(doubles) & ~np.isfinite(values.astype(np.float64))
    return values, overflown
