"""Where the windows of a gather or scatter start, column by column of the start indices."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.passes.indexing.known import KnownArrays
from hloopt.rewrite.site import Site, row_major
from hloopt.types import DTYPES, Array, ArrayShape, Dims, GatherDims, ScatterDims, SliceRange

__all__ = ["AffineStarts", "Starts", "affine", "index_matrix", "is_inside"]


@dataclass(frozen=True)
class Starts:
    """The start indices of windows.

    indices     the operand that holds them
    vector_dim  its dimension along which one start index vector lies
    columns     operand dimension of each element of a vector
    batching    pairs of an operand dimension and the batch dimension that it follows one by one
    """

    indices: Instruction
    vector_dim: int
    columns: Dims
    batching: tuple[tuple[int, int], ...]

    @classmethod
    def of_gather(cls, gather: Instruction, dims: GatherDims) -> Starts:
        """Those of a gather."""
        return cls(gather.operands[1], dims.index_vector_dim, dims.index_map, dims.batching)

    @classmethod
    def of_scatter(cls, scatter: Instruction, dims: ScatterDims) -> Starts:
        """Those of a scatter."""
        return cls(scatter.scatter_indices, dims.index_vector_dim, dims.index_map, dims.batching)

    @property
    def batch(self) -> Dims:
        """Sizes of the batch dimensions: those of the indices without that of the vectors."""
        dims = self.indices.array.dims
        return dims[: self.vector_dim] + dims[self.vector_dim + 1 :]

    @property
    def moving(self) -> Dims:
        """Operand dimensions along which windows move: those that follow batch dimensions first."""
        return (*(dim for dim, _ in self.batching), *self.columns)

    def piece(self, column: int) -> tuple[Instruction, int]:
        """The instruction a column comes from, and its number in that."""
        source = self.indices
        while source.opcode == "concatenate" and source.dimensions == (self.vector_dim,):
            for operand in source.operands:
                size = operand.array.dims[self.vector_dim]
                if column < size:
                    source = operand
                    break
                column -= size
        return source, column

    def known(self, column: int, arrays: KnownArrays) -> Array | None:
        """The values of a column over the batch dimensions as int64, or None."""
        source, number = self.piece(column)
        array = arrays.of(source)
        if array is None:
            return None
        if self.vector_dim < array.ndim:
            array = array.take(number, axis=self.vector_dim)
        if array.dtype == np.uint64:
            array = np.minimum(array, np.uint64(np.iinfo(np.int64).max))
        return array.astype(np.int64)

    def scalar(self, column: int, site: Site) -> Instruction:
        """The one start index of a column, where there is one window only."""
        source, number = self.piece(column)
        rank = source.array.rank
        if rank > self.vector_dim and source.array.dims[self.vector_dim] > 1:
            ranges = [SliceRange(0, size) for size in source.array.dims]
            ranges[self.vector_dim] = SliceRange(number, number + 1)
            shape = row_major(source.array, tuple(entry.size for entry in ranges))
            source = site.make("slice", source, shape=shape, slice=tuple(ranges))
        while source.array.rank and source.opcode in ("reshape", "broadcast"):
            if source.operands[0].array.elements != 1:
                break
            source = source.operands[0]
        return site.reshape(source, row_major(source.array, ()))

    def counted(self) -> Iterator[tuple[int, Array]]:
        """The operand dimensions that go along with batch dimensions, with their starts."""
        for dim, axis in self.batching:
            yield dim, np.broadcast_to(_along(axis, self.batch), self.batch)

    @property
    def is_single(self) -> bool:
        """Whether there is exactly one window."""
        return prod(self.batch) == 1


def _along(axis: int, shape: Dims) -> Array:
    """The index along an axis, as an array that broadcasts to the shape."""
    return np.arange(shape[axis], dtype=np.int64).reshape(-1, *[1] * (len(shape) - axis - 1))


@dataclass(frozen=True)
class AffineStarts:
    """``offset + sum(strides[j] * b[j])`` at batch index b."""

    offset: int
    strides: Dims


def affine(values: Array) -> AffineStarts | None:
    """The values as an affine function of their index, or None; strides along single elements are 0."""
    if not values.size:
        return None
    offset = int(values.reshape(-1)[0])
    strides: list[int] = []
    expected = np.full(values.shape, offset, np.int64)
    for axis, size in enumerate(values.shape):
        step = 0
        if size > 1:
            place = [0] * values.ndim
            place[axis] = 1
            step = int(values[tuple(place)]) - offset
        strides.append(step)
        expected = expected + step * _along(axis, values.shape)
    return AffineStarts(offset, tuple(strides)) if np.array_equal(expected, values) else None


def is_inside(values: Array, size: int, window: int) -> bool:
    """Whether windows that start at ``values`` are all within a dimension."""
    return bool(((values >= 0) & (values <= size - window)).all())


def index_matrix(starts: Starts, site: Site) -> Instruction:
    """[N, k]: a row for each batch index in row-major order, a column for each operand dimension that moves.

    Batching dimensions come first, as columns of the batch index they follow: so does XLA, and operands
    keep the order of their dimensions.
    """
    indices, vector = starts.indices, starts.vector_dim
    batch = starts.batch
    rows = prod(batch)
    if vector < indices.array.rank:
        axes = [axis for axis in range(indices.array.rank) if axis != vector]
        indices = site.transpose(indices, (*axes, vector))
    count = len(starts.columns)
    matrix = site.reshape(indices, row_major(indices.array, (rows, count)))
    if not starts.batching:
        return matrix
    kind = matrix.array.dtype
    largest = max(batch[axis] for _, axis in starts.batching)
    if largest > 1 << (kind.bits - 1):
        # A narrow index type does not count that far.
        wide = ArrayShape(DTYPES["s32"], matrix.array.dims, matrix.array.layout)
        matrix = site.make("convert", matrix, shape=wide)
    parts = []
    for _, axis in starts.batching:
        counted = row_major(matrix.array, batch)
        column = site.make("iota", shape=counted, iota_dimension=axis)
        parts.append(site.reshape(column, row_major(matrix.array, (rows, 1))))
    if count:
        parts.append(matrix)
    if len(parts) == 1:
        return parts[0]
    shape = row_major(matrix.array, (rows, count + len(starts.batching)))
    return site.make("concatenate", *parts, shape=shape, dimensions=(1,))
