"""What a device does for a program: memory, copies, launches.  A plan is walked over it.

An array on the host is logical and row-major, one element of a narrow type a byte; on a device its elements
lie in the order of its layout, and narrow ones are packed, lowest bits first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.interpret.bitcast import from_bytes, from_physical, packed_bytes, to_physical
from hloopt.interpret.context import Value
from hloopt.kernels.spec import ArgumentRole, Dim3
from hloopt.types import Array, ArrayShape, Shape, TupleShape

if TYPE_CHECKING:
    from hloopt.codegen.program import KernelProgram

__all__ = [
    "Capturing",
    "Device",
    "Lending",
    "LentMemory",
    "Pointer",
    "PointerArgument",
    "array_of_bytes",
    "bytes_of_array",
    "empty",
    "value_of_leaves",
]


@dataclass(frozen=True, slots=True)
class Pointer:
    """``byte_size`` bytes at ``offset`` of the allocation with the number ``allocation``."""

    allocation: int
    offset: int
    byte_size: int


@dataclass(frozen=True, slots=True)
class PointerArgument:
    """A pointer and what the function does with it (``kernels.spec.Argument``)."""

    pointer: Pointer
    role: ArgumentRole
    partial: bool = False


class Device(Protocol):
    """One device; a session begins with ``load`` and ends with ``close``.

    Everything is in order of the calls; ``download`` waits.  An error of a kernel (an access outside its
    buffers, a race, a time limit) is an ``EvaluationError`` that names function and, through ``describe``,
    the HLO instruction.
    """

    def load(self, program: KernelProgram | str, describe: dict[str, str]) -> None:
        """Compile a program, or take it from the cache; ``describe`` maps functions to instructions."""

    def allocate(self, byte_size: int) -> int:
        """Allocate memory, not initialised.  Returns the allocation's number."""

    def upload(self, target: Pointer, array: Array) -> None:
        """Contiguous bytes of an array to the device."""

    def download(self, source: Pointer) -> Array:
        """Bytes (u8) from the device, after everything before has run."""

    def copy(self, target: Pointer, source: Pointer) -> None:
        """Copy bytes on the device."""

    def fill(self, target: Pointer, value: int) -> None:
        """Set every byte."""

    def launch(
        self,
        function: str,
        grid: Dim3,
        block: Dim3,
        arguments: Sequence[PointerArgument],
        scalars: Sequence[int] = (),
        shared: int = 0,
    ) -> None:
        """Launch a function: pointers, then 32-bit integers; ``shared`` bytes a block beside its arrays."""

    def close(self) -> None:
        """Free everything."""


@dataclass(frozen=True, slots=True)
class LentMemory:
    """``byte_size`` bytes at an address that others own, and what a run does with them.

    The address is one of the device; of a device that has no such memory to share, it is the host's.
    """

    address: int
    byte_size: int
    is_read: bool
    is_written: bool


class Lending(Device, Protocol):
    """A device whose allocations may lie in memory that others own."""

    def reserve(self, byte_size: int) -> int:
        """The number of an allocation that lies nowhere until memory is lent for it."""

    def lent(self, memory: Mapping[int, LentMemory], stream: int) -> AbstractContextManager[None]:
        """Reserved allocations lie there while it is entered, and all work is put into that stream."""


@runtime_checkable
class Capturing(Protocol):
    """A device that can record a sequence of work once and replay it as a whole."""

    def begin_capture(self) -> None:
        """From here on launches, copies, fills and library calls are recorded instead of run."""

    def end_capture(self) -> int:
        """The work recorded since, for ``replay``; nothing of it has run yet."""

    def abandon_capture(self) -> None:
        """Forget a capture whose work failed half-way; without one, do nothing."""

    def replay(self, graph: int) -> None:
        """Run it: the same functions on the same memory."""

    def forget(self, graph: int) -> None:
        """Free it."""


def bytes_of_array(array: Array, shape: ArrayShape) -> Array:
    """The bytes (u8) of an array as a buffer of ``shape`` holds them; ``shape.byte_size`` of them."""
    physical = to_physical(array.astype(shape.dtype.numpy, copy=False), _order(shape))
    return packed_bytes(physical, shape.dtype)


def array_of_bytes(raw: Array, shape: ArrayShape) -> Array:
    """The array that a buffer of ``shape`` holds; the inverse of ``bytes_of_array``."""
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
