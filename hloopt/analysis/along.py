"""Elementwise kernels that go along a dimension which some of their values do not have.

Tables of angles have a place and an element of the head, not the heads; a key's schedule has no dimension at
all.  What goes along the missing dimension computes them once.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from hloopt.analysis.layout import is_row_major
from hloopt.analysis.region import Region
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.types import ArrayShape

__all__ = ["LoopAlong", "loop_along_of", "repetitions"]

_VECTOR_BITS = 128
_MOST_STEPS = 16
_MOST_PARTS = 8
"""Each is code of its own."""
_THREADS_A_CORE = 512
"""Which have enough loads under way, where threads have several elements each."""


@dataclass(frozen=True)
class LoopAlong:
    """Results of ``dims``, of which threads go along one.

    along   the dimension
    parts   equal parts of the last dimension that concatenates or paddings make: a thread has a place in each
    vector  neighbours that a thread has in each part
    """

    dims: tuple[int, ...]
    along: int
    parts: int
    vector: int

    def steps(self, cores: int) -> int:
        """How many places of the dimension a thread has: as many as leave enough threads for so many cores."""
        size = self.dims[self.along]
        threads = prod(self.dims) // (self.parts * self.vector)
        fitting = [
            each
            for each in range(2, min(size, _MOST_STEPS) + 1)
            if size % each == 0 and threads // each >= _THREADS_A_CORE * cores
        ]
        return max(fitting, default=1)


def loop_along_of(region: Region) -> LoopAlong | str:
    """How a region's results go along a dimension, or why they do not."""
    shapes = {result.shape.dims for result in region.results}
    if len(shapes) != 1:
        return "the results have different sizes"
    (dims,) = shapes
    if len(dims) < 2 or 0 in dims:
        return "the results have no two dimensions"
    for number, result in enumerate(region.results):
        if result.shape.dtype.bits < 8 or not is_row_major(result.shape):
            return f"result {number} is {result.shape}"
    lacking = [at for at in range(len(dims) - 1) if dims[at] > 1 and _is_lacking(region, dims, at)]
    if not lacking:
        return "every value that is spread has all dimensions but the last"
    parts = max(_parts(region, dims), default=1)
    vector = max(1, _VECTOR_BITS // max(result.shape.dtype.bits for result in region.results))
    while dims[-1] // parts % vector:
        vector //= 2
    return LoopAlong(dims, max(lacking, key=lambda at: dims[at]), parts, vector)


def _parts(region: Region, dims: tuple[int, ...]) -> Iterator[int]:
    for inner in region.body:
        if inner.opcode not in ("concatenate", "pad") or inner.array.dims != dims:
            continue
        pieces = inner.operands[: None if inner.opcode == "concatenate" else 1]
        sizes = {piece.array.dims for piece in pieces}
        size = pieces[0].array.dims[-1]
        if sizes == {(*dims[:-1], size)} and size and dims[-1] % size == 0:
            count = dims[-1] // size
            if count <= _MOST_PARTS:
                yield count


def _is_lacking(region: Region, dims: tuple[int, ...], at: int) -> bool:
    """Whether what some broadcast spreads over the results leaves out a dimension."""
    return any(
        _is_spread(inner, dims) and at not in inner.attributes["dimensions"]
        for inner in region.body
    )


def _is_spread(inner: Instruction, dims: tuple[int, ...]) -> bool:
    """Whether this is a broadcast, of more than a constant, to the size of the results or of a part."""
    if inner.opcode != "broadcast" or not isinstance(inner.shape, ArrayShape):
        return False
    return inner.operands[0].opcode != "constant" and _has_leading(inner, dims)


def _has_leading(inner: Instruction, dims: tuple[int, ...]) -> bool:
    """Whether an array has all dimensions but the last, and whatever instead of that one."""
    return inner.array.rank >= len(dims) and inner.array.dims[: len(dims) - 1] == dims[:-1]


def repetitions(region: Region, found: LoopAlong, cores: int) -> dict[Instruction, float]:
    """How often all threads together compute an element of each instruction of the body."""
    every = prod(found.dims) / found.parts
    needed: dict[Instruction, float] = {}
    steps = found.steps(cores)
    for inner in reversed(region.body):
        if not isinstance(inner.shape, ArrayShape):
            continue
        own = needed.get(inner, 0.0)
        if inner.shape.elements >= every or _has_leading(inner, found.dims):
            own = float(inner.shape.elements)
        needed[inner] = own
        if _is_spread(inner, found.dims):
            where = inner.attributes["dimensions"]
            own = every / (1 if found.along in where else steps)
            own /= 1 if max(where, default=-1) >= len(found.dims) - 1 else found.vector
        for operand in inner.operands:
            needed[operand] = max(needed.get(operand, 0.0), own)
    return needed
