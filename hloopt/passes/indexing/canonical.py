"""What the canonical forms of gather and scatter share: index vectors as the rows of a matrix."""

from __future__ import annotations

from math import prod

from hloopt.ir import Instruction
from hloopt.passes.indexing.windows import Starts
from hloopt.rewrite.site import Site, row_major
from hloopt.types import DTYPES, ArrayShape

__all__ = ["index_matrix"]


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
