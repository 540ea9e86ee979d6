"""Where the elements of arrays lie, as the objects of Python say: asking each array for it takes longer."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Final

import numpy as np

from hloopt.types import Array

__all__ = ["ELEMENTS", "ITEMS", "address_of", "aligned", "copied"]

_ALIGNMENT: Final = 256

ELEMENTS: Final = object.__basicsize__
"""Where NumPy keeps the address of an array's elements: right after the header of every object."""


def _is_there() -> bool:
    """Whether addresses are found at the expected offset."""
    samples = (np.zeros(3), np.zeros(7, np.uint8)[3:])
    return all(
        ctypes.c_void_p.from_address(id(one) + ELEMENTS).value == one.ctypes.data for one in samples
    )


def _address_by_ctypes(array: Array) -> int:
    return array.ctypes.data


def _address_by_offset(array: Array) -> int:
    return ctypes.c_void_p.from_address(id(array) + ELEMENTS).value or 0


_IS_THERE: Final = _is_there()

address_of: Callable[[Array], int] = _address_by_offset if _IS_THERE else _address_by_ctypes
"""The address of an array's elements; reading it from the object takes a tenth of the time of ``ctypes``."""


def _items() -> int:
    """Where a list keeps the address of its items; 0 where that or an array's elements are not found."""
    at = list.__basicsize__ - 2 * ctypes.sizeof(ctypes.c_void_p)
    samples = [np.zeros(1), np.zeros(2)]
    items = ctypes.c_void_p.from_address(id(samples) + at).value
    if not (_IS_THERE and items):
        return 0
    found = (ctypes.c_void_p * 2).from_address(items)
    return at if list(found) == [id(one) for one in samples] else 0


ITEMS: Final = _items()
"""Where a list keeps the address of its items, in bytes; 0 where ``find_arrays`` has to look at each array."""


def copied(raw: Array) -> Array:
    """The same bytes (u8) in memory of their own, aligned."""
    own = aligned(raw.nbytes)
    own[:] = raw
    return own


def aligned(byte_size: int) -> Array:
    """So many bytes (u8), as they happen to be, at a multiple of 256."""
    whole = np.empty(byte_size + _ALIGNMENT, np.uint8)
    start = -whole.ctypes.data % _ALIGNMENT
    return whole[start : start + byte_size]
