"""Literals: the values of constants."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, TypeAlias
from zlib import crc32

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.types.shape import ArrayShape, TupleShape, array

__all__ = ["Array", "Literal", "scalar"]

Array: TypeAlias = np.ndarray[Any, Any]
"""Values of any element type and rank."""


# Bytes that a literal's key may be a copy of.
_COPIED: Final = 1 << 10
# Bytes, or elements, compared before the remaining ones are considered.
_AT_ONCE: Final = 1 << 16


class _Bytes:
    """The bytes of a large array, without a copy, to be compared and hashed."""

    def __init__(self, values: Array) -> None:
        self._bytes = np.ascontiguousarray(values).reshape(-1).view(np.uint8)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, _Bytes) or hash(self) != hash(other):
            return False
        mine, others = self._bytes, other._bytes
        return mine.size == others.size and all(
            np.array_equal(mine[start : start + _AT_ONCE], others[start : start + _AT_ONCE])
            for start in range(0, mine.size, _AT_ONCE)
        )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return crc32(self._bytes.data)


@dataclass(frozen=True, eq=False)
class Literal:
    """A constant's value: a read-only array, a tuple of literals, or elided (``{...}``).

    ``array`` has the storage type of ``shape.dtype`` and its dimensions (logical, row-major).  Two
    literals are equal when their bytes are: -0.0 differs from 0.0, and a NaN equals itself.
    """

    shape: ArrayShape | TupleShape
    array: Array | None = None
    elements: tuple[Literal, ...] = ()
    elided: bool = False

    def __post_init__(self) -> None:
        if self.array is not None:
            self.array.flags.writeable = False

    @cached_property
    def key(self) -> tuple[object, ...]:
        """What equality and hashing use; an elided literal equals only itself."""
        if self.elided:
            return ("elided", id(self))
        if self.array is None:
            return tuple(element.key for element in self.elements)
        values = self.array
        if isinstance(self.shape, ArrayShape) and self.shape.dtype.bits < 8:
            # NumPy's arithmetic leaves anything in the bits that such a type does not have.
            values = values.view(np.uint8) & ((1 << self.shape.dtype.bits) - 1)
        held = values.tobytes() if values.nbytes <= _COPIED else _Bytes(values)
        return (str(self.array.dtype), self.array.shape, held)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def is_scalar(self) -> bool:
        """Whether this is a rank-0 array that is not elided."""
        return self.array is not None and self.array.ndim == 0

    @cached_property
    def number(self) -> complex:
        """The value of a rank-0 array of numbers or truth values, 1 for true.

        Raises ``TypeError`` for any other literal.
        """
        if self.array is None or self.array.ndim:
            raise TypeError(f"a literal of {self.shape} is not one number")
        kind = self.array.dtype.kind
        return complex(self.array) if kind == "c" else float(self.array)

    @cached_property
    def splat(self) -> Array | None:
        """The one element as a 0-d array when all elements have the same bytes, else None."""
        values = self.array
        if values is None or values.size == 0:
            return None
        first = values.reshape(-1)[:1]
        if values.size > 1:
            width = values.dtype.itemsize
            raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8).reshape(-1, width)
            for start in range(0, len(raw), _AT_ONCE):
                if not (raw[start : start + _AT_ONCE] == raw[0]).all():
                    return None
        return first.reshape(())


def scalar(dtype_name: str, value: object) -> Literal:
    """A rank-0 literal of the named element type."""
    shape = array(dtype_name)
    return Literal(shape, np.array(value).astype(shape.dtype.numpy))
