"""The start indices of gather and scatter: which of an array's numbers belongs to which dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloopt.types import Array, ArrayShape, DType, GatherDims, ScatterDims

__all__ = ["batch_line", "index_columns", "single_starts"]

_MOST = np.iinfo(np.int64).max


def index_columns(
    dims: GatherDims | ScatterDims, shape: ArrayShape, wanted: Sequence[int]
) -> Callable[[Any], list[Array]]:
    """A function from indices of a shape to an array over the batch for each wanted vector element.

    Numbers too large for int64 become the largest one: both lie outside of any dimension.
    """
    batch, vector_dim = dims.batch_of(shape.dims), dims.index_vector_dim
    integers = _integers(shape.dtype)
    if vector_dim == shape.rank or shape.dims[vector_dim] == 1:
        return lambda indices: [integers(indices.reshape(batch))] * len(wanted)
    before = (slice(None),) * vector_dim
    places = [(*before, number) for number in wanted]

    def columns(indices: Any) -> list[Array]:
        whole = integers(indices)
        return [whole[place] for place in places]

    return columns


def _integers(kind: DType) -> Callable[[Any], Any]:
    if kind.name == "u64":
        return lambda x: np.minimum(x, np.uint64(_MOST)).astype(np.int64)
    if kind.bits < 32:
        # The bounds that starts are clamped to need not be numbers of the type.
        return lambda x: x.astype(np.int64)
    return lambda x: x


def single_starts(kind: DType, bounds: Sequence[tuple[int, int]]) -> Callable[[Any], list[int]]:
    """Of the only index vector, clamped starts: ``bounds`` are its elements' numbers and greatest starts."""
    widened = kind.bits < 8

    def starts(indices: Any) -> list[int]:
        # Python's integers: unsigned ones above int64's maximum are clamped correctly.
        numbers = (indices.astype(np.int64) if widened else indices).reshape(-1).tolist()
        return [min(max(numbers[at], 0), most) for at, most in bounds]

    return starts


def batch_line(batch: Sequence[int], axis: int) -> Array:
    """The position along one batch dimension, shaped to broadcast along the others."""
    place = [1] * len(batch)
    place[axis] = batch[axis]
    return np.arange(batch[axis]).reshape(place)
