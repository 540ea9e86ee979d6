"""One allocation for the large temporary arrays of a line, kept from run to run, and scratch memory.

Fresh memory is not free: the system clears every page of it, and reclaims it when an array is freed.  What is
live only within a run therefore has a fixed place, chosen when the line is compiled, where no other array is
live at the same time (``kernels.buffers.packing``).  Results are never there: they belong to the caller.
The first run allocates the memory; where that fails, steps make arrays of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from threading import local
from typing import Any, Final

import numpy as np

from hloopt.backends.numpy.plan import Dims, Line, Step
from hloopt.graphs import UnionFind
from hloopt.types import Array

__all__ = ["Arena", "ScratchMemory", "place_arrays", "scratch"]

# Bytes from which the C library maps every array separately (glibc's M_MMAP_THRESHOLD).
_LARGE: Final = 1 << 17
_ALIGNMENT: Final = 256
_LARGEST_SCRATCH: Final = 1 << 26  # a larger piece of scratch memory is freed: few steps need it
_NEVER: Final = 1 << 60  # after the last step: results are read there


class Arena:
    """The memory of the placed arrays of a line.

    ``slots`` are those of the places, ``forms`` their types and dimensions, ``offsets`` where in
    ``byte_size`` bytes they begin.
    """

    def __init__(
        self,
        slots: Sequence[int],
        forms: Sequence[tuple[np.dtype[Any], Dims]],
        offsets: Sequence[int],
        byte_size: int,
    ) -> None:
        self.slots, self.byte_size = tuple(slots), byte_size
        self._forms, self._offsets = forms, offsets
        self._arrays: tuple[Array | None, ...] | None = None

    def arrays(self) -> tuple[Array | None, ...]:
        """An array for each place, the same ones each time; None for all where memory does not suffice."""
        if self._arrays is None:
            try:
                memory = np.empty(self.byte_size + _ALIGNMENT, np.uint8)
            except MemoryError:
                return (None,) * len(self.slots)  # a later run may succeed
            first = -memory.ctypes.data % _ALIGNMENT
            self._arrays = tuple(
                memory[first + offset : first + offset + prod(dims) * kind.itemsize]
                .view(kind)
                .reshape(dims)
                for (kind, dims), offset in zip(self._forms, self._offsets, strict=True)
            )
        return self._arrays


def place_arrays(line: Line) -> Arena | None:
    """Give steps that take ``out=`` a place for what they make; None where nothing is large.

    Which arrays steps overwrite is decided before (``sharing``): such arrays are one here.
    """
    groups = _Groups(line)
    found = []
    for number, step in enumerate(line.steps):
        for at, out in enumerate(step.outs):
            size = prod(line.dims[out]) * line.kinds[out].itemsize
            if size >= _LARGE and _is_made(step, at) and groups.last(out) != _NEVER:
                found.append((step, at, size, number, groups.last(out)))
    if not found:
        return None
    from hloopt.kernels.buffers.packing import pack

    sizes = [size for _, _, size, _, _ in found]
    packing = pack(sizes, [start for *_, start, _ in found], [end for *_, end in found])
    forms = [(line.kinds[step.outs[at]], line.dims[step.outs[at]]) for step, at, *_ in found]
    slots = [line.slot(kind, dims) for kind, dims in forms]
    for (step, at, *_), place in zip(found, slots, strict=True):
        if step.several:
            step.places[at] = place
        else:
            step.into = place
    return Arena(slots, forms, packing.offsets, packing.byte_size)


def _is_made(step: Step, at: int) -> bool:
    """Whether a step allocates the array of an output, and could write into a given one instead."""
    if step.several:
        return step.fills and at not in step.own
    return (step.ufunc or step.fills) and step.code is None and step.into < 0


class _Groups(UnionFind[int]):
    """Slots whose arrays may share memory, and the step that reads each group last."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        for step in line.steps:
            self.join(*step.linked())
            for at in step.own:
                self.join(step.ins[at], step.outs[at])
            if step.into >= 0:
                self.join(step.into, step.outs[0])
        self._last: dict[int, int] = {}
        for number, step in enumerate(line.steps):
            # What the host, or another participant, is given stays with them.
            end = _NEVER if step.keep else number
            for slot in (*step.ins, *step.outs, *step.taken()):
                group = self.find(slot)
                self._last[group] = max(self._last.get(group, 0), end)
        for slot in line.results:
            self._last[self.find(slot)] = _NEVER

    def last(self, slot: int) -> int:
        """The number of the step that reads the slot's group last."""
        return self._last[self.find(slot)]


class ScratchMemory(local):
    """Thread-local memory that a step needs while it runs: pieces by number, which the next step uses again."""

    def __init__(self) -> None:
        self._pieces: dict[int, Any] = {}

    def of(self, number: int, dims: Dims, kind: np.dtype[Any]) -> Any:
        """An array in row-major order, with whatever the piece had in it."""
        size = prod(dims) * kind.itemsize
        piece = self._pieces.get(number)
        if piece is None or piece.size < size:
            piece = np.empty(max(size, 1), np.uint8)
            if size <= _LARGEST_SCRATCH:
                self._pieces[number] = piece
        return piece[:size].view(kind).reshape(dims)


scratch = ScratchMemory()
