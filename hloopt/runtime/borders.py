"""Between arrays on the host and bytes on a device.

An array on the host is logical and row-major, one element of a narrow type a byte; on a device its elements
lie in the order of its layout, and narrow ones are packed, lowest bits first.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hloopt.interpret.bitcast import from_bytes, from_physical, packed_bytes, to_physical
from hloopt.interpret.context import Value
from hloopt.types import Array, ArrayShape, Shape, TupleShape

__all__ = ["array_of_bytes", "bytes_of_array", "empty", "value_of_leaves"]


def bytes_of_array(array: Array, shape: ArrayShape) -> Array:
    """The bytes (u8) of an array as a buffer of ``shape`` holds them; ``shape.byte_size`` of them."""
    physical = to_physical(array.astype(shape.dtype.numpy, copy=False), _order(shape))
    return packed_bytes(physical, shape.dtype)


def array_of_bytes(raw: Array, shape: ArrayShape) -> Array:
    """The array that a buffer of ``shape`` holds; what ``bytes_of_array`` gives, taken back."""
    flat = from_bytes(raw, shape.dtype, shape.elements)
    return from_physical(flat, shape.dims, _order(shape))


def value_of_leaves(shape: Shape, arrays: Iterator[Array]) -> Value:
    """A value of a shape out of the arrays of its leaves, tokens among them."""
    if isinstance(shape, TupleShape):
        return tuple(value_of_leaves(element, arrays) for element in shape.elements)
    return next(arrays)


def _order(shape: ArrayShape) -> tuple[int, ...]:
    if shape.layout is None:
        return tuple(reversed(range(shape.rank)))
    return shape.layout.minor_to_major


def empty(shape: ArrayShape) -> Array:
    """The array of a leaf that has no bytes: a token, or no elements."""
    return np.zeros(shape.dims if shape.dtype.is_array else (), shape.dtype.numpy)
