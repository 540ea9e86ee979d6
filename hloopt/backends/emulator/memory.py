"""Memory that parent and child share: allocations in segments of one file that has no name."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from contextlib import suppress
from dataclasses import field

import numpy as np

from hloopt.backends.emulator.child import CONTROL_BYTES
from hloopt.dataclass import dataclass
from hloopt.errors import DeviceError
from hloopt.runtime.device import Pointer
from hloopt.types import Array

__all__ = ["MappedAllocation", "MappedSegment", "SharedMemory"]

ALIGNMENT = 256
_SEGMENT_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class MappedSegment:
    """A part of the file, as large as what is mapped at once."""

    offset: int
    byte_size: int


@dataclass(frozen=True, slots=True)
class MappedAllocation:
    """``byte_size`` bytes at ``offset`` of a segment."""

    segment: int
    offset: int
    byte_size: int


@dataclass(eq=False)
class SharedMemory:
    """Segments and allocations, which live until ``close``; untouched pages take no memory."""

    segments: list[MappedSegment] = field(default_factory=list)
    allocations: list[MappedAllocation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.descriptor = _unnamed_file()
        self._free = 0
        self._views: list[Array] = []
        os.ftruncate(self.descriptor, CONTROL_BYTES)
        self._close = weakref.finalize(self, os.close, self.descriptor)

    def allocate(self, byte_size: int) -> int:
        """The number of a new allocation.

        Raises ``DeviceError`` where there is not enough memory.
        """
        if byte_size < 0:
            raise ValueError(f"{byte_size} bytes cannot be allocated")
        needed = max(_round_up(byte_size, ALIGNMENT), ALIGNMENT)
        if not self.segments or self._free + needed > self.segments[-1].byte_size:
            self._add_segment(max(_SEGMENT_BYTES, _round_up(needed, CONTROL_BYTES)))
        self.allocations.append(MappedAllocation(len(self.segments) - 1, self._free, byte_size))
        self._free += needed
        return len(self.allocations) - 1

    def view(self, pointer: Pointer) -> Array:
        """The bytes at a pointer, which must lie in its allocation."""
        allocation = self.allocations[pointer.allocation]
        if pointer.offset < 0 or pointer.offset + pointer.byte_size > allocation.byte_size:
            raise ValueError(f"{pointer} is outside of {allocation}")
        begin = allocation.offset + pointer.offset
        return self._views[allocation.segment][begin : begin + pointer.byte_size]

    def close(self) -> None:
        """Give everything back."""
        self._views.clear()
        self._close()

    def _add_segment(self, byte_size: int) -> None:
        last = self.segments[-1] if self.segments else MappedSegment(0, CONTROL_BYTES)
        offset = last.offset + last.byte_size
        try:
            os.ftruncate(self.descriptor, offset + byte_size)
            mapped = mmap.mmap(self.descriptor, byte_size, offset=offset)
        except (OSError, ValueError) as error:
            raise DeviceError(f"the emulator has no room for {byte_size} bytes: {error}") from error
        self.segments.append(MappedSegment(offset, byte_size))
        self._views.append(np.frombuffer(mapped, np.uint8))
        self._free = 0


def _unnamed_file() -> int:
    if hasattr(os, "memfd_create"):
        with suppress(OSError):  # not supported by this kernel
            return os.memfd_create("hloopt-emulator")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
